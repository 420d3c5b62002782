/* Results of direct convolutions. Included once for each instruction set and data type, with LANES floats in a vector; ROWS, the
   pixels whose results a loop holds in registers; PER_PRODUCT, the sources that a product adds up; TARGET and OWN(name) defined,
   and as OWN(...): the types element and factor, a vector of weights; spread(from): sources in all lanes; weights(from);
   add(sum, a, b); read(from, n, half): half a panel, of whose elements n are there; write(to, sums, n); logistic(y):
   1 / (1 + 2^y). */

#define vec WIDE(vec)
#define element_t OWN(element)
#define factor_t OWN(factor)
#define PANEL (2 * LANES)
#define INLINE_HERE static inline __attribute__((always_inline)) TARGET

#include "tail_kernel.h"

/* Of the results of a pixel; what most tails are is computed where these are held in registers. */
TARGET __attribute__((noinline)) static void OWN(finish_pixel)(const bl_tail_t *t, vec *sums) { OWN(finish)(t, sums, 2); }

/* Adds to the results of `rows` pixels the products of a tap's sources, those of the first `apart` from the next if they lie so
   evenly. Lines of the next panel are fetched two at a time. */
INLINE_HERE const char *OWN(add_tap)(vec (*sums)[2], const element_t *const *pixels, int64_t apart, const element_t *weights,
    int64_t n, const char *ahead, const char *end, const int rows, const int are_even) {
    for (int64_t c = 0; c < n; c += PER_PRODUCT, weights += PER_PRODUCT * PANEL) {
        factor_t left = OWN(weights)(weights), right = OWN(weights)(weights + PER_PRODUCT * LANES);
        if (ahead < end) {
            __builtin_prefetch(ahead);
            __builtin_prefetch(ahead + BL_LINE);
            ahead += 2 * BL_LINE;
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            factor_t x = OWN(spread)(are_even ? pixels[0] + r * apart + c : pixels[r] + c);
            sums[r][0] = OWN(add)(sums[r][0], x, left);
            sums[r][1] = OWN(add)(sums[r][1], x, right);
        }
    }
    return ahead;
}

/* A panel of results of pixels from the first on, which lie side by side as their sources do, or of those that were located. */
INLINE_HERE void OWN(compute_strip)(const bl_direct_t *p, const bl_direct_run_t *run, const bl_pixel_t *pixels, int64_t first,
    const element_t *src, const bl_direct_step_t *step, const char *ahead, const char *end, const int rows, const int are_even) {
    const element_t *weights = (const element_t *)run->weights + step->panel * p->weights_panel + step->from * PANEL;
    int64_t channel = step->panel * PANEL, n = p->n_dst - channel < PANEL ? p->n_dst - channel : PANEL;
    const bl_tail_t *t = &p->tail;
    vec sums[ROWS][2];
#define DST(r) (channel + (are_even ? (first + (r)) * p->dst.pixel : pixels[r].dst))
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vec start = {0};
        if (run->bias && p->has_bf16_bias)
            start = OWN(read)((const element_t *)run->bias + channel, n, half);
        else if (run->bias)
            start = WIDE(first_of)((const float *)run->bias + channel + half * LANES, n - half * LANES);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
            sums[r][half] = step->from ? OWN(read)((const element_t *)run->dst + DST(r), n, half) : start;
    }
    for (int64_t row = 0; row < p->kernel[0]; row++)
        for (int64_t column = 0; column < p->kernel[1]; column++, weights += step->n * PANEL) {
            const element_t *taps[ROWS] = {src};
            int64_t down = row * p->steps[0], right = column * p->steps[1];
            if (!are_even)
                for (int r = 0; r < rows; r++) {
                    uint64_t y = (uint64_t)(pixels[r].row + down), x = (uint64_t)(pixels[r].column + right);
                    int is_there = y < (uint64_t)p->height && x < (uint64_t)p->width; /* and no less than 0 */
                    int64_t at = pixels[r].src + down * p->src.row + right * p->src.pixel;
                    taps[r] = is_there ? src + at : (const element_t *)zeros;
                }
            ahead = OWN(add_tap)(sums, taps, run->apart, weights, step->n, ahead, end, rows, are_even);
        }
    if (step->from + step->n < p->n_src) {
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) OWN(write)((element_t *)run->dst + DST(r), sums[r], n);
        return;
    }
    if (run->addend)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            sums[r][0] += OWN(read)((const element_t *)run->addend + DST(r), n, 0);
            sums[r][1] += OWN(read)((const element_t *)run->addend + DST(r), n, 1);
        }
    if (run->is_bounded) {
        vec low = t->low - (vec){0}, high = t->high - (vec){0};
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            sums[r][0] = WIDE(min)(high, WIDE(max)(low, sums[r][0]));
            sums[r][1] = WIDE(min)(high, WIDE(max)(low, sums[r][1]));
            OWN(write)((element_t *)run->dst + DST(r), sums[r], n);
        }
        return;
    }
    vec held[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) held[r][0] = sums[r][0], held[r][1] = sums[r][1];
    for (int r = 0; r < rows; r++) {
        OWN(finish_pixel)(t, held[r]);
        OWN(write)((element_t *)run->dst + DST(r), held[r], n);
    }
#undef DST
}

/* The same of `n` pixels, in strips as even as can be, each of which fetches its share of the weights that are next. */
TARGET static void OWN(compute_panel)(const bl_direct_t *p, const bl_direct_run_t *run, const bl_pixel_t *pixels, int64_t first,
    int64_t n, const void *src, const bl_direct_step_t *step) {
    int64_t n_strips = (n + ROWS - 1) / ROWS, n_lines = (step->ahead_nbytes + BL_LINE - 1) / BL_LINE;
    for (int64_t strip = 0; strip < n_strips; strip++) {
        int64_t begin = n * strip / n_strips, rows = n * (strip + 1) / n_strips - begin;
        const char *from = step->ahead + n_lines * strip / n_strips * BL_LINE;
        const char *to = step->ahead + n_lines * (strip + 1) / n_strips * BL_LINE;
        const element_t *even = (const element_t *)src + begin * run->apart;
#define CASE(N)                                                                                         \
    case N:                                                                                             \
        if (run->are_even)                                                                               \
            OWN(compute_strip)(p, run, NULL, first + begin, even, step, from, to, N, 1);                          \
        else                                                                                            \
            OWN(compute_strip)(p, run, pixels + begin, 0, run->src, step, from, to, N, 0);                          \
        break;
        switch (rows) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if ROWS > 6
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#endif
        }
#undef CASE
    }
}

#undef vec
#undef element_t
#undef factor_t
#undef PANEL
#undef INLINE_HERE
#undef LANES
#undef ROWS
#undef PER_PRODUCT
#undef TARGET
#undef OWN
