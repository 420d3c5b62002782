#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "dynamic_quantization.h"
#include "regions.h"

enum { BL_WORTH_SHARING = 1 << 14, BL_GROUP = 32 }; /* elements that threads are worth for, and that are computed at once */

/* What a thread finds among its elements; a line of the caches. */
typedef struct {
    float least, most;
    int has_nan;
    char padding[52];
} bl_bounds_t;

int64_t bl_dynamic_quantization_scratchpad(const bl_dynamic_quantization_t *problem) {
    return problem->n_threads * (int64_t)sizeof(bl_bounds_t);
}

float bl_dynamic_scale(float least, float most, int has_nan, int *zero) {
    float scale = has_nan ? NAN : (most == least ? 1 : most - least) / 255;
    *zero = (int)rintf(fmaxf(0, fminf(255, -least / scale)));
    return scale;
}

#if defined(__x86_64__)
#include "vectors.h"

typedef struct {
    const bl_dynamic_quantization_t *problem;
    const float *src;
    uint8_t *dst;
    bl_bounds_t *bounds;
    float scale;
    int zero;
} bl_dynamic_run_t;

static bl_range_t elements(int64_t n) {
    bl_range_t groups = bl_share((n + BL_GROUP - 1) / BL_GROUP);
    return (bl_range_t){groups.first * BL_GROUP, groups.last * BL_GROUP < n ? groups.last * BL_GROUP : n};
}

typedef struct {
    vec_8 least, most;
    __m256 is_nan;
} bl_found_t;

INLINE TARGET_8 void look_at(const float *src, bl_found_t *found) {
    vec_8 x = (vec_8)_mm256_loadu_ps(src);
    found->least = min_8(x, found->least), found->most = max_8(x, found->most);
    found->is_nan = _mm256_or_ps(found->is_nan, _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q));
}

TARGET_8 static void find_bounds(void *given) {
    const bl_dynamic_run_t *run = given;
    bl_range_t range = elements(run->problem->n);
    bl_found_t all[4];
    float rest[BL_GROUP] = {0};
    int64_t i = range.first;
    memset(all, 0, sizeof all);
    for (; i + BL_GROUP <= range.last; i += BL_GROUP)
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) look_at(run->src + i + 8 * k, &all[k]);
    memcpy(rest, run->src + i, (size_t)(range.last - i) * sizeof(float));
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) look_at(rest + 8 * k, &all[k]);
    bl_bounds_t *found = run->bounds + omp_get_thread_num();
    for (int k = 0; k < 4; k++) {
        found->has_nan |= _mm256_movemask_ps(all[k].is_nan);
        for (int lane = 0; lane < 8; lane++) {
            if (all[k].least[lane] < found->least) found->least = all[k].least[lane];
            if (all[k].most[lane] > found->most) found->most = all[k].most[lane];
        }
    }
}

/* Divided as ONNX divides, rounded, then shifted: so each byte is the same. */
INLINE TARGET_8 void quantize_32(const bl_dynamic_run_t *run, const float *src, uint8_t *dst) {
    __m256i found[4], shift = _mm256_set1_epi16((int16_t)run->zero);
    for (int k = 0; k < 4; k++) found[k] = _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(src + 8 * k), _mm256_set1_ps(run->scale)));
    __m256i low = _mm256_adds_epi16(_mm256_packs_epi32(found[0], found[1]), shift);
    __m256i high = _mm256_adds_epi16(_mm256_packs_epi32(found[2], found[3]), shift), bytes = _mm256_packus_epi16(low, high);
    _mm256_storeu_si256((__m256i *)dst, _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

TARGET_8 static void quantize(void *given) {
    const bl_dynamic_run_t *run = given;
    bl_range_t range = elements(run->problem->n);
    int64_t i = range.first;
    for (; i + BL_GROUP <= range.last; i += BL_GROUP) quantize_32(run, run->src + i, run->dst + i);
    size_t left = (size_t)(range.last - i);
    if (!left) return;
    float rest[BL_GROUP] = {0};
    uint8_t bytes[BL_GROUP];
    memcpy(rest, run->src + i, left * sizeof(float));
    quantize_32(run, rest, bytes);
    memcpy(run->dst + i, bytes, left);
}

static int quantize_all(const bl_dynamic_quantization_t *p, void *const *data) {
    bl_dynamic_run_t run = {.problem = p, .src = data[BL_DYNAMIC_SRC], .dst = data[BL_DYNAMIC_DST], .bounds = data[BL_DYNAMIC_SCRATCHPAD]};
    int n_threads = p->n >= BL_WORTH_SHARING ? p->n_threads : 1, has_nan = 0;
    float least = 0, most = 0;
    memset(run.bounds, 0, (size_t)n_threads * sizeof(bl_bounds_t)); /* there may be fewer threads than asked for */
    bl_parallel(n_threads, find_bounds, &run);
    for (int k = 0; k < n_threads; k++) {
        least = fminf(least, run.bounds[k].least), most = fmaxf(most, run.bounds[k].most);
        has_nan |= run.bounds[k].has_nan;
    }
    run.scale = bl_dynamic_scale(least, most, has_nan, &run.zero);
    bl_parallel(n_threads, quantize, &run);
    if (data[BL_DYNAMIC_SCALE]) *(float *)data[BL_DYNAMIC_SCALE] = run.scale;
    if (data[BL_DYNAMIC_ZERO_POINT]) *(uint8_t *)data[BL_DYNAMIC_ZERO_POINT] = (uint8_t)run.zero;
    return 0;
}
#endif

BL_X86_ENTRY(bl_dynamic_quantization, BL_DYNAMIC_ARGS, quantize_all)
