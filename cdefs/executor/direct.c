#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "direct.h"
#include "regions.h"

enum {
    BL_LINE = 64,           /* bytes of a line of the caches */
    BL_WAY = 4096,          /* bytes from one place of the nearest cache to where it is used again */
    BL_MOST_SOURCES = 8192, /* of a pixel */
};

/* Where a pixel's sources and results begin, in elements; row and column of the first tap of its window, in the source. */
typedef struct {
    int64_t src, dst, row, column;
} bl_pixel_t;

typedef struct {
    const bl_direct_t *problem;
    const void *src, *weights;
    const void *bias, *addend;
    void *dst;
    char *own;          /* of each thread, own_nbytes */
    int64_t apart;      /* from the sources of a pixel to those of the next, in elements, if they lie side by side */
    int is_copied, are_even, is_bounded; /* the latter: whether the tail has bounds and nothing else */
} bl_direct_run_t;

/* What is added to the results of a panel: products of `n` sources from `from` on; and the weights that are next, if any. */
typedef struct {
    int64_t panel, from, n;
    const char *ahead;
    int64_t ahead_nbytes;
} bl_direct_step_t;

static int64_t itemsize(const bl_direct_t *p) { return p->is_bf16 ? 2 : 4; }

/* Whether pixels have no gaps between rows and images. */
static int is_dense(const bl_place_t *place, int64_t n_images, int64_t height, int64_t width) {
    return place->row == width * place->pixel && (n_images == 1 || place->image == height * place->row);
}

/* Whether a result sees one pixel, which is there, and the next result lies side by side. */
static int sees_pixels(const bl_direct_t *p) {
    int are_there = p->pad_top <= 0 && p->pad_left <= 0 && (p->dst_height - 1) * p->strides[0] < p->height &&
        (p->dst_width - 1) * p->strides[1] < p->width;
    return p->kernel[0] == 1 && p->kernel[1] == 1 && are_there && is_dense(&p->dst, p->n_images, p->dst_height, p->dst_width);
}

/* Whether these pixels' sources are copied first: those that do not lie side by side, and those at distances for which all
   would compete for the same few places of the nearest cache. */
static int is_copied(const bl_direct_t *p) {
    int is_same = p->height == p->dst_height && p->width == p->dst_width && p->strides[0] == 1 && p->strides[1] == 1;
    int is_whole = is_same && is_dense(&p->src, p->n_images, p->height, p->width);
    return sees_pixels(p) && (!is_whole || p->src.pixel * itemsize(p) % BL_WAY == 0);
}

/* From one copied pixel to the next, in elements. */
static int64_t copied_apart(const bl_direct_t *p) {
    int64_t in_line = BL_LINE / itemsize(p), n = (p->sources_at_once + in_line - 1) / in_line * in_line;
    return n * itemsize(p) % BL_WAY ? n : n + in_line;
}

/* Bytes of each thread: sources that are copied, or where pixels are. */
static int64_t own_nbytes(const bl_direct_t *p) {
    return p->pixels_at_once * (is_copied(p) ? copied_apart(p) * itemsize(p) : (int64_t)sizeof(bl_pixel_t));
}

int64_t bl_direct_scratchpad(const bl_direct_t *problem) { return problem->n_threads * own_nbytes(problem); }

#if defined(__x86_64__)
#include "vectors.h"

static const uint32_t zeros[BL_MOST_SOURCES]; /* the sources of a pixel that is not there */

static int is_bounded(const bl_tail_t *t) {
    return t->slope == 1 && t->gate == BL_NO_GATE && t->linear_alpha == 1 && t->linear_beta == 0;
}

static void locate(const bl_direct_t *p, int64_t first, int64_t n, bl_pixel_t *pixels) {
    int64_t column = first % p->dst_width, row = first / p->dst_width % p->dst_height;
    int64_t image = first / p->dst_width / p->dst_height;
    for (int64_t i = 0; i < n; i++) {
        int64_t top = row * p->strides[0] - p->pad_top, left = column * p->strides[1] - p->pad_left;
        pixels[i] = (bl_pixel_t){image * p->src.image + top * p->src.row + left * p->src.pixel,
            image * p->dst.image + row * p->dst.row + column * p->dst.pixel, top, left};
        if (++column < p->dst_width) continue;
        column = 0;
        if (++row < p->dst_height) continue;
        row = 0;
        image++;
    }
}

#define LANES 8
#define ROWS 6
#define PER_PRODUCT 1
#define TARGET TARGET_8
#define OWN(name) name##_8
typedef float element_8;
typedef vec_8 factor_8;
#define spread_8(from) ((vec_8)_mm256_broadcast_ss(from))
#define weights_8(from) (*(const vec_8 *)(from))
#define add_8(sum, a, b) ((sum) + (a) * (b))
#define read_8(from, n, half) first_of_8((from) + 8 * (half), (n) - 8 * (half))
INLINE TARGET_8 void write_8(float *to, const vec_8 *sums, int64_t n) {
    _mm256_maskstore_ps(to, mask_8(n), (__m256)sums[0]);
    if (n > 8) _mm256_maskstore_ps(to + 8, mask_8(n - 8), (__m256)sums[1]);
}
#include "direct_kernel.h"

/* The first n of 32 bits. */
INLINE __mmask32 mask_32(int64_t n) { return n >= 32 ? ~0u : (1u << n) - 1; }

#define first_of_16(from, n) ((vec_16)_mm512_maskz_loadu_ps((__mmask16)mask_32((n) < 0 ? 0 : (n)), from))

#define LANES 16
#define ROWS 14
#define PER_PRODUCT 1
#define TARGET TARGET_16
#define OWN(name) name##_16
typedef float element_16;
typedef vec_16 factor_16;
#define spread_16(from) (*(from) - (vec_16){0})
#define weights_16(from) (*(const vec_16 *)(from))
#define add_16(sum, a, b) ((sum) + (a) * (b))
#define read_16(from, n, half) first_of_16((from) + 16 * (half), (n) - 16 * (half))
INLINE TARGET_16 void write_16(float *to, const vec_16 *sums, int64_t n) {
    _mm512_mask_storeu_ps(to, (__mmask16)mask_32(n), (__m512)sums[0]);
    _mm512_mask_storeu_ps(to + 16, (__mmask16)mask_32(n < 16 ? 0 : n - 16), (__m512)sums[1]);
}
#include "direct_kernel.h"

#if __GNUC__ >= 10 || defined(__clang__)
typedef int32_t factor_bf16 __attribute__((vector_size(64), aligned(2), may_alias));

#define LANES 16
#define ROWS 14
#define PER_PRODUCT 2
#define TARGET TARGET_BF16
#define OWN(name) name##_bf16
typedef uint16_t element_bf16;
#define spread_bf16(from) (*(const bl_pair_t *)(from) - (factor_bf16){0})
#define weights_bf16(from) (*(const factor_bf16 *)(from))
#define add_bf16(sum, a, b) ((vec_16)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(a), (__m512bh)(b)))
#define logistic_bf16 rough_logistic
INLINE TARGET_BF16 vec_16 read_bf16(const uint16_t *from, int64_t n, int half) {
    __mmask16 there = (__mmask16)(mask_32(n) >> (16 * half));
    return (vec_16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from + 16 * half)), 16);
}
INLINE TARGET_BF16 void write_bf16(uint16_t *to, const vec_16 *sums, int64_t n) {
    _mm512_mask_storeu_epi16(to, mask_32(n), (__m512i)_mm512_cvtne2ps_pbh((__m512)sums[1], (__m512)sums[0]));
}
#include "direct_kernel.h"
#else
#define compute_panel_bf16 NULL
#endif

/* Sources from `from` on of `n` pixels. */
static void copy(const bl_direct_t *p, const bl_direct_run_t *run, int64_t first, int64_t n, int64_t from, int64_t n_sources,
    char *to) {
    int64_t size = itemsize(p);
    bl_pixel_t pixel;
    for (int64_t i = 0; i < n; i++, to += run->apart * size) {
        locate(p, first + i, 1, &pixel);
        memcpy(to, (const char *)run->src + (pixel.src + from) * size, (size_t)(n_sources * size));
    }
}

/* Each thread computes panels of one part of the pixels after the other, some sources of which stay near meanwhile. */
static void work(void *given) {
    const bl_direct_run_t *run = given;
    const bl_direct_t *p = run->problem;
    void (*compute)(const bl_direct_t *, const bl_direct_run_t *, const bl_pixel_t *, int64_t, int64_t, const void *,
        const bl_direct_step_t *) = p->is_bf16 ? compute_panel_bf16 : p->lanes == 16 ? compute_panel_16 : compute_panel_8;
    int64_t n = p->n_images * p->dst_height * p->dst_width, n_parts = (n + p->pixels_at_once - 1) / p->pixels_at_once;
    int64_t n_panels = (p->n_dst + 2 * p->lanes - 1) / (2 * p->lanes), size = itemsize(p);
    int64_t n_taps = p->kernel[0] * p->kernel[1], nbytes = n_taps * p->sources_at_once * 2 * p->lanes * size;
    char *own = run->own + omp_get_thread_num() * own_nbytes(p);
    bl_range_t share = bl_share(n_parts * n_panels);
    for (int64_t at = share.first, end; at < share.last; at = end) {
        int64_t part = at / n_panels, first = n * part / n_parts, count = n * (part + 1) / n_parts - first;
        end = (part + 1) * n_panels < share.last ? (part + 1) * n_panels : share.last;
        if (!run->are_even) locate(p, first, count, (bl_pixel_t *)own);
        for (int64_t from = 0; from < p->n_src; from += p->sources_at_once) {
            const char *src = run->is_copied ? own : (const char *)run->src + (first * run->apart + from) * size;
            int64_t left = p->n_src - from, n_sources = left < p->sources_at_once ? left : p->sources_at_once;
            if (run->is_copied) copy(p, run, first, count, from, n_sources, own);
            for (int64_t i = at; i < end; i++) {
                int64_t is_last = i + 1 == end, later = is_last ? from + p->sources_at_once : from;
                if (later >= p->n_src) later = 0; /* of the next part */
                int64_t next = is_last && later ? at : i + 1;
                bl_direct_step_t step = {i % n_panels, from, n_sources,
                    (const char *)run->weights + (next % n_panels * p->weights_panel + later * 2 * p->lanes) * size,
                    next < share.last ? nbytes : 0};
                compute(p, run, (const bl_pixel_t *)own, first, count, src, &step);
            }
        }
    }
}

static int run_all(const bl_direct_t *p, void *const *data) {
    bl_direct_run_t run = {.problem = p, .src = data[BL_DIRECT_SRC], .weights = data[BL_DIRECT_WEIGHTS],
        .bias = data[BL_DIRECT_BIAS], .addend = data[BL_DIRECT_ADDEND], .dst = data[BL_DIRECT_DST],
        .own = data[BL_DIRECT_SCRATCHPAD], .apart = is_copied(p) ? copied_apart(p) : p->src.pixel, .is_copied = is_copied(p),
        .are_even = sees_pixels(p), .is_bounded = is_bounded(&p->tail)};
    bl_parallel(p->n_threads, work, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_direct, BL_DIRECT_ARGS, run_all)
