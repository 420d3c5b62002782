/* What differs for bytes, in tiles of 4x4. All is exact. Sources around their zero point times B^T, and weights times the rows of
   G without what these divide by, are words of 16 bits. The division is made up for behind the products: results come times 9
   and a power of two up to 64. Sums wrap around at 32 bits, which does no harm: multiplying by the inverse of 9 modulo 2^32
   divides them, and they are right if the result itself is less than 2^25. The magnitudes of the weights tell how large it may
   become; before it might be more, results so far are gathered and new sums begun. */

enum { BL_INVERSE_OF_9 = 954437177, BL_MOST_MAGNITUDE = ((1 << 25) - 1) / 255 };

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
INLINE_HERE void OWN(transform_dst)(const OWN(sum) *m, int step, OWN(sum) *to, int to_step) {
    OWN(sum) near = m[step] + m[2 * step], near_odd = m[step] - m[2 * step];
    OWN(sum) far = m[3 * step] + m[4 * step], far_odd = m[3 * step] - m[4 * step];
    to[0] = 6 * m[0] - 4 * near + far;
    to[to_step] = far_odd - 2 * near_odd;
    to[2 * to_step] = far - near;
    to[3 * to_step] = 2 * far_odd - near_odd + 6 * m[5 * step];
}

/* The weights of two sources side by side for LANES results, to N_PRODUCTS places that are `apart` from each other. Returns their
   magnitudes, summed for each result. */
INLINE_HERE OWN(sum) OWN(transform_pairs)(const bl_winograd_t *p, const element_t *weights, factor_t *to, int64_t apart) {
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

/* Those of `n` sources from `first` on. Returns the largest sum of magnitudes. */
TARGET static int64_t OWN(read_weights)(const bl_winograd_t *p, const element_t *panel, int64_t first, int64_t n, factor_t *to,
    int64_t apart) {
    uint32_t most = 0;
    for (int half = 0; half < PANEL; half += LANES) {
        OWN(sum) sums = {0};
        for (int64_t c = 0; c < n; c += 2)
            sums += OWN(transform_pairs)(p, panel + (first + c) * PANEL + 2 * half, to + c * PANEL + 2 * half, apart);
        for (int i = 0; i < LANES; i++) most = sums[i] > most ? sums[i] : most;
    }
    return most;
}

/* At (i, j) of a tile. */
INLINE_HERE OWN(sum) OWN(exact)(OWN(sum) result, int i, int j) {
    const int powers[TILE] = {3, 2, 1, 1};
    return (OWN(sum))((OWN(signed))(result * BL_INVERSE_OF_9) >> (powers[i] + powers[j]));
}

INLINE_HERE void OWN(write_result)(const bl_winograd_t *p, const bl_buffers_t *b, const bl_channels_t *channels,
    const OWN(sum) *before, OWN(sum) result, int i, int j, int64_t at, int64_t n) {
    result = OWN(exact)(result, i, j);
    if (before) result += before[TILE * i + j];
    vec number = __builtin_convertvector((OWN(signed))result, vec) * OWN(load)(channels->scales) + OWN(load)(channels->bias);
    write_quanta_16(&b->bytes, (element_t *)b->dst + at, OWN(finished)(p, number), n);
}
