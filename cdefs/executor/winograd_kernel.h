/* One thread's part of a Winograd convolution, F(TILE x TILE, 3x3) for TILE 4 or 2, for vectors of LANES floats. Included once
   for each instruction set and data type, with these two, ROWS (tiles whose products a loop holds in registers), SRC_AT_ONCE,
   TARGET and OWN(name) defined, and as OWN(...): the type element, of sources, weights and results; logistic(y): 1 / (1 + 2^y).
   Sources and weights are transformed in vectors of the type part, of PART elements: read_src(b, from, n) and keep(to, part).
   With HAS_PAIRS they are then words of 16 bits, the weights of two sources side by side: keep_pairs(to, part, part),
   add_pair(sum, pairs, pairs). Of floats, bf16 and their sums there are read(from) and write(to, vec); of bytes, with HAS_BYTES,
   winograd_bytes.h has what differs. */

#define vec WIDE(vec)
#define part_t OWN(part)
#define element_t OWN(element)
#define PANEL (2 * LANES)
#define SIDE (TILE + 2)
#define N_PRODUCTS (SIDE * SIDE)
#define INLINE_HERE static inline __attribute__((always_inline)) TARGET
#if HAS_PAIRS
typedef uint16_t OWN(factor);
typedef int32_t OWN(pairs) __attribute__((vector_size(4 * LANES), aligned(2), may_alias));
#else
typedef float OWN(factor);
#endif
#define factor_t OWN(factor)
#define pairs_t OWN(pairs)

INLINE_HERE vec OWN(load)(const float *from) { return *(const vec *)from; }
INLINE_HERE void OWN(store)(float *to, vec value) { *(vec *)to = value; }

#if TILE == 4
/* A line of six sources: B^T of the paper. */
INLINE_HERE void OWN(transform_src)(const part_t *d, int step, part_t *to, int to_step) {
    part_t even = d[4 * step] - 4 * d[2 * step], odd = d[3 * step] - 4 * d[step];
    part_t outer = d[4 * step] - d[2 * step], inner = 2 * (d[3 * step] - d[step]);
    to[0] = outer + 4 * (d[0] - d[2 * step]);
    to[to_step] = even + odd;
    to[2 * to_step] = even - odd;
    to[3 * to_step] = outer + inner;
    to[4 * to_step] = outer - inner;
    to[5 * to_step] = d[5 * step] - d[3 * step] - 2 * inner;
}

#else
/* The same of a line of four. */
INLINE_HERE void OWN(transform_src)(const part_t *d, int step, part_t *to, int to_step) {
    to[0] = d[0] - d[2 * step];
    to[to_step] = d[step] + d[2 * step];
    to[2 * to_step] = d[2 * step] - d[step];
    to[3 * to_step] = d[step] - d[3 * step];
}
#endif

/* The SIDE x SIDE sources around a tile, PART channels of them or the n that there are, to as many places that are `apart` from
   each other. */
INLINE_HERE void OWN(read_tile)(const bl_winograd_t *p, const bl_buffers_t *b, const element_t *channels, int64_t n,
    bl_tile_t tile, factor_t *to, int64_t apart) {
    _Alignas(64) part_t t[N_PRODUCTS];
    part_t d[SIDE];
    int64_t top = TILE * tile.row - p->pad_top, left = TILE * tile.column - p->pad_left;
    const element_t *corner = channels + top * p->src.row + left * p->src.pixel;
    int is_whole = n >= PART && top >= 0 && left >= 0 && top + SIDE <= p->height && left + SIDE <= p->width;
#if HAS_BYTES
    part_t zero = (int16_t)b->bytes.zero - (part_t){0}, around = zero;
#else
    part_t around = {0};
#endif
    for (int j = 0; j < SIDE; j++, corner += p->src.pixel) {
        if (is_whole)
            for (int i = 0; i < SIDE; i++) d[i] = OWN(read_src)(b, corner + i * p->src.row, PART);
        else
            for (int i = 0; i < SIDE; i++) {
                int is_there = top + i >= 0 && top + i < p->height && left + j >= 0 && left + j < p->width;
                d[i] = is_there ? OWN(read_src)(b, corner + i * p->src.row, n) : around;
            }
        OWN(transform_src)(d, 1, t + j, SIDE);
    }
    for (int i = 0; i < SIDE; i++) {
        OWN(transform_src)(t + SIDE * i, 1, d, 1);
#if HAS_BYTES
        if (i == 1) d[1] -= 36 * zero; /* all others that the zero point adds come to 0 */
#endif
        for (int j = 0; j < SIDE; j++) OWN(keep)(to + (SIDE * i + j) * apart, d[j]);
    }
}

/* to[rows][PANEL] += a[rows][n] b[n][PANEL], or begins with that. Of the panel `ahead`, if there is one, a line of each source
   is fetched. */
INLINE_HERE void OWN(add_rows)(const factor_t *a, int64_t a_row, const factor_t *b, int64_t n, const element_t *ahead,
    float *to, int is_first, const int rows) {
    vec sums[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = (vec){0};
    if (!is_first)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            sums[r][0] = OWN(load)(to + r * PANEL);
            sums[r][1] = OWN(load)(to + r * PANEL + LANES);
        }
#if HAS_PAIRS
    for (int64_t c = 0; c < n; c += 2) {
        pairs_t b0 = *(const pairs_t *)(b + c * PANEL), b1 = *(const pairs_t *)(b + c * PANEL + PANEL);
        if (ahead) {
            __builtin_prefetch(ahead + c * PANEL);
            __builtin_prefetch(ahead + c * PANEL + PANEL);
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            pairs_t x = *(const bl_pair_t *)(a + r * a_row + c) - (pairs_t){0};
            sums[r][0] = OWN(add_pair)(sums[r][0], x, b0);
            sums[r][1] = OWN(add_pair)(sums[r][1], x, b1);
        }
    }
#else
    for (int64_t c = 0; c < n; c++) {
        vec b0 = OWN(load)(b + c * PANEL), b1 = OWN(load)(b + c * PANEL + LANES);
        if (ahead) __builtin_prefetch(ahead + c * PANEL);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vec x = a[r * a_row + c] - (vec){0};
            sums[r][0] += x * b0;
            sums[r][1] += x * b1;
        }
    }
#endif
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        OWN(store)(to + r * PANEL, sums[r][0]);
        OWN(store)(to + r * PANEL + LANES, sums[r][1]);
    }
}

/* The same for any number of rows, in strips as even as can be: a strip of one row is as slow as one of three. */
TARGET static void OWN(add_product)(const factor_t *a, int64_t a_row, const factor_t *b, int64_t n, const element_t *ahead,
    float *to, int is_first, int64_t n_rows) {
    int64_t n_strips = (n_rows + ROWS - 1) / ROWS;
    int64_t least = n_rows / n_strips, n_larger = n_rows % n_strips, first = 0, rows;
    for (int64_t strip = 0; strip < n_strips; strip++, first += rows) {
        rows = least + (strip < n_larger);
#define CASE(N)                                                                            \
    case N:                                                                                \
        OWN(add_rows)(a + first * a_row, a_row, b, n, strip ? NULL : ahead, to + first * PANEL, is_first, N); \
        break;
        switch (rows) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if ROWS > 6
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
        }
#undef CASE
    }
}

#include "tail_kernel.h"

#if HAS_BYTES
#include "winograd_bytes.h"
#else
#if TILE == 4
/* A line of three weights: G of the paper. */
INLINE_HERE void OWN(transform_weights)(const vec *g, int step, vec *to, int to_step) {
    vec sum = g[0] + g[2 * step], wide = g[0] + 4 * g[2 * step], twice = 2 * g[step];
    to[0] = 0.25f * g[0];
    to[to_step] = (-1.0f / 6) * (sum + g[step]);
    to[2 * to_step] = (-1.0f / 6) * (sum - g[step]);
    to[3 * to_step] = (1.0f / 24) * (wide + twice);
    to[4 * to_step] = (1.0f / 24) * (wide - twice);
    to[5 * to_step] = g[2 * step];
}

/* A line of six products to four results: A^T of the paper. */
INLINE_HERE void OWN(transform_dst)(const vec *m, int step, vec *to, int to_step) {
    vec near = m[step] + m[2 * step], near_odd = m[step] - m[2 * step];
    vec far = m[3 * step] + m[4 * step], far_odd = m[3 * step] - m[4 * step];
    to[0] = m[0] + near + far;
    to[to_step] = near_odd + 2 * far_odd;
    to[2 * to_step] = near + 4 * far;
    to[3 * to_step] = near_odd + 8 * far_odd + m[5 * step];
}
#else
INLINE_HERE void OWN(transform_weights)(const vec *g, int step, vec *to, int to_step) {
    vec sum = 0.5f * (g[0] + g[2 * step]), middle = 0.5f * g[step];
    to[0] = g[0];
    to[to_step] = sum + middle;
    to[2 * to_step] = sum - middle;
    to[3 * to_step] = g[2 * step];
}

INLINE_HERE void OWN(transform_dst)(const vec *m, int step, vec *to, int to_step) {
    to[0] = m[0] + m[step] + m[2 * step];
    to[to_step] = m[step] - m[2 * step] - m[3 * step];
}
#endif

/* The weights of one source for LANES results of a panel, with their columns transformed. Where a panel has several groups, a
   source has zeros for the results of others than its own. */
INLINE_HERE void OWN(transform_source)(const bl_winograd_t *p, const element_t *panel, int64_t source, int half, vec *t) {
    vec g[9];
    int64_t group = source / p->group_src;
    const element_t *weights = panel + source % p->group_src * p->weights_src + half;
    for (int q = 0; q < 9; q++) g[q] = OWN(read)(weights + q * p->weights_tap);
    if (p->group_dst < PANEL) {
        float is_own[LANES];
        for (int i = 0; i < LANES; i++) is_own[i] = (half + i) / p->group_dst == group;
        for (int q = 0; q < 9; q++) g[q] *= OWN(load)(is_own);
    }
    for (int j = 0; j < 3; j++) OWN(transform_weights)(g + j, 3, t + j, 3);
}

/* The weights of `n` sources of a panel, to N_PRODUCTS matrices that are `apart` from each other. */
TARGET static int64_t OWN(read_weights)(const bl_winograd_t *p, const element_t *panel, int64_t first, int64_t n, factor_t *to,
    int64_t apart) {
    for (int64_t c = 0; c < n; c += 1 + HAS_PAIRS)
        for (int half = 0; half < PANEL; half += LANES) {
            vec t[3 * SIDE], u[SIDE];
            OWN(transform_source)(p, panel, first + c, half, t);
#if HAS_PAIRS
            vec t2[3 * SIDE] = {0}, u2[SIDE];
            if (c + 1 < n) OWN(transform_source)(p, panel, first + c + 1, half, t2);
#endif
            for (int i = 0; i < SIDE; i++) {
                factor_t *row = to + SIDE * i * apart + c * PANEL + (1 + HAS_PAIRS) * half;
                OWN(transform_weights)(t + 3 * i, 1, u, 1);
#if HAS_PAIRS
                OWN(transform_weights)(t2 + 3 * i, 1, u2, 1);
                for (int j = 0; j < SIDE; j++) OWN(keep_pairs)(row + j * apart, u[j], u2[j]);
#else
                for (int j = 0; j < SIDE; j++) OWN(store)(row + j * apart, u[j]);
#endif
            }
        }
    return 0;
}

typedef vec OWN(sum);

/* A row of a tile's results, `n` pixels of LANES channels, from sums of products and, of bytes, what was gathered before. */
INLINE_HERE void OWN(write_row)(const bl_winograd_t *p, const bl_buffers_t *b, const bl_channels_t *channels, const vec *before,
    vec *row, int64_t at, int64_t n, int64_t n_channels) {
    (void)before, (void)n_channels;
    for (int j = 0; j < TILE; j++) {
        row[j] += OWN(load)(channels->bias);
        if (b->addend && j < n) row[j] += OWN(read)((const element_t *)b->addend + at + j * p->dst.pixel);
    }
    OWN(finish)(&p->tail, row, TILE);
    for (int j = 0; j < TILE && j < n; j++) OWN(write)((element_t *)b->dst + at + j * p->dst.pixel, row[j]);
}
#endif

#define sum_t OWN(sum)

/* Columns of results of a tile, from their products, which are `apart` from each other. */
INLINE_HERE void OWN(transform_products)(const float *products, int64_t apart, sum_t *t) {
    for (int j = 0; j < SIDE; j++) {
        sum_t m[SIDE] = {{0}}; /* for analysers, which take the loop for one that may end sooner */
        for (int i = 0; i < SIDE; i++) m[i] = *(const sum_t *)(products + (SIDE * i + j) * apart);
        OWN(transform_dst)(m, 1, t + j, SIDE);
    }
}

/* LANES results of a tile, of channels from k on, from their products and, of bytes, from what was gathered before. */
INLINE_HERE void OWN(write_tile)(const bl_winograd_t *p, const bl_buffers_t *b, const float *products, int64_t apart,
    const sum_t *before, const bl_channels_t *channels, int64_t k, bl_tile_t tile) {
    _Alignas(64) sum_t t[TILE * SIDE];
    sum_t r[TILE];
    int64_t top = TILE * tile.row, left = TILE * tile.column;
    int64_t corner = channel_at(&p->dst, tile.image, k) + top * p->dst.row + left * p->dst.pixel;
    OWN(transform_products)(products, apart, t);
#pragma GCC unroll 4
    for (int i = 0; i < TILE; i++) {
        if (top + i >= p->dst_height) break;
        OWN(transform_dst)(t + SIDE * i, 1, r, 1);
        OWN(write_row)(p, b, channels, before ? before + TILE * i : NULL, r, corner + i * p->dst.row, p->dst_width - left,
            p->n_dst - k);
    }
}

#if HAS_BYTES
/* Adds what all products come to to results gathered before, or to none. */
TARGET static sum_t *OWN(gather)(const float *products, int64_t apart, int64_t rows, sum_t *before, void *space) {
    sum_t *results = before ? before : memset(space, 0, (size_t)(TILE * TILE * rows * PANEL) * sizeof(int32_t));
    for (int64_t n = 0; n < 2 * rows; n++) {
        _Alignas(64) sum_t t[TILE * SIDE];
        sum_t r[TILE];
        OWN(transform_products)(products + n * LANES, apart, t);
        for (int i = 0; i < TILE; i++) {
            OWN(transform_dst)(t + SIDE * i, 1, r, 1);
            for (int j = 0; j < TILE; j++) results[TILE * (TILE * n + i) + j] += OWN(exact)(r[j]);
        }
    }
    return results;
}
#endif

/* Sources whose weights are transformed at once, in even rounds of pairs or, with AVX2, of whole vectors; all that come so. */
INLINE_HERE int64_t OWN(at_once)(const bl_winograd_t *p) {
    if (p->are_transformed) return p->panel_src;
    int64_t n_rounds = (p->panel_src + SRC_AT_ONCE - 1) / SRC_AT_ONCE, least = LANES == 8 ? PART : 1 + HAS_PAIRS;
    return ((p->panel_src + n_rounds - 1) / n_rounds + least - 1) / least * least;
}

/* Transformed sources of a tile that lie side by side: with AVX2 those of a round, which are then read one after the other. */
INLINE_HERE int64_t OWN(row_length)(const bl_winograd_t *p) {
    return LANES == 8 && p->panel_src == p->n_src ? OWN(at_once)(p) : (p->n_src + PART - 1) / PART * PART;
}

/* Transforms sources of `count` tiles from `first` on: vectors `from` to `to` of all their vectors, channels innermost. */
TARGET static void OWN(read_sources)(const bl_winograd_t *p, const bl_buffers_t *b, int64_t first, int64_t count,
    int64_t from, int64_t to, factor_t *sources) {
    int64_t n_vectors = (p->n_src + PART - 1) / PART, all = n_vectors * PART, length = OWN(row_length)(p);
    for (int64_t t = from / n_vectors; t * n_vectors < to; t++) {
        bl_tile_t tile = tile_at(p, TILE, first + t);
        int64_t end = to - t * n_vectors < n_vectors ? to - t * n_vectors : n_vectors;
        for (int64_t i = from > t * n_vectors ? from - t * n_vectors : 0; i < end; i++) {
            const element_t *channels = (const element_t *)b->src + channel_at(&p->src, tile.image, i * PART);
            bl_row_t row = row_at(i * PART, length, all, count, t);
            OWN(read_tile)(p, b, channels, p->n_src - i * PART, tile, sources + row.first, apart(all * count));
        }
    }
}

/* What is fetched while weights are multiplied for product q: those of the next one, behind whose last are the next panel's
   first; or, of those that are transformed next, a line of each source. */
INLINE_HERE const element_t *OWN(ahead)(const bl_winograd_t *p, const factor_t *weights, const element_t *next, int q) {
    (void)weights, (void)next, (void)q;
#if HAS_PAIRS
    return !HAS_BYTES && p->are_transformed ? (const element_t *)weights + p->weights_tap : NULL;
#else
    enum { LINES = PANEL * sizeof(element_t) / 64 }; /* of a source */
    int is_there = q < 9 * LINES && p->weights_src == PANEL; /* which they are not in groups */
    return is_there ? next + q / LINES * p->weights_tap + q % LINES * (PANEL / LINES) : NULL;
#endif
}

/* A panel of results for the tiles `from` to `from + rows` of those that read_sources had. */
TARGET static void OWN(compute_panel)(const bl_winograd_t *p, const bl_buffers_t *b, int64_t first, int64_t count,
    const factor_t *sources, int64_t panel, int64_t from, int64_t rows, float *products) {
    int64_t all = (p->n_src + PART - 1) / PART * PART, length = OWN(row_length)(p);
    factor_t *weights = (factor_t *)(products + N_PRODUCTS * apart(p->tiles_of_task * PANEL));
    const element_t *given = (const element_t *)b->weights + panel * p->weights_panel;
    int is_first = 1;
    sum_t *gathered = NULL;
    int64_t magnitude = 0, most = OWN(at_once)(p), tap = p->are_transformed ? p->weights_tap : apart(SRC_AT_ONCE * PANEL);
    const factor_t *taps = p->are_transformed ? (const factor_t *)given : weights;
    for (int64_t c = 0; c < p->panel_src; c += most) {
        int64_t n = p->panel_src - c < most ? p->panel_src - c : most;
        int64_t more = p->are_transformed ? 0 : OWN(read_weights)(p, given, c, n, weights, tap);
        magnitude += more;
#if HAS_BYTES
        if (magnitude > BL_MOST_MAGNITUDE) {
            gathered = OWN(gather)(products, apart(rows * PANEL), rows, gathered, weights + N_PRODUCTS * apart(SRC_AT_ONCE * PANEL));
            magnitude = more;
            is_first = 1;
        }
#endif
        bl_row_t row = row_at(panel * PANEL / p->group_dst * p->group_src + c, length, all, count, from);
        const element_t *next = c + n < p->panel_src ? given + (c + n) * PANEL : given + p->weights_panel;
        for (int q = 0; q < N_PRODUCTS; q++)
            OWN(add_product)(sources + row.first + q * apart(all * count), row.length, taps + q * tap, n,
                OWN(ahead)(p, taps + q * tap, next, q), products + q * apart(rows * PANEL), is_first, rows);
        is_first = 0;
    }
    bl_channels_t channels[2] = {channels_of(p, b, panel * PANEL), channels_of(p, b, panel * PANEL + LANES)};
    for (int64_t t = 0; t < rows; t++) {
        bl_tile_t tile = tile_at(p, TILE, first + from + t);
        for (int half = 0; half < 2 && panel * PANEL + half * LANES < p->n_dst; half++)
            OWN(write_tile)(p, b, products + t * PANEL + half * LANES, apart(rows * PANEL),
                gathered ? gathered + TILE * TILE * (2 * t + half) : NULL, channels + half, panel * PANEL + half * LANES, tile);
    }
}

/* Each thread has tiles of its own, for all panels: what it transforms stays in its own cache. */
TARGET static void OWN(work_apart)(const bl_winograd_t *p, const bl_buffers_t *b, int thread, int n_threads) {
    int64_t n_vectors = (p->n_src + PART - 1) / PART, n_panels = (p->n_dst + PANEL - 1) / PANEL;
    int64_t start = n_tiles(p, TILE) * thread / n_threads, n_own = n_tiles(p, TILE) * (thread + 1) / n_threads - start;
    int64_t n_parts = (n_own + p->tiles_at_once - 1) / p->tiles_at_once;
    factor_t *sources = (factor_t *)(b->sources + thread * b->sources_length);
    float *products = b->own + thread * b->own_length;
    for (int64_t part = 0; part < n_parts; part++) {
        int64_t first = start + n_own * part / n_parts, count = start + n_own * (part + 1) / n_parts - first;
        OWN(read_sources)(p, b, first, count, 0, count * n_vectors, sources);
        for (int64_t panel = 0; panel < n_panels; panel++)
            OWN(compute_panel)(p, b, first, count, sources, panel, 0, count, products);
    }
}

/* All threads transform the same tiles, and share out the panels. */
TARGET static void OWN(work_together)(const bl_winograd_t *p, const bl_buffers_t *b, int thread, int n_threads) {
    int64_t n_vectors = (p->n_src + PART - 1) / PART, n_panels = (p->n_dst + PANEL - 1) / PANEL;
    factor_t *sources = (factor_t *)b->sources;
    float *products = b->own + thread * b->own_length;
    for (int64_t first = 0; first < n_tiles(p, TILE); first += p->tiles_at_once) {
        int64_t count = n_tiles(p, TILE) - first < p->tiles_at_once ? n_tiles(p, TILE) - first : p->tiles_at_once;
        int64_t n_all = count * n_vectors;
        OWN(read_sources)(p, b, first, count, n_all * thread / n_threads, n_all * (thread + 1) / n_threads, sources);
        GOMP_barrier();
        int64_t n_parts = (count + p->tiles_of_task - 1) / p->tiles_of_task, n_tasks = n_panels * n_parts;
        for (int64_t task = n_tasks * thread / n_threads; task < n_tasks * (thread + 1) / n_threads; task++) {
            int64_t part = task % n_parts, from = count * part / n_parts, rows = count * (part + 1) / n_parts - from;
            OWN(compute_panel)(p, b, first, count, sources, task / n_parts, from, rows, products);
        }
        GOMP_barrier();
    }
}

#undef vec
#undef part_t
#undef sum_t
#undef element_t
#undef PANEL
#undef SIDE
#undef N_PRODUCTS
#undef factor_t
#undef pairs_t
#undef INLINE_HERE
