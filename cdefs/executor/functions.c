#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "functions.h"
#include "regions.h"

typedef struct {
    const bl_functions_t *problem;
    const char *src;
    char *dst;
} bl_functions_run_t;

#if defined(__x86_64__)
#include "vectors.h"

/* Writing by a mask takes 40 operations on some CPUs. */
INLINE TARGET_8 void write_8(float *p, int64_t left, vec_8 y) {
    if (left < 8)
        _mm256_maskstore_ps(p, mask_8(left), (__m256)y);
    else
        *(vec_8 *)p = y;
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
#define READ_8(p, left) ((left) < 8 ? first_of_8(p, left) : *(const vec_8 *)(p))
#define WRITE_8 write_8
#define READ_16(p, left) (vec_16)_mm512_maskz_loadu_ps(mask_16(left), p)
#define WRITE_16(p, left, y) _mm512_mask_storeu_ps(p, mask_16(left), (__m512)(y))
#define WRITE_ROUNDED(p, left, y) _mm256_mask_storeu_epi16(p, mask_16(left), _mm512_cvtepi32_epi16(rounded(y)))
#define WRITE_CONVERTED(p, left, y) _mm256_mask_storeu_epi16(p, mask_16(left), converted(y))
COMPUTE(compute_8, TARGET_8, float, vec_8, 8, READ_8, logistic_8, WRITE_8)
COMPUTE(compute_16, TARGET_16, float, vec_16, 16, READ_16, logistic_16, WRITE_16)
COMPUTE(compute_bf16, TARGET_16, uint16_t, vec_16, 16, READ_BF16, rough_logistic, WRITE_ROUNDED)
#if __GNUC__ >= 10 || defined(__clang__)
INLINE TARGET_BF16 __m256i converted(vec_16 value) { return (__m256i)_mm512_cvtneps_pbh((__m512)value); }
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

static int run_all(const bl_functions_t *p, void *const *data) {
    bl_functions_run_t run = {p, data[BL_FUNCTIONS_SRC], data[BL_FUNCTIONS_DST]};
    bl_parallel(p->n_threads, work, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_functions, BL_FUNCTIONS_ARGS, run_all)
