/* Vectors of 8 and of 16 floats, and the logistic function of them. Included by sources for x86-64 alone. */

#pragma once

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#define TARGET_8 __attribute__((target("avx2,fma")))
#define TARGET_16 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define TARGET_BF16 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16")))

typedef float vec_8 __attribute__((vector_size(32), aligned(4)));
typedef float vec_16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t bl_pair_t __attribute__((aligned(2), may_alias)); /* two words of 16 bits */

/* What is named so, of vectors of LANES floats: WIDE(min) is min_8 where LANES is 8. */
#define WIDE(name) BL_PASTED(name, LANES)
#define BL_PASTED(name, lanes) BL_PASTE(name, lanes)
#define BL_PASTE(name, lanes) name##_##lanes

/* 2^x for 0 <= x <= 1, within 1e-7 of it, and within 1e-4. */
#define EXP2(x)                                                                                                 \
    (((((1.87757669e-03f * (x) + 8.98934063e-03f) * (x) + 5.58263175e-02f) * (x) + 2.40153611e-01f) * (x) +     \
         6.93153083e-01f) * (x) + 9.99999940e-01f)
#define ROUGH_EXP2(x) (((7.80245215e-02f * (x) + 2.26067156e-01f) * (x) + 6.95833564e-01f) * (x) + 9.99925196e-01f)

INLINE TARGET_8 vec_8 min_8(vec_8 a, vec_8 b) { return (vec_8)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE TARGET_8 vec_8 max_8(vec_8 a, vec_8 b) { return (vec_8)_mm256_max_ps((__m256)a, (__m256)b); }

INLINE TARGET_8 __m256i mask_8(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first n of the floats there, or 8; 0 in place of the others, which are not read. */
INLINE TARGET_8 vec_8 first_of_8(const float *from, int64_t n) { return (vec_8)_mm256_maskload_ps(from, mask_8(n)); }

/* 1 / (1 + 2^y), as are the others. */
INLINE TARGET_8 vec_8 logistic_8(vec_8 y) {
    vec_8 most = 126.0f - (vec_8){0}, within = min_8(most, max_8(-most, y));
    vec_8 whole = (vec_8)_mm256_floor_ps((__m256)within), rest = within - whole;
    __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32((__m256)whole), _mm256_set1_epi32(127)), 23);
    return 1.0f / (1.0f + EXP2(rest) * (vec_8)power);
}

INLINE TARGET_16 vec_16 min_16(vec_16 a, vec_16 b) { return (vec_16)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE TARGET_16 vec_16 max_16(vec_16 a, vec_16 b) { return (vec_16)_mm512_max_ps((__m512)a, (__m512)b); }

INLINE TARGET_16 vec_16 logistic_16(vec_16 y) {
    vec_16 within = min_16(126.0f - (vec_16){0}, y), rest = (vec_16)_mm512_reduce_ps((__m512)within, _MM_FROUND_TO_NEG_INF);
    vec_16 sum = 1.0f + (vec_16)_mm512_scalef_ps((__m512)EXP2(rest), (__m512)within);
    vec_16 near = (vec_16)_mm512_rcp14_ps((__m512)sum);
    return near * (2.0f - sum * near);
}

/* Within 2e-4 of it, some hundredths of what rounding to bf16 may do. */
INLINE TARGET_16 vec_16 rough_logistic(vec_16 y) {
    vec_16 rest = (vec_16)_mm512_reduce_ps((__m512)y, _MM_FROUND_TO_NEG_INF);
    return (vec_16)_mm512_rcp14_ps((__m512)(1.0f + (vec_16)_mm512_scalef_ps((__m512)ROUGH_EXP2(rest), (__m512)y)));
}

/* The nearest, the even one of two, in the upper half; a NaN stays one. */
INLINE TARGET_16 __m512i rounded(vec_16 value) {
    __m512i bits = (__m512i)value, odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 is_nan = _mm512_cmp_ps_mask((__m512)value, (__m512)value, _CMP_UNORD_Q);
    near = _mm512_mask_or_epi32(near, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_srli_epi32(near, 16);
}

