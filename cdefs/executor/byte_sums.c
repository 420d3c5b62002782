#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "byte_sums.h"
#include "regions.h"

#if defined(__x86_64__)
#include "vectors.h"

enum { BL_WORTH_SHARING = 1 << 15, BL_LINE = 64 }; /* in bytes */

/* Results are sums of sources times scales and beta, from least to most. */
typedef struct {
    const bl_byte_sums_t *problem;
    const uint8_t *src_0, *src_1;
    uint8_t *dst;
    vec_8 scale_0, scale_1, beta, least, most;
} bl_byte_sums_run_t;

/* Halves of a vector, each element twice as wide: a signed one comes above zeros, times a power of two. */
#define LOW(bits, x, is_signed) \
    ((is_signed) ? _mm256_unpacklo_epi##bits(_mm256_setzero_si256(), x) : _mm256_unpacklo_epi##bits(x, _mm256_setzero_si256()))
#define HIGH(bits, x, is_signed) \
    ((is_signed) ? _mm256_unpackhi_epi##bits(_mm256_setzero_si256(), x) : _mm256_unpackhi_epi##bits(x, _mm256_setzero_si256()))
#define FROM_SIGNED 0x1p-24

INLINE TARGET_8 __m256i quanta(const bl_byte_sums_run_t *run, __m256i a, __m256i b) {
    vec_8 sum = (vec_8)_mm256_cvtepi32_ps(b) * run->scale_1 + run->beta;
    sum = (vec_8)_mm256_cvtepi32_ps(a) * run->scale_0 + sum;
    return _mm256_cvtps_epi32((__m256)min_8(run->most, max_8(run->least, sum)));
}

INLINE TARGET_8 __m256i words(const bl_byte_sums_run_t *run, __m256i a, __m256i b, const int a_sign, const int b_sign) {
    __m256i low = quanta(run, LOW(16, a, a_sign), LOW(16, b, b_sign));
    return _mm256_packs_epi32(low, quanta(run, HIGH(16, a, a_sign), HIGH(16, b, b_sign)));
}

INLINE TARGET_8 void add_32(const bl_byte_sums_run_t *run, const void *src_0, const void *src_1, void *dst,
    const int a_sign, const int b_sign, const int dst_sign) {
    __m256i a = _mm256_loadu_si256(src_0), b = _mm256_loadu_si256(src_1);
    __m256i low = words(run, LOW(8, a, a_sign), LOW(8, b, b_sign), a_sign, b_sign);
    __m256i high = words(run, HIGH(8, a, a_sign), HIGH(8, b, b_sign), a_sign, b_sign);
    _mm256_storeu_si256(dst, dst_sign ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high));
}

/* A part of 32 is brought to a whole one, and back. */
INLINE TARGET_8 void add(const bl_byte_sums_run_t *given, int64_t i, int64_t last, const int a_sign, const int b_sign,
    const int dst_sign) {
    const bl_byte_sums_run_t run = *given;
    for (; i + 32 <= last; i += 32) add_32(&run, run.src_0 + i, run.src_1 + i, run.dst + i, a_sign, b_sign, dst_sign);
    if (i == last) return;
    uint8_t rest[2][32] = {0};
    size_t n = (size_t)(last - i);
    memcpy(rest[0], run.src_0 + i, n), memcpy(rest[1], run.src_1 + i, n);
    add_32(&run, rest[0], rest[1], rest[0], a_sign, b_sign, dst_sign);
    memcpy(run.dst + i, rest[0], n);
}

#define SIGNED(a, b) \
    run->problem->dst_is_signed ? add(run, first, last, a, b, 1) : add(run, first, last, a, b, 0)

TARGET_8 static void add_share(void *given) {
    const bl_byte_sums_run_t *run = given;
    int64_t n = run->problem->n;
    bl_range_t lines = bl_share((n + BL_LINE - 1) / BL_LINE);
    int64_t first = lines.first * BL_LINE, last = lines.last * BL_LINE < n ? lines.last * BL_LINE : n;
    const int *is_signed = run->problem->is_signed;
    if (is_signed[0])
        is_signed[1] ? (SIGNED(1, 1)) : (SIGNED(1, 0));
    else
        is_signed[1] ? (SIGNED(0, 1)) : (SIGNED(0, 0));
}

/* The scale of a source in what the linear function makes, and what stands before the bytes. */
static double scale_of(const bl_byte_sums_t *p, int src, const float *scale) {
    return (double)p->alpha * (scale ? *scale : 1) * (p->is_signed[src] ? FROM_SIGNED : 1);
}

TARGET_8 static int add_all(const bl_byte_sums_t *p, void *const *data) {
    /* Behind a ReLU are beta and what lies above it, or below where alpha is negative. */
    float least = p->dst_is_signed ? -128 : 0, most = least + 255;
    float bound = p->beta < least ? least : p->beta > most ? most : p->beta;
    if (p->has_relu && p->alpha >= 0) least = bound;
    if (p->has_relu && p->alpha <= 0) most = bound;
    vec_8 zero = {0};
    bl_byte_sums_run_t run = {
        .problem = p,
        .src_0 = data[BL_SUMS_SRC_0],
        .src_1 = data[BL_SUMS_SRC_1],
        .dst = data[BL_SUMS_DST],
        .scale_0 = zero + (float)scale_of(p, 0, data[BL_SUMS_SCALE_0]),
        .scale_1 = zero + (float)scale_of(p, 1, data[BL_SUMS_SCALE_1]),
        .beta = zero + p->beta,
        .least = zero + least,
        .most = zero + most,
    };
    bl_parallel(p->n < BL_WORTH_SHARING ? 1 : p->n_threads, add_share, &run);
    return 0;
}
#endif

int bl_byte_sums(const void *problem, void *stream, int n_args, const void *args) {
    const bl_byte_sums_t *p = problem;
    void *data[BL_SUMS_ARGS] = {0};
    (void)stream;
    int status = bl_find_data(p->get_data, args, n_args, data);
    if (status) return status;
#if defined(__x86_64__)
    return add_all(p, data);
#else
    return 3; /* dnnl_unimplemented */
#endif
}
