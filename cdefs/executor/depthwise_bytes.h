/* Depthwise convolution of bytes for AVX2, of 16 channels at once. Words around zero of a row lie beside those of the next, so
   that one instruction adds products of both; four of each eight channels are in one vector, the others in another. Such pairs
   are made once for all results that depend on them, in strips of columns. Included by depthwise.c. */

enum { BL_PARTS_AT_ONCE = 8, BL_COLUMNS = 64, BL_PAIRS = (BL_DEPTHWISE_LARGEST + 1) / 2, BL_SLOTS = 2 * BL_PAIRS };

typedef struct {
    int64_t row;
    __m256i columns[BL_COLUMNS][2];
} bl_pairs_t;

/* Up to 16 channels of an image, in a strip of columns. */
typedef struct {
    const bl_depthwise_t *problem;
    int64_t n, n_pairs, slots;                           /* slots: those of pairs, less one */
    __m256i weights[2][BL_PAIRS * BL_DEPTHWISE_LARGEST]; /* [row][tap] */
    vec_8 scales[2], biases[2];
    int is_plain;                                        /* whether numbers are in quanta, and kept within bounds alone */
    float per_quantum;                                   /* else */
    __m256i flip, zero, dst_zero, least, most, dst_flip; /* words of the source; of results, as bytes without sign */
    const char *src;                                     /* the strip's first column that is in the source */
    char *dst;
    int64_t first, last;                                 /* columns that are in the source */
} bl_channels_t;

INLINE TARGET_8 __m256i words_of(const char *at, const int64_t n, __m256i flip, __m256i zero) {
    __m128i bytes = _mm_setzero_si128();
    if (n == 16)
        bytes = _mm_loadu_si128((const __m128i *)at);
    else if (n == 8)
        bytes = _mm_loadl_epi64((const __m128i *)at);
    else
        memcpy(&bytes, at, (size_t)n);
    return _mm256_sub_epi16(_mm256_xor_si256(_mm256_cvtepu8_epi16(bytes), flip), zero);
}

INLINE TARGET_8 void write_bytes_of(const bl_channels_t *c, char *at, __m128i bytes) {
    if (c->n == 16)
        _mm_storeu_si128((__m128i *)at, bytes);
    else if (c->n == 8)
        _mm_storel_epi64((__m128i *)at, bytes);
    else
        memcpy(at, &bytes, (size_t)c->n);
}

INLINE int64_t within(int64_t value, int64_t least, int64_t most) {
    return value < least ? least : value > most ? most : value;
}

INLINE TARGET_8 void pair_pixels(const bl_channels_t *c, const char *at, __m256i *to, const __m256i *end, const int has_row,
    const int has_next, const int64_t n) {
    __m256i flip = c->flip, zero = c->zero, none = _mm256_setzero_si256();
    for (int64_t pixel = c->problem->src.pixel, below = c->problem->src.row; to < end; to += 2, at += pixel) {
        __m256i row = has_row ? words_of(at, n, flip, zero) : none;
        __m256i next = has_next ? words_of(at + below, n, flip, zero) : none;
        to[0] = _mm256_unpacklo_epi16(row, next);
        to[1] = _mm256_unpackhi_epi16(row, next);
    }
}

/* A row and the next, those of their columns that are in the source. */
INLINE TARGET_8 void pair_up(const bl_channels_t *c, bl_pairs_t *pairs, int64_t row) {
    const bl_depthwise_t *p = c->problem;
    int has_row = row >= 0, has_next = row + 1 < p->height;
    const char *at = c->src + row * p->src.row;
    if (has_row && has_next && c->n == 16)
        pair_pixels(c, at, pairs->columns[c->first], pairs->columns[c->last], 1, 1, 16);
    else
        pair_pixels(c, at, pairs->columns[c->first], pairs->columns[c->last], has_row, has_next, c->n);
    pairs->row = row;
}

/* Sums of products in half of the channels, of results side by side. */
INLINE TARGET_8 void sum_words(const bl_channels_t *c, bl_pairs_t *const *rows, bl_range_t range, int64_t column, int v,
    __m256i sums[BL_AT_ONCE], const int n_taps, const int stride) {
#pragma GCC unroll 16
    for (int j = 0; j < BL_AT_ONCE; j++) sums[j] = _mm256_setzero_si256();
    for (int64_t k = range.first; k < range.last; k++) {
        const __m256i *x = &rows[k]->columns[column][v];
        __m256i weights[BL_DEPTHWISE_LARGEST];
#pragma GCC unroll 16
        for (int tap = 0; tap < n_taps; tap++) {
            weights[tap] = c->weights[v][k * n_taps + tap];
            KEEP(1, "v", weights[tap]);
        }
#pragma GCC unroll 32
        for (int i = 0; i < (BL_AT_ONCE - 1) * stride + n_taps; i++)
#pragma GCC unroll 16
            for (int j = 0; j < BL_AT_ONCE; j++) {
                int tap = i - j * stride;
                if (tap < 0 || tap >= n_taps) continue;
                sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(x[2 * i], weights[tap]));
                KEEP(1, "v", sums[j]);
            }
    }
}

/* The nearest quanta to such sums, or some beyond all bytes. */
INLINE TARGET_8 void quantise(const bl_channels_t *c, int v, __m256i sums[BL_AT_ONCE]) {
    vec_8 numbers[BL_AT_ONCE], most = 32767.0f - (vec_8){0};
#pragma GCC unroll 16
    for (int j = 0; j < BL_AT_ONCE; j++)
        numbers[j] = (vec_8)_mm256_cvtepi32_ps(sums[j]) * c->scales[v] + c->biases[v];
    if (!c->is_plain) {
        finish_8(&c->problem->tail, numbers, BL_AT_ONCE);
        for (int j = 0; j < BL_AT_ONCE; j++) numbers[j] *= c->per_quantum;
    }
#pragma GCC unroll 16
    for (int j = 0; j < BL_AT_ONCE; j++) sums[j] = _mm256_cvtps_epi32((__m256)min_8(most, numbers[j]));
}

/* Up to BL_AT_ONCE results side by side, the first one's window beginning in a column of the pairs. */
INLINE TARGET_8 void convolve_words(const bl_channels_t *c, bl_pairs_t *const *rows, bl_range_t range, int64_t column, char *dst,
    int64_t n, const int n_taps, const int stride) {
    __m256i quanta[2][BL_AT_ONCE], words[BL_AT_ONCE + 1];
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        sum_words(c, rows, range, column, v, quanta[v], n_taps, stride);
        quantise(c, v, quanta[v]);
    }
#pragma GCC unroll 16
    for (int j = 0; j < BL_AT_ONCE; j++)
        words[j] = _mm256_adds_epi16(_mm256_packs_epi32(quanta[0][j], quanta[1][j]), c->dst_zero);
    words[BL_AT_ONCE] = words[BL_AT_ONCE - 1];
#pragma GCC unroll 16
    for (int j = 0; j < BL_AT_ONCE; j += 2, dst += 2 * c->problem->dst.pixel) {
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(words[j], words[j + 1]), 0xd8);
        bytes = _mm256_min_epu8(c->most, _mm256_max_epu8(c->least, bytes));
        bytes = _mm256_xor_si256(bytes, c->dst_flip);
        if (j < n) write_bytes_of(c, dst, _mm256_castsi256_si128(bytes));
        if (j + 1 < n) write_bytes_of(c, dst + c->problem->dst.pixel, _mm256_extracti128_si256(bytes, 1));
    }
}

INLINE int64_t first_of_part(const bl_depthwise_t *p, int64_t part) {
    return part * p->part + (part < p->n_longer ? part : p->n_longer);
}

/* Some parts of a row of results. */
INLINE TARGET_8 void convolve_parts(const bl_channels_t *c, bl_pairs_t *pairs, int64_t y, bl_range_t parts, const int n_taps,
    const int stride) {
    const bl_depthwise_t *p = c->problem;
    char *dst = c->dst + y * p->dst.row;
    bl_pairs_t *rows[BL_PAIRS];
    int64_t top = y * p->strides[0] - p->pad_top, below = (p->height - top + 1) / 2;
    bl_range_t range = {top < 0 ? -top / 2 : 0, below < c->n_pairs ? below : c->n_pairs}; /* not in the padding */
    for (int64_t k = range.first; k < range.last; k++) {
        int64_t row = top + 2 * k;
        rows[k] = pairs + (row & c->slots);
        if (rows[k]->row != row) pair_up(c, rows[k], row);
    }
    for (int64_t part = parts.first, column = 0, n; part < parts.last; part++, column += n * stride, dst += n * p->dst.pixel) {
        n = p->part + (part < p->n_longer);
        convolve_words(c, rows, range, column, dst, n, n_taps, stride);
    }
}

typedef void (*bl_parts_t)(const bl_channels_t *, bl_pairs_t *, int64_t, bl_range_t);

#define PARTS(TAPS, STRIDE)                                                                                                  \
    TARGET_8 static void parts_##TAPS##_##STRIDE(const bl_channels_t *c, bl_pairs_t *pairs, int64_t y, bl_range_t parts) { \
        convolve_parts(c, pairs, y, parts, TAPS, STRIDE);                                                                  \
    }
PARTS(3, 1) PARTS(3, 2) PARTS(5, 1) PARTS(5, 2) PARTS(7, 1) PARTS(7, 2)
#undef PARTS
static const bl_parts_t parts_of[][2] = {{parts_3_1, parts_3_2}, {parts_5_1, parts_5_2}, {parts_7_1, parts_7_2}};

/* The byte without sign of a bound in quanta. */
static int bound_of(const bl_bytes_t *bytes, float quanta) {
    return (int)(rintf(fminf(bytes->most, fmaxf(bytes->least, quanta))) - bytes->least);
}

INLINE TARGET_8 vec_8 floats_of_words(const float *from, int64_t n, const int v) {
    __m256 first = (__m256)floats_8(from, n, 0), second = (__m256)floats_8(from + 8, n - 8, 0);
    return (vec_8)(v ? _mm256_permute2f128_ps(first, second, 0x31) : _mm256_permute2f128_ps(first, second, 0x20));
}

/* Weights and numbers of 16 channels. */
INLINE TARGET_8 void prepare_channels(const bl_depthwise_t *p, const bl_buffers_t *b, bl_channels_t *c, int64_t channel) {
    int64_t n = p->n_channels - channel;
    const bl_tail_t *t = &p->tail;
    int is_plain = t->slope == 1 && t->gate == BL_NO_GATE && t->linear_alpha == 1 && t->linear_beta == 0;
    c->problem = p;
    c->n = n < 16 ? n : 16;
    c->n_pairs = (p->kernel[0] + 1) / 2;
    c->slots = p->kernel[0] < 3 ? 0 : p->kernel[0] < 5 ? 3 : 7;
    c->is_plain = is_plain;
    c->per_quantum = b->bytes.per_quantum;
    c->zero = _mm256_set1_epi16((int16_t)b->bytes.zero);
    c->flip = _mm256_set1_epi16((int16_t)b->bytes.flip);
    c->dst_zero = _mm256_set1_epi16((int16_t)-b->bytes.least);
    c->least = _mm256_set1_epi8((char)bound_of(&b->bytes, is_plain ? t->low * b->bytes.per_quantum : -INFINITY));
    c->most = _mm256_set1_epi8((char)bound_of(&b->bytes, is_plain ? t->high * b->bytes.per_quantum : INFINITY));
    c->dst_flip = _mm256_set1_epi8((char)(p->dst_is_signed ? 0x80 : 0));
    const __m128i *taps = (const __m128i *)((const char *)b->weights + channel * p->kernel[0] * p->kernel[1]);
    for (int64_t row = 0; row < p->kernel[0]; row += 2)
        for (int64_t tap = 0; tap < p->kernel[1]; tap++) {
            const __m128i *at = taps + row * p->kernel[1] + tap;
            __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(at)), second = _mm256_setzero_si256();
            if (row + 1 < p->kernel[0]) second = _mm256_cvtepi8_epi16(_mm_loadu_si128(at + p->kernel[1]));
            c->weights[0][row / 2 * p->kernel[1] + tap] = _mm256_unpacklo_epi16(first, second);
            c->weights[1][row / 2 * p->kernel[1] + tap] = _mm256_unpackhi_epi16(first, second);
        }
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        vec_8 zero = {0}, scale = scale_of(&b->bytes, 0, 0) - zero, bias = zero;
        if (p->has_scales) scale = floats_of_words(b->bytes.weights_scale + channel, n, v) * b->bytes.src_scale;
        if (b->bias) bias = floats_of_words(b->bias + channel, n, v);
        c->scales[v] = is_plain ? scale * b->bytes.per_quantum : scale;
        c->biases[v] = is_plain ? bias * b->bytes.per_quantum : bias;
    }
}

/* Some rows of results of 32 channels: 16 and 16 in turn, since a line of the cache has both. */
TARGET_8 static void work_words(const bl_depthwise_t *p, const bl_buffers_t *b, bl_range_t rows, int64_t image, int64_t channel) {
    int64_t n_at_once = BL_PARTS_AT_ONCE / p->strides[1], n_halves = p->n_channels - channel > 16 ? 2 : 1;
    bl_pairs_t pairs[2][BL_SLOTS];
    bl_channels_t halves[2];
    for (int64_t half = 0; half < n_halves; half++) prepare_channels(p, b, &halves[half], channel + 16 * half);
    bl_parts_t run = parts_of[p->kernel[1] / 2 - 1][p->strides[1] - 1];
    const char *src = b->src + image * p->src.image + channel;
    char *dst = b->dst + image * p->dst.image + channel;
    for (int64_t part = 0; part < p->n_parts; part += n_at_once) {
        bl_range_t parts = {part, part + n_at_once < p->n_parts ? part + n_at_once : p->n_parts};
        int64_t x = first_of_part(p, part), left = x * p->strides[1] - p->pad_left;
        int64_t n_columns = (first_of_part(p, parts.last - 1) - x + BL_AT_ONCE - 1) * p->strides[1] + p->kernel[1];
        for (int64_t half = 0; half < n_halves; half++) {
            bl_channels_t *c = &halves[half];
            c->first = within(-left, 0, n_columns);
            c->last = within(p->width - left, c->first, n_columns);
            c->src = src + (left + c->first) * p->src.pixel + 16 * half;
            c->dst = dst + x * p->dst.pixel + 16 * half;
            for (int64_t slot = 0; slot <= c->slots; slot++) {
                pairs[half][slot].row = INT64_MIN;
                memset(pairs[half][slot].columns, 0, (size_t)c->first * sizeof *pairs[half]->columns);
                memset(pairs[half][slot].columns + c->last, 0, (size_t)(n_columns - c->last) * sizeof *pairs[half]->columns);
            }
        }
        for (int64_t y = rows.first; y < rows.last; y++)
            for (int64_t half = 0; half < n_halves; half++) run(&halves[half], pairs[half], y, parts);
    }
}
