/* What bytes stand for. Included by sources for x86-64 alone. */

#pragma once

#include <string.h>

#include "vectors.h"

/* Bytes of a source are XORed with flip to have no sign, then zero is subtracted; results lie from least to most, around
   dst_zero. */
typedef struct {
    const float *weights_scale;
    float src_scale, per_quantum, least, most;
    int flip, zero, dst_zero;
} bl_bytes_t;

/* `numbers`: scales of source, weights and results, zero points of source and results; NULL where there is none. */
static inline bl_bytes_t bytes_of(void *const *numbers, int src_is_signed, int dst_is_signed) {
    const float *src_scale = numbers[0], *dst_scale = numbers[2];
    const int32_t *src_zero = numbers[3], *dst_zero = numbers[4];
    bl_bytes_t bytes = {.weights_scale = numbers[1], .src_scale = src_scale ? *src_scale : 1};
    bytes.per_quantum = dst_scale ? 1 / *dst_scale : 1;
    bytes.flip = src_is_signed ? 0x80 : 0;
    bytes.zero = (src_zero ? *src_zero : 0) + bytes.flip;
    bytes.dst_zero = dst_zero ? *dst_zero : 0;
    bytes.least = (float)((dst_is_signed ? -128 : 0) - bytes.dst_zero);
    bytes.most = bytes.least + 255;
    return bytes;
}

/* The scale of products in a channel; has_scales: whether each has its own. */
static inline float scale_of(const bl_bytes_t *bytes, int has_scales, int64_t channel) {
    return bytes->src_scale * (bytes->weights_scale ? bytes->weights_scale[has_scales ? channel : 0] : 1);
}

typedef __m256i quanta_8;
typedef __m512i quanta_16;

/* The nearest bytes, in 32 bits each; and the first n of a vector of them, or all, where results lie. */
INLINE TARGET_16 __m512i quanta_of_16(const bl_bytes_t *bytes, vec_16 value) {
    vec_16 zero = {0}, within = min_16(bytes->most - zero, max_16(bytes->least - zero, value * bytes->per_quantum));
    return _mm512_add_epi32(_mm512_cvtps_epi32((__m512)within), _mm512_set1_epi32(bytes->dst_zero));
}

INLINE TARGET_16 void store_quanta_16(void *to, __m512i quanta, int64_t n) {
    __m128i packed = _mm512_cvtepi32_epi8(quanta);
    if (n >= 16)
        _mm_storeu_si128(to, packed);
    else
        _mm_mask_storeu_epi8(to, (__mmask16)((1u << n) - 1), packed);
}

INLINE TARGET_16 void write_quanta_16(const bl_bytes_t *bytes, void *to, vec_16 value, int64_t n) {
    store_quanta_16(to, quanta_of_16(bytes, value), n);
}

INLINE TARGET_8 __m256i quanta_of_8(const bl_bytes_t *bytes, vec_8 value) {
    vec_8 zero = {0}, within = min_8(bytes->most - zero, max_8(bytes->least - zero, value * bytes->per_quantum));
    return _mm256_add_epi32(_mm256_cvtps_epi32((__m256)within), _mm256_set1_epi32(bytes->dst_zero));
}

INLINE TARGET_8 void store_quanta_8(void *to, __m256i quanta, int64_t n) {
    quanta = _mm256_and_si256(quanta, _mm256_set1_epi32(0xff));
    __m128i words = _mm_packus_epi32(_mm256_castsi256_si128(quanta), _mm256_extracti128_si256(quanta, 1));
    __m128i packed = _mm_packus_epi16(words, words);
    if (n >= 8)
        _mm_storel_epi64(to, packed);
    else
        memcpy(to, &packed, (size_t)n);
}

INLINE TARGET_8 void write_quanta_8(const bl_bytes_t *bytes, void *to, vec_8 value, int64_t n) {
    store_quanta_8(to, quanta_of_8(bytes, value), n);
}
