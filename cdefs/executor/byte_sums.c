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

/* A result is beta and the sources times their scales, then one of the bytes from least to most. */
typedef struct {
    const bl_byte_sums_t *problem;
    const uint8_t *src[2];
    uint8_t *dst;
    float scales[2], beta;
    int is_large; /* whether sums may be too large for an integer */
    int least, most;
} bl_byte_sums_run_t;

INLINE TARGET_8 vec_8 eight_of(const uint8_t *src, const int is_signed) {
    __m128i bytes = _mm_loadl_epi64((const __m128i *)src);
    return (vec_8)_mm256_cvtepi32_ps(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
}

/* Sources are read before the result is written, which may be one of them. */
INLINE TARGET_8 void add_32(const bl_byte_sums_run_t *run, const uint8_t *src_0, const uint8_t *src_1, uint8_t *dst,
    const int is_signed_0, const int is_signed_1) {
    __m256i found[4];
    for (int k = 0; k < 4; k++) {
        vec_8 sum = eight_of(src_1 + 8 * k, is_signed_1) * run->scales[1] + run->beta;
        sum = eight_of(src_0 + 8 * k, is_signed_0) * run->scales[0] + sum;
        if (run->is_large) sum = min_8(255.0f - (vec_8){0}, sum);
        found[k] = _mm256_cvtps_epi32((__m256)sum);
    }
    __m256i low = _mm256_packs_epi32(found[0], found[1]), high = _mm256_packs_epi32(found[2], found[3]);
    __m256i least = _mm256_set1_epi8((char)run->least), most = _mm256_set1_epi8((char)run->most), bytes;
    if (run->problem->dst_is_signed)
        bytes = _mm256_min_epi8(most, _mm256_max_epi8(least, _mm256_packs_epi16(low, high)));
    else
        bytes = _mm256_min_epu8(most, _mm256_max_epu8(least, _mm256_packus_epi16(low, high)));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)dst, bytes);
}

/* Elements from i to last; what is left of them is brought to a whole vector. */
INLINE TARGET_8 void add(const bl_byte_sums_run_t *given, int64_t i, int64_t last, const int is_signed_0,
    const int is_signed_1) {
    const bl_byte_sums_run_t run = *given;
    for (; i + 32 <= last; i += 32)
        add_32(&run, run.src[0] + i, run.src[1] + i, run.dst + i, is_signed_0, is_signed_1);
    uint8_t rest[2][32] = {{0}};
    size_t n = (size_t)(last - i);
    for (int k = 0; k < 2; k++) memcpy(rest[k], run.src[k] + i, n);
    add_32(&run, rest[0], rest[1], rest[0], is_signed_0, is_signed_1);
    memcpy(run.dst + i, rest[0], n);
}

TARGET_8 static void add_share(void *given) {
    const bl_byte_sums_run_t *run = given;
    const int *is_signed = run->problem->is_signed;
    int64_t n = run->problem->n;
    bl_range_t lines = bl_share((n + BL_LINE - 1) / BL_LINE);
    int64_t first = lines.first * BL_LINE, last = lines.last * BL_LINE < n ? lines.last * BL_LINE : n;
    is_signed[0] ? is_signed[1] ? add(run, first, last, 1, 1) : add(run, first, last, 1, 0)
                 : is_signed[1] ? add(run, first, last, 0, 1) : add(run, first, last, 0, 0);
}

static int add_all(const bl_byte_sums_t *p, void *const *data) {
    bl_byte_sums_run_t run = {.problem = p, .dst = data[BL_SUMS_DST], .beta = p->beta};
    float size = 0;
    for (int k = 0; k < 2; k++) {
        const float *scale = data[BL_SUMS_SCALE_0 + k];
        run.src[k] = data[BL_SUMS_SRC_0 + k];
        run.scales[k] = p->alpha * (scale ? *scale : 1);
        size += 255 * (run.scales[k] < 0 ? -run.scales[k] : run.scales[k]);
    }
    size += p->beta < 0 ? -p->beta : p->beta;
    run.is_large = !(size < (float)(1 << 30));
    run.least = p->dst_is_signed ? INT8_MIN : 0, run.most = run.least + 255;
    if (p->has_relu) { /* results are beta and above, or below it where alpha is negative */
        float low = (float)run.least, high = (float)run.most;
        int bound = _mm_cvtss_si32(_mm_set_ss(p->beta < low ? low : p->beta > high ? high : p->beta));
        if (p->alpha >= 0) run.least = bound;
        if (p->alpha <= 0) run.most = bound;
    }
    bl_parallel(p->n < BL_WORTH_SHARING ? 1 : p->n_threads, add_share, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_byte_sums, BL_SUMS_ARGS, add_all)
