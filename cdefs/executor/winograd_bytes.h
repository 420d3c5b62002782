/* What differs for bytes, in tiles of 4x4. All is exact. Sources around their zero point times B^T, and weights times the rows of
   G without what these divide by, are words of 16 bits. The division is made up for behind the products: results come times 9
   and a power of two up to 64. Sums wrap around at 32 bits, which does no harm: multiplying by the inverse of 9 modulo 2^32
   divides them, and they are right if the result itself is less than 2^25. The magnitudes of the weights tell how large it may
   become; before it might be more, results so far are gathered and new sums begun. */

enum { BL_INVERSE_OF_9 = 954437177, BL_MOST_MAGNITUDE = ((1 << 25) - 1) / 255 };

#define ints_t OWN(ints)

INLINE_HERE void OWN(transform_weights)(const part_t *g, int step, part_t *to, int to_step) {
    part_t sum = g[0] + g[2 * step], wide = g[0] + 4 * g[2 * step], twice = 2 * g[step];
    to[0] = g[0];
    to[to_step] = sum + g[step];
    to[2 * to_step] = sum - g[step];
    to[3 * to_step] = wide + twice;
    to[4 * to_step] = wide - twice;
    to[5 * to_step] = g[2 * step];
}

/* Results times 24, 12, 6 and 6. */
INLINE_HERE void OWN(transform_dst)(const ints_t *m, int step, ints_t *to, int to_step) {
    ints_t near = m[step] + m[2 * step], near_odd = m[step] - m[2 * step];
    ints_t far = m[3 * step] + m[4 * step], far_odd = m[3 * step] - m[4 * step];
    to[0] = 6 * m[0] - 4 * near + far;
    to[to_step] = far_odd - 2 * near_odd;
    to[2 * to_step] = far - near;
    to[3 * to_step] = 2 * far_odd - near_odd + 6 * m[5 * step];
}

/* The weights of two sources side by side for LANES results, to N_PRODUCTS places that are `apart` from each other. Returns their
   magnitudes, summed for each result. */
INLINE_HERE ints_t OWN(transform_pairs)(const bl_winograd_t *p, const element_t *weights, factor_t *to, int64_t apart) {
    part_t g[9], t[3 * SIDE], u[SIDE], magnitude = {0};
    for (int q = 0; q < 9; q++) {
        g[q] = OWN(read_weights_at)(weights + q * p->weights_tap);
        magnitude += OWN(magnitude)(g[q]);
    }
    for (int j = 0; j < 3; j++) OWN(transform_weights)(g + j, 3, t + j, 3);
    for (int i = 0; i < SIDE; i++) {
        OWN(transform_weights)(t + 3 * i, 1, u, 1);
        for (int j = 0; j < SIDE; j++) OWN(keep)(to + (SIDE * i + j) * apart, u[j]);
    }
    return OWN(sum_pairs)(magnitude);
}

/* Those of `n` sources, to N_PRODUCTS matrices that are `apart` from each other. Returns the largest sum of magnitudes. */
TARGET static int64_t OWN(read_weights)(const bl_winograd_t *p, const element_t *weights, int64_t n, factor_t *to, int64_t apart) {
    int32_t most = 0;
    for (int half = 0; half < PANEL; half += LANES) {
        ints_t sums = {0};
        for (int64_t c = 0; c < n; c += 2)
            sums += OWN(transform_pairs)(p, weights + c * PANEL + 2 * half, to + c * PANEL + 2 * half, apart);
        for (int i = 0; i < LANES; i++) most = sums[i] > most ? sums[i] : most;
    }
    return most;
}

/* One of the two steps from products to results: of all columns, times a power of two. */
INLINE_HERE void OWN(columns)(const float *products, int64_t apart, ints_t *t) {
    for (int j = 0; j < SIDE; j++) {
        ints_t m[SIDE];
        for (int i = 0; i < SIDE; i++) m[i] = *(const ints_t *)(products + (SIDE * i + j) * apart);
        OWN(transform_dst)(m, 1, t + j, SIDE);
    }
}

/* The other one: four results of row i. */
INLINE_HERE void OWN(row)(const ints_t *t, int i, ints_t *results) {
    const int powers[TILE] = {3, 2, 1, 1};
    ints_t r[TILE];
    OWN(transform_dst)(t + SIDE * i, 1, r, 1);
    for (int j = 0; j < TILE; j++) results[j] = r[j] * BL_INVERSE_OF_9 >> (powers[i] + powers[j]);
}

/* Adds what all products come to to results gathered before, or to none. */
TARGET static ints_t *OWN(gather)(const float *products, int64_t apart, int64_t rows, ints_t *before, void *space) {
    ints_t *results = before ? before : memset(space, 0, (size_t)(TILE * TILE * rows * PANEL) * sizeof(int32_t));
    for (int64_t n = 0; n < 2 * rows; n++) {
        ints_t t[TILE * SIDE], r[TILE];
        OWN(columns)(products + n * LANES, apart, t);
        for (int i = 0; i < TILE; i++) {
            OWN(row)(t, i, r);
            for (int j = 0; j < TILE; j++) results[TILE * (TILE * n + i) + j] += r[j];
        }
    }
    return results;
}

/* LANES results of a tile, of channels from k on, from their products and from what was gathered before. */
INLINE_HERE void OWN(write_tile)(const bl_winograd_t *p, const bl_buffers_t *b, const float *products, int64_t apart,
    const ints_t *before, const bl_channels_t *channels, int64_t k, bl_tile_t tile) {
    ints_t t[TILE * SIDE], results[TILE];
    vec scale = OWN(load)(channels->scales), bias = OWN(load)(channels->bias);
    int64_t top = TILE * tile.row, left = TILE * tile.column;
    element_t *corner = (element_t *)b->dst + channel_at(&p->dst, tile.image, k) + top * p->dst.row + left * p->dst.pixel;
    OWN(columns)(products, apart, t);
#pragma GCC unroll 4
    for (int i = 0; i < TILE; i++) {
        if (top + i >= p->dst_height) break;
        OWN(row)(t, i, results);
#pragma GCC unroll 4
        for (int j = 0; j < TILE; j++) {
            if (left + j >= p->dst_width) break;
            ints_t result = before ? results[j] + before[TILE * i + j] : results[j];
            vec number = OWN(finished)(p, __builtin_convertvector(result, vec) * scale + bias);
            write_quanta(&b->bytes, corner + i * p->dst.row + j * p->dst.pixel, number, p->n_dst - k);
        }
    }
}
