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
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* no NaN: scales are finite */
}

/* Loops so plain that the compiler makes vectors of them, of each type of source and result. */
#define LOOP(TYPE, RESULT, FUNCTION)                                                        \
    do {                                                                                    \
        const TYPE *restrict src = (const TYPE *)w->src;                                    \
        RESULT *restrict dst = (RESULT *)w->dst;                                            \
        for (int64_t i = first; i < last; i++)                                              \
            dst[i] = (RESULT)FUNCTION((float)((int32_t)src[i] - zero_point) * scale);       \
    } while (0)

INLINE void widen_all(const bl_widened_t *w, int64_t first, int64_t last) {
    float scale = w->scale;
    int32_t zero_point = w->zero_point;
    if (w->problem->is_signed) {
        if (w->problem->to_bf16)
            LOOP(int8_t, uint16_t, rounded);
        else
            LOOP(int8_t, float, );
    } else {
        if (w->problem->to_bf16)
            LOOP(uint8_t, uint16_t, rounded);
        else
            LOOP(uint8_t, float, );
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("avx512f,avx512bw"))) static void widen_16(const bl_widened_t *w, int64_t first, int64_t last) {
    __m512 scale = _mm512_set1_ps(w->scale);
    __m512i zero_point = _mm512_set1_epi32(w->zero_point);
    int is_signed = w->problem->is_signed;
    for (; !w->problem->to_bf16 && first + 16 <= last; first += 16) {
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
    int is_signed = w->problem->is_signed;
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
#endif

static void widen(void *given) {
    const bl_widened_t *w = given;
    bl_range_t range = bl_share(w->problem->n);
#if defined(__x86_64__)
    if (w->problem->has_bf16 && w->problem->to_bf16) return widen_to_bf16(w, range.first, range.last);
    if (w->problem->lanes == 16) return widen_16(w, range.first, range.last);
    if (w->problem->lanes == 8) return widen_8(w, range.first, range.last);
#endif
    widen_all(w, range.first, range.last);
}

static int run_all(const bl_widening_t *p, void *const *data) {
    int32_t zero_point = data[BL_WIDEN_ZERO_POINT] ? *(const int32_t *)data[BL_WIDEN_ZERO_POINT] : 0;
    bl_widened_t widened = {p, data[BL_WIDEN_SRC], data[BL_WIDEN_DST], *(const float *)data[BL_WIDEN_SCALE], zero_point};
    bl_parallel(p->n >= BL_WORTH_SHARING ? p->n_threads : 1, widen, &widened);
    return 0;
}

BL_ENTRY(bl_widening, BL_WIDEN_ARGS, run_all)
