/* Rows of results of grouped convolutions. Included once for each instruction set and type, with these defined: LANES
   floats in VEC; WIDEST, of pixels at a time; ITEM and PER_PRODUCT, how many items a lane of a FACTOR has;
   SPREAD(pixel, numbers): to the lanes of each group what a channel of it is, by NUMBERS that begin with
   FIRST_NUMBERS(group) and grow by one; SPREAD_ONE(items): one factor to all lanes; LOAD_FACTOR(items);
   ADD_PRODUCT(sum, a, b); STORE(to, is_bf16, result); LOAD, MIN, MAX; OWN(name), TARGET. */

#define N_READ (PER_PRODUCT * LANES) /* channels that are read together */
#define INLINE_HERE static inline __attribute__((always_inline)) TARGET

/* Adds to a vector of channels of `tile` pixels the products of `n_taps` taps, whose pixels are neighbours: each is read,
   and spread over the lanes, once for all of them. */
INLINE_HERE void OWN(add_taps)(VEC *sums, const ITEM *pixels, const ITEM *weights, int64_t weights_apart, int n_taps, int tile,
    int group) {
    NUMBERS numbers = FIRST_NUMBERS(group);
    for (int channel = 0; channel < group; channel += PER_PRODUCT, numbers += 1) {
        FACTOR weight[BL_TAPS_AT_ONCE];
#pragma GCC unroll 3
        for (int tap = 0; tap < n_taps; tap++) weight[tap] = LOAD_FACTOR(weights + tap * weights_apart + channel * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < tile + n_taps - 1; i++) {
            const ITEM *pixel = pixels + i * N_READ;
            FACTOR factor = group < LANES ? SPREAD(pixel, numbers) : SPREAD_ONE(pixel + channel);
#pragma GCC unroll 3
            for (int tap = 0; tap < n_taps; tap++)
                if (i >= tap && i - tap < tile) sums[i - tap] = ADD_PRODUCT(sums[i - tap], factor, weight[tap]);
        }
    }
}

/* A vector of channels of `tile` pixels, of which the first `n` are kept. */
INLINE_HERE void OWN(compute_tile)(const bl_grouped_t *p, const char *const *rows, int64_t at, const ITEM *weights,
    VEC bias, char *dst, int64_t n, int tile, int group) {
    VEC sums[WIDEST];
    int64_t stride = p->strides[1], apart = stride * group * LANES;
#pragma GCC unroll 16
    for (int i = 0; i < tile; i++) sums[i] = bias;
    for (int64_t row = 0; row < p->kernel[0]; row++, weights += p->kernel[1] * group * LANES) {
        if (!rows[row]) continue;
        for (int64_t part = 0; part < stride && part < p->kernel[1]; part++) {
            const ITEM *pixels = (const ITEM *)rows[row] + part * p->n_columns * N_READ + at;
            const ITEM *taps = weights + part * group * LANES;
            int64_t left = (p->kernel[1] - part + stride - 1) / stride;
            for (; left > 2; left -= 3, pixels += 3 * N_READ, taps += 3 * apart)
                OWN(add_taps)(sums, pixels, taps, apart, 3, tile, group);
            if (left == 2) OWN(add_taps)(sums, pixels, taps, apart, 2, tile, group);
            if (left == 1) OWN(add_taps)(sums, pixels, taps, apart, 1, tile, group);
        }
    }
    VEC zero = {0}, slope = p->slope - zero, low = p->low - zero, high = p->high - zero;
    int64_t size = p->dst_is_bf16 ? 2 : 4;
#pragma GCC unroll 16
    for (int i = 0; i < tile; i++) {
        VEC result = sums[i];
        if (p->slope != 1) result = MAX(zero, result) + slope * MIN(zero, result);
        result = MIN(high, MAX(low, result));
        if (i < n) STORE(dst + i * p->dst_pixel * size, p->dst_is_bf16, result);
    }
}

INLINE_HERE void OWN(compute_tiles)(const bl_grouped_t *p, const char *const *rows, const ITEM *weights, const float *bias,
    char *dst, int tile, int group) {
    int64_t n_results = p->results[1], size = p->dst_is_bf16 ? 2 : 4;
    for (int64_t channel = 0; channel < N_READ; channel += LANES) {
        VEC start = bias ? LOAD(bias + channel) : (VEC){0};
        for (int64_t first = 0; first < n_results; first += tile) {
            if (first + tile > n_results && n_results > tile) first = n_results - tile; /* some are computed twice */
            OWN(compute_tile)(p, rows, first * N_READ + channel / group * group, weights, start,
                dst + (first * p->dst_pixel + channel) * size, n_results - first, tile, group);
        }
        weights += p->kernel[0] * p->kernel[1] * group * LANES;
    }
}

/* A row of the results that one reading of the source serves. */
TARGET static void OWN(compute_row)(const bl_grouped_t *p, const char *const *rows, const void *weights, const float *bias,
    char *dst) {
    int is_wide = WIDEST == BL_WIDE && p->results[1] >= BL_WIDE;
#define COMPUTE(tile, group) OWN(compute_tiles)(p, rows, weights, bias, dst, tile, group)
    if (p->group == 4)
        is_wide ? COMPUTE(WIDEST, 4) : COMPUTE(BL_NARROW, 4);
    else if (p->group == 8)
        is_wide ? COMPUTE(WIDEST, 8) : COMPUTE(BL_NARROW, 8);
    else if (LANES == 16)
        is_wide ? COMPUTE(WIDEST, 16) : COMPUTE(BL_NARROW, 16);
#undef COMPUTE
}

#undef INLINE_HERE
#undef N_READ
#undef OWN
#undef TARGET
#undef LANES
#undef WIDEST
#undef PER_PRODUCT
#undef ITEM
#undef VEC
#undef FACTOR
#undef MIN
#undef MAX
#undef LOAD
#undef NUMBERS
#undef FIRST_NUMBERS
#undef SPREAD
#undef SPREAD_ONE
#undef LOAD_FACTOR
#undef ADD_PRODUCT
#undef STORE
