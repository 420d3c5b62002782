/* Rows of results of grouped convolutions. Included once for each instruction set and type, with these defined: LANES
   floats in VEC; WIDEST, of pixels at a time; ITEM and PER_PRODUCT, how many items a lane of a FACTOR has;
   SPREAD(pixel, numbers, channel, group): to the lanes of each group what this channel of it is, by NUMBERS that begin
   with FIRST_NUMBERS(group) and grow by one; SPREAD_ONE(items): one factor to all lanes; LOAD_FACTOR(items);
   ADD_PRODUCT(sum, a, b); STORE(to, is_bf16, result); LOAD, MIN, MAX; OWN(name), TARGET. */

#define N_READ(group) ((group) > PER_PRODUCT * LANES ? (group) : PER_PRODUCT * LANES) /* channels that are read together */
#define INLINE_HERE static inline __attribute__((always_inline)) TARGET

/* Adds to `n_vectors` of channels of `tile` pixels the products of `n_taps` taps, whose pixels are neighbours: each is read,
   and spread over the lanes, once for all of them. Returns where the lines that are fetched meanwhile go on. */
INLINE_HERE const char *OWN(add_taps)(VEC (*sums)[WIDEST], const ITEM *pixels, const ITEM *weights, int64_t weights_apart,
    int64_t vector_apart, const char *ahead, const char *end, int n_taps, int tile, int n_vectors, int group) {
    NUMBERS numbers = FIRST_NUMBERS(group);
#pragma GCC unroll 4
    for (int channel = 0; channel < group; channel += PER_PRODUCT, numbers += 1) {
        if (ahead < end) {
            __builtin_prefetch(ahead);
            ahead += BL_LINE;
        }
        FACTOR weight[BL_VECTORS_AT_ONCE][BL_TAPS_AT_ONCE];
#pragma GCC unroll 2
        for (int vector = 0; vector < n_vectors; vector++)
#pragma GCC unroll 3
            for (int tap = 0; tap < n_taps; tap++)
                weight[vector][tap] = LOAD_FACTOR(weights + vector * vector_apart + tap * weights_apart + channel * LANES);
#pragma GCC unroll 16
        for (int i = 0; i < tile + n_taps - 1; i++) {
            const ITEM *pixel = pixels + i * N_READ(group);
            FACTOR factor = group < LANES ? SPREAD(pixel, numbers, channel, group) : SPREAD_ONE(pixel + channel);
#pragma GCC unroll 2
            for (int vector = 0; vector < n_vectors; vector++)
#pragma GCC unroll 3
                for (int tap = 0; tap < n_taps; tap++)
                    if (i >= tap && i - tap < tile)
                        sums[vector][i - tap] = ADD_PRODUCT(sums[vector][i - tap], factor, weight[vector][tap]);
        }
    }
    return ahead;
}

/* Vectors of channels of `tile` pixels, of which the first `n` are kept. */
INLINE_HERE const char *OWN(compute_tile)(const bl_grouped_t *p, const char *const *rows, int64_t at, const ITEM *weights,
    const float *bias, char *dst, int64_t n, const char *ahead, const char *end, int tile, int n_vectors, int group) {
    VEC sums[BL_VECTORS_AT_ONCE][WIDEST];
    int64_t stride = p->strides[1], apart = stride * group * LANES, vector_apart = p->kernel[0] * p->kernel[1] * group * LANES;
#pragma GCC unroll 2
    for (int vector = 0; vector < n_vectors; vector++)
#pragma GCC unroll 16
        for (int i = 0; i < tile; i++) sums[vector][i] = bias ? LOAD(bias + vector * LANES) : (VEC){0};
    for (int64_t row = 0; row < p->kernel[0]; row++, weights += p->kernel[1] * group * LANES) {
        if (!rows[row]) continue;
        for (int64_t part = 0; part < stride && part < p->kernel[1]; part++) {
            const ITEM *pixels = (const ITEM *)rows[row] + part * p->n_columns * N_READ(group) + at;
            const ITEM *taps = weights + part * group * LANES;
            int64_t left = (p->kernel[1] - part + stride - 1) / stride;
#define ADD(n_taps) ahead = OWN(add_taps)(sums, pixels, taps, apart, vector_apart, ahead, end, n_taps, tile, n_vectors, group)
            for (; left > 2; left -= 3, pixels += 3 * N_READ(group), taps += 3 * apart) ADD(3);
            if (left == 2) ADD(2);
            if (left == 1) ADD(1);
#undef ADD
        }
    }
    VEC zero = {0}, slope = p->slope - zero, low = p->low - zero, high = p->high - zero;
    int64_t size = p->dst_is_bf16 ? 2 : 4;
#pragma GCC unroll 16
    for (int i = 0; i < tile; i++)
#pragma GCC unroll 2
        for (int vector = 0; vector < n_vectors; vector++) {
            VEC result = sums[vector][i];
            if (p->slope != 1) result = MAX(zero, result) + slope * MIN(zero, result);
            result = MIN(high, MAX(low, result));
            if (i < n) STORE(dst + (i * p->dst_pixel + vector * LANES) * size, p->dst_is_bf16, result);
        }
    return ahead;
}

INLINE_HERE void OWN(compute_tiles)(const bl_grouped_t *p, const char *const *rows, const ITEM *weights, const float *bias,
    char *dst, const char *ahead, const char *end, int tile, int n_vectors, int group) {
    int64_t n_results = p->results[1], size = p->dst_is_bf16 ? 2 : 4;
    for (int64_t channel = 0; channel < N_READ(group); channel += n_vectors * LANES) {
        for (int64_t first = 0; first < n_results; first += tile) {
            if (first + tile > n_results && n_results > tile) first = n_results - tile; /* some are computed twice */
            ahead = OWN(compute_tile)(p, rows, first * N_READ(group) + channel / group * group, weights,
                bias ? bias + channel : NULL, dst + (first * p->dst_pixel + channel) * size, n_results - first, ahead, end,
                tile, n_vectors, group);
        }
        weights += p->kernel[0] * p->kernel[1] * group * n_vectors * LANES;
    }
}

/* A row of the results that one reading of the source serves; lines from `ahead` to `end` are fetched meanwhile. */
TARGET static void OWN(compute_row)(const bl_grouped_t *p, const char *const *rows, const void *weights, const float *bias,
    char *dst, const char *ahead, const char *end) {
    int is_wide = WIDEST == BL_WIDE && p->results[1] >= BL_WIDE;
#define COMPUTE(tile, n_vectors, group) OWN(compute_tiles)(p, rows, weights, bias, dst, ahead, end, tile, n_vectors, group)
    if (p->group == 4)
        is_wide ? COMPUTE(WIDEST, 1, 4) : COMPUTE(BL_NARROW, 1, 4);
    else if (p->group == 8)
        is_wide ? COMPUTE(WIDEST, 1, 8) : COMPUTE(BL_NARROW, 1, 8);
    else if (LANES == 16 && p->group == 16)
        is_wide ? COMPUTE(WIDEST, 1, 16) : COMPUTE(BL_NARROW, 1, 16);
    else if (LANES == 16)
        is_wide ? COMPUTE(WIDEST, 1, 32) : COMPUTE(BL_NARROW, BL_VECTORS_AT_ONCE, 32);
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
