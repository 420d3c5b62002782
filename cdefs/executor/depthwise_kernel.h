/* Depthwise convolution by vectors of LANES floats, VECTORS of them a block of channels. Included once for each instruction
   set and data type, with these two, TARGET, SIZE of an element, HAS_PAIRS and OWN(name) defined, and as OWN(...): the type raw,
   a block as it lies in memory; read(line, at, apart) and write(line, at, vectors); widen(raw, v): the v-th vector of a block;
   floats(from, n, v): that of n floats; logistic(y): 1 / (1 + 2^y). With HAS_PAIRS, pair(raw, below, v) has each channel of one
   row beside that of another, and add_pair(sum, pair, weights) adds the products of both. */

#define INLINE_HERE static inline __attribute__((always_inline)) TARGET
#define vec WIDE(vec)
#define raw_t OWN(raw)
#define BLOCK (LANES * VECTORS)
#define TAP (SIZE < 4 ? BLOCK : LANES) /* floats from the weights of one to those of the next */

#include "tail_kernel.h"

#if HAS_PAIRS
#define WIDEN(row, below, v) (is_pair ? OWN(pair)(row, below, v) : OWN(widen)(row, v))
#define ADD(sum, x, w) (is_pair || SIZE == 1 ? OWN(add_pair)(sum, x, w) : x * w + sum)
#else
#define WIDEN(row, below, v) OWN(widen)(row, v)
#define ADD(sum, x, w) (x * w + sum)
#endif

/* Adds the products of a row of sources, or of two, to results side by side, of columns that are in the source. */
INLINE_HERE void OWN(add_row)(vec sums[VECTORS][BL_AT_ONCE], const bl_line_t *line, const char *at, const float *weights,
    uint32_t columns, const int n_taps, const int stride, const int is_pair) {
    vec w[BL_DEPTHWISE_LARGEST][VECTORS];
#pragma GCC unroll 16
    for (int tap = 0; tap < n_taps; tap++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            w[tap][v] = *(const vec *)(weights + tap * TAP + v * line->vector);
            KEEP(n_taps * VECTORS <= 10, "v", w[tap][v]);
        }
#pragma GCC unroll 32
    for (int i = 0; i < (BL_AT_ONCE - 1) * stride + n_taps; i++, at += line->pixel) {
        KEEP(1, "r", columns);
        KEEP(1, "r", at);
        if (!(columns >> i & 1)) continue;
        raw_t row = OWN(read)(line, at, line->apart), below = row;
        if (is_pair) below = OWN(read)(line, at + line->row, line->apart);
        (void)below;
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            vec x = WIDEN(row, below, v);
#pragma GCC unroll 16
            for (int j = 0; j < BL_AT_ONCE; j++) {
                int tap = i - j * stride;
                if (tap >= 0 && tap < n_taps) sums[v][j] = ADD(sums[v][j], x, w[tap][v]);
            }
        }
    }
}

/* Up to BL_AT_ONCE results side by side, `at` being the first source of the first one's window. */
INLINE_HERE void OWN(convolve)(const bl_depthwise_t *p, const bl_line_t *line, const char *at, uint32_t columns, int n,
    char *dst, const char *addend, const int n_taps, const int stride) {
    vec sums[VECTORS][BL_AT_ONCE];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
        vec bias = SIZE == 1 ? (vec){0} : *(const vec *)(line->bias + v * LANES);
#pragma GCC unroll 16
        for (int j = 0; j < BL_AT_ONCE; j++) sums[v][j] = bias;
    }
    int64_t row = line->first;
    at += row * line->row;
    const float *weights = line->weights + row * n_taps * TAP;
#if HAS_PAIRS
    for (; row + 2 <= line->last; row += 2, at += 2 * line->row, weights += 2 * n_taps * TAP)
        OWN(add_row)(sums, line, at, weights + line->pairs, columns, n_taps, stride, 1);
#endif
    for (; row < line->last; row++, at += line->row, weights += n_taps * TAP)
        OWN(add_row)(sums, line, at, weights, columns, n_taps, stride, 0);
#if SIZE == 1
    OWN(scale)(line, sums);
#endif
    if (addend) {
#pragma GCC unroll 16
        for (int j = 0; j < BL_AT_ONCE; j++) {
            if (j >= n) continue;
            raw_t added = OWN(read)(line, addend + j * line->dst_pixel, line->dst_apart);
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) sums[v][j] += OWN(widen)(added, v);
        }
    }
    OWN(finish)(&p->tail, &sums[0][0], VECTORS * BL_AT_ONCE);
#pragma GCC unroll 16
    for (int j = 0; j < BL_AT_ONCE; j++) {
        if (j >= n) continue;
        vec result[VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) result[v] = sums[v][j];
        OWN(write)(line, dst + j * line->dst_pixel, result);
    }
}

/* A row of results of a block of channels, in parts as even as can be. */
INLINE_HERE void OWN(convolve_row)(const bl_depthwise_t *p, const bl_line_t *given, const char *src, char *dst,
    const char *addend, const int n_taps, const int stride, const int is_apart) {
    bl_line_t own = *given, *line = &own; /* in registers */
    line->is_apart = is_apart;
    for (int64_t part = 0, x = 0; part < p->n_parts; part++) {
        int64_t n = p->part + (part < p->n_longer), left = x * stride - p->pad_left, reach = (n - 1) * stride + n_taps;
        int64_t first = left < 0 ? -left : 0, last = p->width - left < reach ? p->width - left : reach;
        uint32_t columns = first < last ? (uint32_t)((1u << last) - (1u << first)) : 0;
        int64_t to = x * line->dst_pixel;
        OWN(convolve)(p, line, src + left * line->pixel, columns, (int)n, dst + to, addend ? addend + to : NULL, n_taps, stride);
        x += n;
    }
}

typedef void (*OWN(row_t))(const bl_depthwise_t *, const bl_line_t *, const char *, char *, const char *);

#define ROW(TAPS, STRIDE, NAME, IS_APART)                                                                  \
    TARGET static void OWN(row_##TAPS##_##STRIDE##_##NAME)(                                                \
        const bl_depthwise_t *p, const bl_line_t *line, const char *src, char *dst, const char *addend) {  \
        OWN(convolve_row)(p, line, src, dst, addend, TAPS, STRIDE, IS_APART);                              \
    }
#define ROWS(NAME, IS_APART) \
    ROW(3, 1, NAME, IS_APART) ROW(3, 2, NAME, IS_APART) ROW(5, 1, NAME, IS_APART) \
    ROW(5, 2, NAME, IS_APART) ROW(7, 1, NAME, IS_APART) ROW(7, 2, NAME, IS_APART)
#define NAMES(NAME)                                                                                       \
    {                                                                                                     \
        {OWN(row_3_1_##NAME), OWN(row_3_2_##NAME)}, {OWN(row_5_1_##NAME), OWN(row_5_2_##NAME)},           \
            {OWN(row_7_1_##NAME), OWN(row_7_2_##NAME)},                                                   \
    }
ROWS(apart, 1)
#if VECTORS > 1
ROWS(together, 0)
static const OWN(row_t) OWN(rows)[][3][2] = {NAMES(together), NAMES(apart)};
#else
static const OWN(row_t) OWN(rows)[][3][2] = {NAMES(apart)};
#endif
#undef ROW
#undef ROWS
#undef NAMES

/* Weights and bias of a block of channels as loops read them: weights in bf16 are written to `room`. */
INLINE_HERE void OWN(prepare)(const bl_depthwise_t *p, const bl_buffers_t *b, bl_line_t *line, int64_t channel, float *bias,
    float *room) {
    int64_t n_taps = p->kernel[0] * p->kernel[1], n = p->n_channels - channel;
    int64_t apart = line->is_half ? 0 : n_taps * LANES;
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++)
        *(vec *)(bias + v * LANES) = b->bias ? OWN(floats)(b->bias + channel, n < BLOCK ? n : BLOCK, v) : (vec){0};
    line->weights = (const float *)b->weights + channel * n_taps;
    line->vector = apart;
#if SIZE < 4
    bl_line_t taps = {.n = LANES, .is_apart = 1, .bytes = {.flip = 0x80, .zero = 0x80}};
    const char *from = (const char *)b->weights + channel * n_taps * SIZE;
    line->weights = room;
    line->vector = LANES;
    line->pairs = n_taps * BLOCK;
    for (int64_t tap = 0; tap < n_taps; tap++) {
        raw_t row = OWN(read)(&taps, from + tap * SIZE * LANES, SIZE * apart);
        for (int v = 0; v < VECTORS; v++) *(vec *)(room + tap * BLOCK + v * LANES) = OWN(widen)(row, v);
#if HAS_PAIRS
        if (tap + p->kernel[1] >= n_taps) continue;
        raw_t below = OWN(read)(&taps, from + (tap + p->kernel[1]) * SIZE * LANES, SIZE * apart);
        for (int v = 0; v < VECTORS; v++) *(vec *)(room + line->pairs + tap * BLOCK + v * LANES) = OWN(pair)(row, below, v);
#endif
    }
#else
    (void)room;
#endif
}

/* Some rows of results of a block of channels. Half a block, the last, is computed of two rows at once. */
TARGET static void OWN(work)(const bl_depthwise_t *p, const bl_buffers_t *b, bl_range_t rows, int64_t image, int64_t channel) {
    float bias[BLOCK], room[SIZE < 4 ? (1 + HAS_PAIRS) * BL_DEPTHWISE_LARGEST * BL_DEPTHWISE_LARGEST * BLOCK : 1];
    int64_t size = SIZE, n = p->n_channels - channel;
    int is_blocked = p->src.group != 0, is_half = VECTORS == 2 && n <= LANES, is_apart = is_blocked || is_half;
    int64_t most = is_apart ? LANES : BLOCK;
    OWN(row_t) row = OWN(rows)[VECTORS > 1 && is_apart][p->kernel[1] / 2 - 1][p->strides[1] - 1];
    bl_line_t line = {
        .n = n < most && !is_blocked ? n : most,
        .is_half = is_half,
        .apart = is_half ? 0 : p->src.group * size,
        .dst_apart = p->dst.group * size,
        .row = p->src.row * size,
        .pixel = p->src.pixel * size,
        .dst_pixel = p->dst.pixel * size,
        .bias = bias,
    };
    OWN(prepare)(p, b, &line, channel, bias, room);
#if SIZE == 1
    float scales[BLOCK];
    OWN(prepare_scales)(p, b, &line, channel, scales);
#endif
    const char *src = b->src + (image * p->src.image + offset_of(&p->src, channel)) * size;
    int64_t to = image * p->dst.image + offset_of(&p->dst, channel);
    for (int64_t y = rows.first; y < rows.last; y++) {
        int64_t top = y * p->strides[0] - p->pad_top, at = (to + y * p->dst.row) * size;
        line.first = top < 0 ? -top : 0;
        line.last = p->height - top < p->kernel[0] ? p->height - top : p->kernel[0];
        if (is_half) {
            int are_two = y + 1 < rows.last && top >= 0 && top + p->strides[0] + p->kernel[0] <= p->height;
            line.is_half = !are_two;
            line.apart = are_two ? p->strides[0] * line.row : 0;
            line.dst_apart = are_two ? p->dst.row * size : 0;
            y += are_two;
        }
        row(p, &line, src + top * line.row, b->dst + at, b->addend ? b->addend + at : NULL);
    }
}

#undef INLINE_HERE
#undef vec
#undef raw_t
#undef BLOCK
#undef TAP
#undef WIDEN
#undef ADD
#undef LANES
#undef VECTORS
#undef SIZE
#undef HAS_PAIRS
#undef TARGET
#undef OWN
