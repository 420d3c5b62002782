#include <stddef.h>
#include <stdint.h>

#include "winograd.h"

#include "arguments.h"
#include "interleaving.h"
#include "regions.h"

enum { BL_PIXELS_AT_ONCE = 16, BL_PIXELS_OF_TASK = 4096 };

typedef struct {
    const bl_interleaving_t *problem;
    const uint8_t *src;
    uint8_t *dst;
} bl_interleaving_run_t;

static void interleave_each(const uint8_t *planes, int64_t plane, uint8_t *dst, int64_t first, int64_t last) {
    for (int64_t pixel = first; pixel < last; pixel++)
        for (int channel = 0; channel < 3; channel++) dst[3 * pixel + channel] = planes[channel * plane + pixel];
}

#if defined(__x86_64__)
#include <immintrin.h>

/* Of 48 bytes side by side the i-th is the i / 3-th of plane i % 3: where it is taken from, or -1. */
#define PLACE(plane, i) ((i) % 3 == (plane) ? (i) / 3 : -1)
#define PLACES(plane, i) \
    _mm_setr_epi8(PLACE(plane, i), PLACE(plane, i + 1), PLACE(plane, i + 2), PLACE(plane, i + 3), PLACE(plane, i + 4), \
        PLACE(plane, i + 5), PLACE(plane, i + 6), PLACE(plane, i + 7), PLACE(plane, i + 8), PLACE(plane, i + 9), \
        PLACE(plane, i + 10), PLACE(plane, i + 11), PLACE(plane, i + 12), PLACE(plane, i + 13), PLACE(plane, i + 14), \
        PLACE(plane, i + 15))
#define BYTES(i)                                                                                                    \
    _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(red, PLACES(0, i)), _mm_shuffle_epi8(green, PLACES(1, i))), \
        _mm_shuffle_epi8(blue, PLACES(2, i)))

__attribute__((target("sse4.1"))) static void interleave(
    const uint8_t *planes, int64_t plane, uint8_t *dst, int64_t first, int64_t last) {
    for (; first + BL_PIXELS_AT_ONCE <= last; first += BL_PIXELS_AT_ONCE) {
        __m128i red = _mm_loadu_si128((const __m128i *)(planes + first));
        __m128i green = _mm_loadu_si128((const __m128i *)(planes + plane + first));
        __m128i blue = _mm_loadu_si128((const __m128i *)(planes + 2 * plane + first));
        _mm_storeu_si128((__m128i *)(dst + 3 * first), BYTES(0));
        _mm_storeu_si128((__m128i *)(dst + 3 * first + 16), BYTES(16));
        _mm_storeu_si128((__m128i *)(dst + 3 * first + 32), BYTES(32));
    }
    interleave_each(planes, plane, dst, first, last);
}
#else
#define interleave interleave_each
#endif

static void work(void *given) {
    const bl_interleaving_run_t *run = given;
    int64_t n_pixels = run->problem->n_pixels, n_parts = (n_pixels + BL_PIXELS_OF_TASK - 1) / BL_PIXELS_OF_TASK;
    bl_range_t tasks = bl_share(run->problem->n_images * n_parts);
    for (int64_t task = tasks.first; task < tasks.last; task++) {
        int64_t image = 3 * n_pixels * (task / n_parts), part = task % n_parts;
        interleave(run->src + image, n_pixels, run->dst + image, n_pixels * part / n_parts, n_pixels * (part + 1) / n_parts);
    }
}

static int run_all(const bl_interleaving_t *p, void *const *data) {
    bl_interleaving_run_t run = {p, data[BL_PLANES_SRC], data[BL_PLANES_DST]};
    bl_parallel(p->n_images * p->n_pixels > BL_PIXELS_OF_TASK ? p->n_threads : 1, work, &run);
    return 0;
}

BL_ENTRY(bl_interleaving, BL_PLANES_ARGS, run_all)
