#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "regions.h"
#include "widening.h"

enum { BL_WORTH_SHARING = 1 << 14 }; /* bytes */

typedef struct {
    const bl_widening_t *problem;
    const uint8_t *src;
    char *dst;
    float scale;
    int32_t zero_point;
} bl_widened_t;

#define INLINE static inline __attribute__((always_inline))

INLINE uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t nearest = bits + 0x7fff + (bits >> 16 & 1);
    return (uint16_t)((value == value ? nearest : bits | 1 << 22) >> 16);
}

INLINE float of_bf16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Loops so plain that the compiler makes vectors of them, of each type of source and result. */
#define LOOP(TYPE, RESULT, EXPRESSION)                                                      \
    do {                                                                                    \
        const TYPE *restrict src = (const TYPE *)w->src;                                    \
        RESULT *restrict dst = (RESULT *)w->dst;                                            \
        for (int64_t i = first; i < last; i++) dst[i] = EXPRESSION;                         \
    } while (0)
#define SCALED ((float)((int32_t)src[i] - zero_point) * scale)

INLINE void widen_all(const bl_widened_t *w, int64_t first, int64_t last) {
    float scale = w->scale;
    int32_t zero_point = w->zero_point;
    int from = w->problem->from, to_bf16 = w->problem->to == BL_BF16;
    if (from == BL_F32)
        LOOP(float, uint16_t, rounded(src[i]));
    else if (from == BL_BF16)
        LOOP(uint16_t, float, of_bf16(src[i]));
    else if (from == BL_S8 && to_bf16)
        LOOP(int8_t, uint16_t, rounded(SCALED));
    else if (from == BL_S8)
        LOOP(int8_t, float, SCALED);
    else if (to_bf16)
        LOOP(uint8_t, uint16_t, rounded(SCALED));
    else
        LOOP(uint8_t, float, SCALED);
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw"))) static void widen_16(const bl_widened_t *w, int64_t first, int64_t last) {
    __m512 scale = _mm512_set1_ps(w->scale);
    __m512i zero_point = _mm512_set1_epi32(w->zero_point);
    int is_signed = w->problem->from == BL_S8;
    for (; w->problem->to == BL_F32 && first + 16 <= last; first += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(w->src + first));
        __m512i wide = is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
        __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(wide, zero_point)), scale);
        _mm512_storeu_ps((float *)w->dst + first, values);
    }
    widen_all(w, first, last);
}

#if __GNUC__ >= 10 || defined(__clang__)
/* bf16 by the instruction for it. */
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) static void widen_to_bf16(
    const bl_widened_t *w, int64_t first, int64_t last) {
    __m512 scale = _mm512_set1_ps(w->scale);
    __m512i zero_point = _mm512_set1_epi32(w->zero_point);
    int is_signed = w->problem->from == BL_S8;
    for (; first + 16 <= last; first += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(w->src + first));
        __m512i wide = is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
        __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(wide, zero_point)), scale);
        __m256bh halves = _mm512_cvtneps_pbh(values);
        memcpy((uint16_t *)w->dst + first, &halves, sizeof halves);
    }
    widen_all(w, first, last);
}
#else
#define widen_to_bf16 widen_16
#endif

__attribute__((target("avx2"))) static void widen_8(const bl_widened_t *w, int64_t first, int64_t last) {
    widen_all(w, first, last);
}

/* f16 by the instructions for it, which all CPUs with AVX2 have. */
__attribute__((target("avx2,f16c"))) static void widen_f16(const bl_widened_t *w, int64_t first, int64_t last) {
    const uint16_t *src = (const uint16_t *)w->src;
    float *dst = (float *)w->dst;
    for (; first + 8 <= last; first += 8)
        _mm256_storeu_ps(dst + first, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + first))));
    for (; first < last; first++) dst[first] = _cvtsh_ss(src[first]);
}

__attribute__((target("avx2,f16c"))) static void narrow_to_f16(const bl_widened_t *w, int64_t first, int64_t last) {
    const float *src = (const float *)w->src;
    uint16_t *dst = (uint16_t *)w->dst;
    for (; first + 8 <= last; first += 8)
        _mm_storeu_si128((__m128i *)(dst + first), _mm256_cvtps_ph(_mm256_loadu_ps(src + first), 0));
    for (; first < last; first++) dst[first] = _cvtss_sh(src[first], 0);
}
#endif

static void widen(void *given) {
    const bl_widened_t *w = given;
    bl_range_t range = bl_share(w->problem->n);
#if defined(__x86_64__)
    if (w->problem->from == BL_F16) return widen_f16(w, range.first, range.last);
    if (w->problem->to == BL_F16) return narrow_to_f16(w, range.first, range.last);
    int of_bytes = w->problem->from == BL_U8 || w->problem->from == BL_S8;
    if (of_bytes && w->problem->has_bf16 && w->problem->to == BL_BF16) return widen_to_bf16(w, range.first, range.last);
    if (of_bytes && w->problem->lanes == 16) return widen_16(w, range.first, range.last);
    if (w->problem->lanes >= 8) return widen_8(w, range.first, range.last);
#endif
    widen_all(w, range.first, range.last);
}

static int run_all(const bl_widening_t *p, void *const *data) {
    int32_t zero_point = data[BL_WIDEN_ZERO_POINT] ? *(const int32_t *)data[BL_WIDEN_ZERO_POINT] : 0;
    float scale = data[BL_WIDEN_SCALE] ? *(const float *)data[BL_WIDEN_SCALE] : 1;
    bl_widened_t widened = {p, data[BL_WIDEN_SRC], data[BL_WIDEN_DST], scale, zero_point};
    bl_parallel(p->n >= BL_WORTH_SHARING ? p->n_threads : 1, widen, &widened);
    return 0;
}

BL_ENTRY(bl_widening, BL_WIDEN_ARGS, run_all)
