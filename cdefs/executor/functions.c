#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "functions.h"
#include "regions.h"

#define INLINE static inline __attribute__((always_inline))

typedef struct {
    int arg;
    void *memory;
} bl_arg_t;

typedef struct {
    const bl_functions_t *problem;
    const char *src;
    char *dst;
} bl_functions_run_t;

#if defined(__x86_64__)
#include <immintrin.h>

/* 2^x for 0 <= x <= 1, within 1e-7 of it, and within 1e-4. */
#define EXP2(x)                                                                                                     \
    (((((1.87757669e-03f * (x) + 8.98934063e-03f) * (x) + 5.58263175e-02f) * (x) + 2.40153611e-01f) * (x) +         \
         6.93153083e-01f) * (x) + 9.99999940e-01f)
#define ROUGH_EXP2(x) (((7.80245215e-02f * (x) + 2.26067156e-01f) * (x) + 6.95833564e-01f) * (x) + 9.99925196e-01f)

typedef float vec_8 __attribute__((vector_size(32), aligned(4)));
typedef float vec_16 __attribute__((vector_size(64), aligned(4)));

#define TARGET_8 __attribute__((target("avx2,fma")))
#define TARGET_16 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define TARGET_BF16 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")))

/* 1 / (1 + 2^y) */
INLINE TARGET_8 vec_8 logistic_8(vec_8 y) {
    vec_8 zero = {0}, most = 126.0f - zero;
    vec_8 within = (vec_8)_mm256_min_ps((__m256)most, _mm256_max_ps((__m256)-most, (__m256)y));
    vec_8 whole = (vec_8)_mm256_floor_ps((__m256)within), rest = within - whole;
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32((__m256)whole), _mm256_set1_epi32(127)), 23);
    return 1.0f / (1.0f + EXP2(rest) * (vec_8)power);
}

INLINE TARGET_16 vec_16 logistic_16(vec_16 y) {
    vec_16 zero = {0}, within = (vec_16)_mm512_min_ps((__m512)(126.0f - zero), (__m512)y);
    vec_16 rest = (vec_16)_mm512_reduce_ps((__m512)within, _MM_FROUND_TO_NEG_INF);
    vec_16 sum = 1.0f + (vec_16)_mm512_scalef_ps((__m512)EXP2(rest), (__m512)within);
    vec_16 near = (vec_16)_mm512_rcp14_ps((__m512)sum);
    return near * (2.0f - sum * near);
}

/* Within 2e-4 of it, some hundredths of what rounding to bf16 may do. */
INLINE TARGET_16 vec_16 rough_logistic(vec_16 y) {
    vec_16 rest = (vec_16)_mm512_reduce_ps((__m512)y, _MM_FROUND_TO_NEG_INF);
    return (vec_16)_mm512_rcp14_ps((__m512)(1.0f + (vec_16)_mm512_scalef_ps((__m512)ROUGH_EXP2(rest), (__m512)y)));
}

/* The nearest, the even one of two; a NaN stays one. */
INLINE TARGET_16 __m256i rounded(vec_16 value) {
    __m512i bits = (__m512i)value, odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
    near = _mm512_mask_or_epi32(near, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(near, 16));
}

INLINE TARGET_BF16 __m256i converted(vec_16 value) { return (__m256i)_mm512_cvtneps_pbh((__m512)value); }

INLINE TARGET_8 __m256i mask_8(int64_t left) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(left < 8 ? (int)left : 8), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

INLINE __mmask16 mask_16(int64_t left) { return left < 16 ? (__mmask16)((1u << left) - 1) : 0xffff; }

#define READ_BF16(p, left) \
    (vec_16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask_16(left), p)), 16)

/* Elements `first` to `last`, by a loop for each of the functions. */
#define COMPUTE(NAME, TARGET, TYPE, VEC, LANES, READ, LOGISTIC, WRITE)                            \
    TARGET static void NAME(const bl_functions_run_t *run, int64_t first, int64_t last) {         \
        const TYPE *src = (const TYPE *)run->src;                                                 \
        TYPE *dst = (TYPE *)run->dst;                                                             \
        float scale = -1.44269504f * run->problem->alpha, cubic = 0.044715f * scale;              \
        if (run->problem->which == BL_LOGISTIC) LOOP(VEC, LANES, READ, LOGISTIC(x * scale), WRITE) \
        if (run->problem->which == BL_SWISH) LOOP(VEC, LANES, READ, x * LOGISTIC(x * scale), WRITE) \
        if (run->problem->which == BL_GELU_TANH)                                                  \
            LOOP(VEC, LANES, READ, x * LOGISTIC(x * (scale + cubic * (x * x))), WRITE)            \
    }
#define LOOP(VEC, LANES, READ, RESULT, WRITE)                                                     \
    for (int64_t i = first; i < last; i += LANES) {                                               \
        VEC x = READ(src + i, last - i), y = RESULT;                                              \
        WRITE(dst + i, last - i, y);                                                              \
    }
#define READ_8(p, left) (vec_8)_mm256_maskload_ps(p, mask_8(left))
#define WRITE_8(p, left, y) _mm256_maskstore_ps(p, mask_8(left), (__m256)(y))
#define READ_16(p, left) (vec_16)_mm512_maskz_loadu_ps(mask_16(left), p)
#define WRITE_16(p, left, y) _mm512_mask_storeu_ps(p, mask_16(left), (__m512)(y))
#define WRITE_ROUNDED(p, left, y) _mm256_mask_storeu_epi16(p, mask_16(left), rounded(y))
#define WRITE_CONVERTED(p, left, y) _mm256_mask_storeu_epi16(p, mask_16(left), converted(y))
COMPUTE(compute_8, TARGET_8, float, vec_8, 8, READ_8, logistic_8, WRITE_8)
COMPUTE(compute_16, TARGET_16, float, vec_16, 16, READ_16, logistic_16, WRITE_16)
COMPUTE(compute_bf16, TARGET_16, uint16_t, vec_16, 16, READ_BF16, rough_logistic, WRITE_ROUNDED)
#if __GNUC__ >= 10 || defined(__clang__)
COMPUTE(compute_bf16_by_instructions, TARGET_BF16, uint16_t, vec_16, 16, READ_BF16, rough_logistic, WRITE_CONVERTED)
#else
#define compute_bf16_by_instructions compute_bf16
#endif

static void work(void *given) {
    const bl_functions_run_t *run = given;
    const bl_functions_t *p = run->problem;
    int64_t whole = (p->n + 31) / 32; /* of a line of the caches, at least */
    bl_range_t share = bl_share(whole);
    int64_t last = share.last * 32 < p->n ? share.last * 32 : p->n;
    void (*compute)(const bl_functions_run_t *, int64_t, int64_t) =
        p->is_bf16 ? p->has_bf16 ? compute_bf16_by_instructions : compute_bf16 : p->lanes == 16 ? compute_16 : compute_8;
    compute(run, share.first * 32, last);
}
#endif

int bl_functions(const void *problem, void *stream, int n_args, const void *args) {
    const bl_functions_t *p = problem;
    void *data[BL_FUNCTIONS_ARGS] = {0};
    (void)stream;
    for (int i = 0; i < n_args; i++) {
        void *memory = ((const bl_arg_t *)args)[i].memory;
        int status = memory ? p->get_data(memory, &data[i]) : 0;
        if (status) return status;
    }
#if defined(__x86_64__)
    bl_functions_run_t run = {p, data[BL_FUNCTIONS_SRC], data[BL_FUNCTIONS_DST]};
    bl_parallel(p->n_threads, work, &run);
    return 0;
#else
    return 3; /* dnnl_unimplemented */
#endif
}
