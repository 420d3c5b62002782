/* What differs for bytes, in tiles of 4x4. All is exact. Sources around their zero point times B^T, and weights times 24 G, are
   words of 16 bits; two rows of that with the other sign and one divided by 4, which is made up for behind the products. So
   results come times 9 and 64. Sums wrap around at 32 bits, which does no harm: multiplying by the inverse of 9 modulo 2^32
   divides them, and they are right if the result itself is less than 2^25. The magnitudes of the weights tell how large it may
   become; before it might be more, results so far are gathered and new sums begun. As OWN(...) there are magnitude(part); of
   vectors of results, quanta_of(bytes, vec) and store_quanta(to, quanta, n). */

typedef uint32_t OWN(sum) __attribute__((vector_size(4 * LANES), aligned(4))); /* which may wrap around */
typedef int32_t OWN(signed) __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int8_t OWN(weights) __attribute__((vector_size(PART), aligned(1), may_alias));

INLINE_HERE void OWN(transform_weights)(const part_t *g, int step, part_t *to, int to_step) {
    part_t sum = g[0] + g[2 * step], wide = g[0] + 4 * g[2 * step], twice = 2 * g[step];
    to[0] = 6 * g[0];
    to[to_step] = 4 * (sum + g[step]);
    to[2 * to_step] = 4 * (sum - g[step]);
    to[3 * to_step] = wide + twice;
    to[4 * to_step] = wide - twice;
    to[5 * to_step] = 6 * g[2 * step];
}

/* Results times 24. */
INLINE_HERE void OWN(transform_dst)(const OWN(sum) *m, int step, OWN(sum) *to, int to_step) {
    OWN(sum) near = m[step] + m[2 * step], near_odd = m[step] - m[2 * step];
    OWN(sum) far = m[3 * step] + m[4 * step], far_odd = m[3 * step] - m[4 * step];
    to[0] = m[0] - near + far;
    to[to_step] = 2 * far_odd - near_odd;
    to[2 * to_step] = 4 * far - near;
    to[3 * to_step] = 8 * far_odd - near_odd + 4 * m[5 * step];
}

/* The weights of two sources side by side for LANES results, to N_PRODUCTS places that are `apart` from each other. Returns their
   magnitudes, summed for each result. */
INLINE_HERE OWN(sum) OWN(transform_pairs)(const bl_winograd_t *p, const element_t *weights, factor_t *to, int64_t apart) {
    _Alignas(64) part_t t[3 * SIDE];
    part_t g[9], u[SIDE], magnitude = {0};
    for (int q = 0; q < 9; q++) {
        g[q] = __builtin_convertvector(*(const OWN(weights) *)(weights + q * p->weights_tap), part_t);
        magnitude += OWN(magnitude)(g[q]);
    }
    for (int j = 0; j < 3; j++) OWN(transform_weights)(g + j, 3, t + j, 3);
    for (int i = 0; i < SIDE; i++) {
        OWN(transform_weights)(t + 3 * i, 1, u, 1);
        for (int j = 0; j < SIDE; j++) OWN(keep)(to + (SIDE * i + j) * apart, u[j]);
    }
    return (OWN(sum))OWN(add_pair)((vec){0}, (pairs_t)magnitude, (pairs_t)((part_t){0} + 1));
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

INLINE_HERE OWN(sum) OWN(exact)(OWN(sum) result) {
    return (OWN(sum))((OWN(signed))(result * BL_INVERSE_OF_9) >> 6);
}

INLINE_HERE void OWN(write_row)(const bl_winograd_t *p, const bl_buffers_t *b, const bl_channels_t *channels,
    const OWN(sum) *before, const OWN(sum) *sums, int64_t at, int64_t n, int64_t n_channels) {
    vec row[TILE], scales = OWN(load)(channels->scales), bias = OWN(load)(channels->bias);
    for (int j = 0; j < TILE; j++) {
        OWN(sum) result = OWN(exact)(sums[j]);
        if (before) result += before[j];
        row[j] = __builtin_convertvector((OWN(signed))result, vec) * scales + bias;
    }
    OWN(finish)(&p->tail, row, TILE);
    WIDE(quanta) quanta[TILE]; /* all before the first is stored, since that might change what they depend on */
    for (int j = 0; j < TILE; j++) quanta[j] = WIDE(quanta_of)(&b->bytes, row[j]);
    for (int j = 0; j < TILE && j < n; j++)
        WIDE(store_quanta)((element_t *)b->dst + at + j * p->dst.pixel, quanta[j], n_channels);
}
