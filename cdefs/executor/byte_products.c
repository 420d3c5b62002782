#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "byte_products.h"
#include "regions.h"

/* Channels of a panel, results whose sums in it are in registers at once, bytes of a pixel that meet as many weights of each
   channel at once, and such quads whose weights stay in the nearest cache. */
enum { BL_PANEL = 16, BL_STRIP = 6, BL_QUAD = 4, BL_QUADS_AT_ONCE = 256 };

/* Quads of the source side by side, from a result's first on, which meet weights side by side. */
typedef struct {
    int64_t src, n;
} bl_segment_t;

/* Weights of half a panel that would saturate beside their neighbours, and the quad of the source that they meet. */
typedef struct {
    int8_t weights[32];
    int64_t src;
} bl_rest_t;

/* Some quads of a panel: the weights that cannot saturate, and those left out there, by half. */
typedef struct {
    int8_t weights[BL_QUADS_AT_ONCE][BL_QUAD * BL_PANEL];
    bl_rest_t rests[2][BL_QUADS_AT_ONCE];
    bl_segment_t segments[BL_QUADS_AT_ONCE];
    int64_t n_rests[2], n_segments, n;
} bl_chunk_t;

static int64_t whole_lines(int64_t nbytes) { return (nbytes + 63) / 64 * 64; }

/* Bytes of a pixel that is held: channels by fours. */
static int64_t pixel_nbytes(const bl_byte_products_t *p) { return (p->n_src + BL_QUAD - 1) / BL_QUAD * BL_QUAD; }

/* From one result to the next in the source that is held: one, where of rows or columns every stride-th is enough. */
static int64_t held_stride(const bl_byte_products_t *p, int dim) { return p->kernel[dim] == 1 ? 1 : p->strides[dim]; }

/* Rows or columns that are held for `n` results side by side. */
static int64_t n_held(const bl_byte_products_t *p, int dim, int64_t n) {
    return (n - 1) * held_stride(p, dim) + (p->kernel[dim] - 1) * p->dilations[dim] + 1;
}

static int64_t n_quads(const bl_byte_products_t *p) { return p->kernel[0] * p->kernel[1] * pixel_nbytes(p) / BL_QUAD; }

/* Of a thread: the source of a task, then the largest byte of each channel there, then what the zero point of the weights comes
   to in each result, then sums of results in a panel, then a chunk. */
static int64_t source_nbytes(const bl_byte_products_t *p) {
    if (p->is_read_in_place) return 0;
    int64_t rows = n_held(p, 0, p->results_of_task[0]), columns = n_held(p, 1, p->results_of_task[1]);
    return whole_lines(rows * columns * pixel_nbytes(p));
}

static int64_t sums_nbytes(const bl_byte_products_t *p) {
    if (n_quads(p) <= BL_QUADS_AT_ONCE) return 0;
    return p->results_of_task[0] * p->results_of_task[1] * BL_PANEL * (int64_t)sizeof(int32_t);
}

static int64_t excesses_nbytes(const bl_byte_products_t *p) {
    return p->has_weights_zero ? whole_lines(p->results_of_task[0] * p->results_of_task[1] * (int64_t)sizeof(int32_t)) : 0;
}

static int64_t own_nbytes(const bl_byte_products_t *p) {
    return source_nbytes(p) + whole_lines(pixel_nbytes(p)) + excesses_nbytes(p) + sums_nbytes(p) + whole_lines(sizeof(bl_chunk_t));
}

int64_t bl_byte_products_scratchpad(const bl_byte_products_t *problem) { return problem->n_threads * own_nbytes(problem); }

#if defined(__x86_64__)
#include "bytes.h"

#define vec vec_8
#define LANES 8
#define TARGET TARGET_8
#define OWN(name) name##_8
#define INLINE_HERE INLINE TARGET_8
#include "tail_kernel.h"

static bl_range_t part_of(int64_t n, int64_t part, int64_t n_parts) {
    return (bl_range_t){n * part / n_parts, n * (part + 1) / n_parts};
}

static int64_t n_parts(int64_t n, int64_t most) { return (n + most - 1) / most; }

typedef struct {
    const bl_byte_products_t *problem;
    const uint8_t *src;
    const int8_t *weights;
    const float *bias;
    char *dst;
    char *scratchpad;
    bl_bytes_t bytes;
    int weights_zero;
    const float *factors; /* of results, or NULL */
} bl_byte_products_run_t;

/* Results of an image that a task computes, and their source: from one row, pixel and result to the next, in bytes. */
typedef struct {
    int64_t image;
    bl_range_t rows, columns;
    const uint8_t *src;
    uint8_t *largest;  /* of each channel */
    int32_t *excesses; /* of each result: what is too much in its sums, since weights have a zero point, or NULL */
    int64_t row, pixel, steps[2];
} bl_task_t;

/* Channels of the result: the first, how many, what sums are multiplied by and what is added to them, bounds, and what results
   are multiplied by in the end and what is added then. Without a gate and a linear function that is part of all others. */
typedef struct {
    int64_t first, n;
    vec_8 scale[2], bias[2], low[2], high[2], factor[2], shift[2];
    int is_direct, is_plain;             /* is_plain: whether sums come to bytes by scale and bias alone, within bounds */
    int has_bounds;                      /* whether bytes have a sign, or others bounds than all bytes have */
    __m256i dst_zero, least, most, flip; /* words; bounds as bytes without sign; what gives bytes their sign */
} bl_panel_t;

INLINE TARGET_8 __m256i quad_at(const uint8_t *at) {
    int32_t bytes;
    memcpy(&bytes, at, sizeof(bytes));
    return _mm256_set1_epi32(bytes);
}

INLINE TARGET_8 __m256i unsigned_of(const bl_bytes_t *bytes, __m256i given) {
    return _mm256_xor_si256(given, _mm256_set1_epi8((char)bytes->flip));
}

/* Bytes side by side, without a sign. */
INLINE TARGET_8 void copy(const bl_bytes_t *bytes, const uint8_t *from, int64_t n, uint8_t *to) {
    int64_t i = 0;
    for (; i + 32 <= n; i += 32)
        _mm256_storeu_si256((__m256i *)(to + i), unsigned_of(bytes, _mm256_loadu_si256((const __m256i *)(from + i))));
    for (; i < n; i++) to[i] = from[i] ^ (uint8_t)bytes->flip;
}

/* Three channels of pixels side by side as quads; nothing is multiplied by the fourth. */
INLINE TARGET_8 void copy_threes(const bl_bytes_t *bytes, const uint8_t *from, int64_t n_pixels, uint8_t *to) {
    __m128i place = _mm_setr_epi8(0, 1, 2, 0, 3, 4, 5, 3, 6, 7, 8, 6, 9, 10, 11, 9), flip = _mm_set1_epi8((char)bytes->flip);
    int64_t i = 0;
    for (; i + 6 <= n_pixels; i += 4) /* 16 bytes are read */
        _mm_storeu_si128((__m128i *)(to + 4 * i),
            _mm_xor_si128(flip, _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(from + 3 * i)), place)));
    for (; i < n_pixels; i++) copy(bytes, from + 3 * i, 3, to + 4 * i);
}

/* `n` pixels of a row of the source, from `left` on every step-th, with zero points where there are none. */
TARGET_8 static void copy_row(const bl_byte_products_run_t *run, const uint8_t *row, int64_t left, int64_t n, uint8_t *to) {
    const bl_byte_products_t *p = run->problem;
    int64_t size = pixel_nbytes(p), step = p->strides[1] / held_stride(p, 1), apart = step * p->src_pixel;
    int64_t first = left < 0 ? (-left + step - 1) / step : 0, last = p->extents[1] > left ? (p->extents[1] - left + step - 1) / step : 0;
    if (first > n) first = n;
    if (last > n) last = n;
    if (last < first) last = first;
    memset(to, run->bytes.zero, (size_t)(first * size));
    memset(to + last * size, run->bytes.zero, (size_t)((n - last) * size));
    const uint8_t *from = row + (left + first * step) * p->src_pixel;
    to += first * size;
    n = last - first;
    if (apart == size)
        copy(&run->bytes, from, n * size, to);
    else if (apart == 3 && p->n_src == 3)
        copy_threes(&run->bytes, from, n, to);
    else
        for (int64_t i = 0; i < n; i++) copy(&run->bytes, from + i * apart, p->n_src, to + i * size);
}

/* Finds the largest byte of each channel in the source of a task. */
TARGET_8 static void find_largest(const bl_byte_products_t *p, const bl_task_t *task) {
    int64_t size = pixel_nbytes(p), n_rows = n_held(p, 0, task->rows.last - task->rows.first);
    int64_t n_columns = n_held(p, 1, task->columns.last - task->columns.first);
    int64_t down = task->steps[0] / held_stride(p, 0), right = task->steps[1] / held_stride(p, 1);
    memset(task->largest, size == BL_QUAD ? 255 : 0, (size_t)size);
    if (size == BL_QUAD) return; /* images have all bytes */
    const int64_t n = size < 16 ? BL_QUAD : 16;
    for (int64_t channel = 0; channel < size; channel += n) {
        int64_t first = channel + n > size ? size - n : channel;
        __m128i most = _mm_setzero_si128();
        for (int64_t y = 0; y < n_rows; y++) {
            const uint8_t *at = task->src + y * down + first;
            for (int64_t x = 0; x < n_columns; x++, at += right)
                most = _mm_max_epu8(most, n == 16 ? _mm_loadu_si128((const __m128i *)at) : _mm_loadu_si32(at));
        }
        if (n == 16)
            _mm_storeu_si128((__m128i *)(task->largest + first), most);
        else
            _mm_storeu_si32(task->largest + first, most);
    }
}

/* The source of a task's results, where it lies or copied to where there is room. */
TARGET_8 static void find_source(const bl_byte_products_run_t *run, bl_task_t *task, uint8_t *room) {
    const bl_byte_products_t *p = run->problem;
    int64_t top = task->rows.first * p->strides[0] - p->pads[0], left = task->columns.first * p->strides[1] - p->pads[1];
    const uint8_t *image = run->src + task->image * p->src_image;
    if (p->is_read_in_place) {
        task->src = image + top * p->src_row + left * p->src_pixel;
        task->row = p->src_row, task->pixel = p->src_pixel;
        task->steps[0] = p->strides[0] * p->src_row, task->steps[1] = p->strides[1] * p->src_pixel;
        return;
    }
    int64_t n_columns = n_held(p, 1, task->columns.last - task->columns.first), step = p->strides[0] / held_stride(p, 0);
    task->src = room, task->pixel = pixel_nbytes(p), task->row = n_columns * task->pixel;
    task->steps[0] = held_stride(p, 0) * task->row, task->steps[1] = held_stride(p, 1) * task->pixel;
    for (int64_t row = 0; row < n_held(p, 0, task->rows.last - task->rows.first); row++) {
        int64_t y = top + row * step;
        uint8_t *to = room + row * task->row;
        if (y >= 0 && y < p->extents[0])
            copy_row(run, image + y * p->src_row, left, n_columns, to);
        else
            memset(to, run->bytes.zero, (size_t)task->row);
    }
}

/* What the source of each result comes to, less zero points, times the zero point of the weights. */
TARGET_8 static void find_excesses(const bl_byte_products_run_t *run, const bl_task_t *task) {
    const bl_byte_products_t *p = run->problem;
    int32_t *to = task->excesses, nothing = (int32_t)(p->kernel[0] * p->kernel[1] * p->n_src * run->bytes.zero);
    for (int64_t y = 0; y < task->rows.last - task->rows.first; y++)
        for (int64_t x = 0; x < task->columns.last - task->columns.first; x++) {
            const uint8_t *first = task->src + y * task->steps[0] + x * task->steps[1];
            __m256i sums = _mm256_setzero_si256();
            int32_t rest = 0;
            for (int64_t tap = 0; tap < p->kernel[0] * p->kernel[1]; tap++) {
                int64_t row = tap / p->kernel[1] * p->dilations[0], column = tap % p->kernel[1] * p->dilations[1], i = 0;
                const uint8_t *at = first + row * task->row + column * task->pixel;
                for (; i + 32 <= p->n_src; i += 32)
                    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_loadu_si256((const __m256i *)(at + i)), _mm256_setzero_si256()));
                for (; i < p->n_src; i++) rest += at[i];
            }
            int64_t parts[4];
            _mm256_storeu_si256((__m256i *)parts, sums);
            *to++ = run->weights_zero * (rest + (int32_t)(parts[0] + parts[1] + parts[2] + parts[3]) - nothing);
        }
}

/* A result's channels as words, around the zero point of bytes without sign. */
INLINE TARGET_8 __m256i words_of(const bl_panel_t *panel, vec_8 first, vec_8 second) {
    __m256i quanta = _mm256_packs_epi32(_mm256_cvtps_epi32((__m256)first), _mm256_cvtps_epi32((__m256)second));
    return _mm256_adds_epi16(quanta, panel->dst_zero);
}

/* Two results as bytes without sign. */
INLINE TARGET_8 __m256i bytes_of_words(__m256i first, __m256i second) {
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(first, second), order);
}

TARGET_8 static bl_panel_t panel_at(const bl_byte_products_run_t *run, int64_t first) {
    const bl_byte_products_t *p = run->problem;
    const bl_bytes_t *bytes = &run->bytes;
    const bl_tail_t *t = &p->tail;
    bl_panel_t panel = {.first = first, .n = p->n_dst - first < BL_PANEL ? p->n_dst - first : BL_PANEL};
    vec_8 zero = {0}, factors[2], least = (p->dst_is_f32 ? -INFINITY : bytes->least) - zero;
    vec_8 most = (p->dst_is_f32 ? INFINITY : bytes->most) - zero;
    panel.is_direct = t->gate == BL_NO_GATE && t->linear_alpha == 1 && t->linear_beta == 0;
    for (int64_t v = 0, at = first, n = panel.n; v < 2; v++, at += 8, n -= 8) {
        factors[v] = (p->dst_is_f32 ? 1 : bytes->per_quantum) - zero;
        if (run->factors) factors[v] *= first_of_8(run->factors + at, n);
        unsigned positive = (unsigned)_mm256_movemask_ps(_mm256_cmp_ps((__m256)factors[v], (__m256)zero, _CMP_GT_OQ));
        panel.is_direct &= (positive | (n < 8 ? 0xffu << (n > 0 ? n : 0) : 0) | ~0xffu) == ~0u;
    }
    for (int64_t v = 0, at = first, n = panel.n; v < 2; v++, at += 8, n -= 8) {
        vec_8 factor = panel.is_direct ? factors[v] : 1 - zero, scale = scale_of(bytes, 0, 0) - zero;
        if (p->has_scales) scale = bytes->src_scale * first_of_8(bytes->weights_scale + at, n);
        panel.factor[v] = factors[v] * t->linear_alpha, panel.shift[v] = factors[v] * t->linear_beta;
        panel.scale[v] = factor * scale;
        panel.bias[v] = run->bias ? factor * first_of_8(run->bias + at, n) : zero;
        panel.low[v] = panel.is_direct ? max_8(least, factor * t->low) : t->low - zero;
        panel.high[v] = panel.is_direct ? min_8(most, factor * t->high) : t->high - zero;
    }
    panel.dst_zero = _mm256_set1_epi16((int16_t)-bytes->least);
    panel.flip = _mm256_set1_epi8((char)(p->dst_is_signed ? 0x80 : 0));
    panel.least = _mm256_setzero_si256(), panel.most = _mm256_set1_epi8(-1);
    panel.is_plain = panel.n % 8 == 0 && panel.is_direct && t->slope == 1 && !p->dst_is_f32 && !p->dst_is_s32;
    float most_of_sums = 255.0f * (p->has_weights_zero ? 256 : 128) * BL_QUAD * (float)n_quads(p);
    for (int v = 0; v < 2; v++) { /* so that no result is beyond 32 bits */
        vec_8 largest = max_8(panel.scale[v], -panel.scale[v]) * most_of_sums + max_8(panel.bias[v], -panel.bias[v]);
        panel.is_plain &= _mm256_movemask_ps(_mm256_cmp_ps((__m256)largest, _mm256_set1_ps(0x1p30f), _CMP_LT_OQ)) == 0xff;
    }
    if (panel.is_plain) {
        __m256i low = words_of(&panel, panel.low[0], panel.low[1]), high = words_of(&panel, panel.high[0], panel.high[1]);
        panel.least = bytes_of_words(low, low), panel.most = bytes_of_words(high, high);
    }
    __m256i beyond = _mm256_or_si256(panel.least, _mm256_xor_si256(panel.most, _mm256_set1_epi8(-1)));
    panel.has_bounds = p->dst_is_signed || !_mm256_testz_si256(beyond, beyond);
    return panel;
}

/* Copies the weights of the quads that follow `from`, without those that might saturate, which become rests; takes what all
   come to times the zero point away from the sums of each channel. */
INLINE TARGET_8 void read_weights(const bl_byte_products_run_t *run, const bl_task_t *task, const int8_t *weights, int64_t from,
    bl_chunk_t *chunk, __m256i *shifts) {
    const bl_byte_products_t *p = run->problem;
    __m256i ones = _mm256_set1_epi8(1), one = _mm256_set1_epi16(1), zero = _mm256_set1_epi32(run->bytes.zero);
    __m256i low = _mm256_set1_epi16(0xff), most = _mm256_set1_epi16(INT16_MAX), least = _mm256_set1_epi16(INT16_MIN);
    int64_t size = pixel_nbytes(p);
    int64_t of_run = pixel_nbytes(p) / BL_QUAD * (p->dilations[1] == 1 ? p->kernel[1] : 1), of_row = n_quads(p) / p->kernel[0];
    bl_rest_t *rests[2] = {chunk->rests[0], chunk->rests[1]};
    chunk->n_segments = 0;
    for (int64_t q = from; q < from + chunk->n;) {
        int64_t column = q % of_row / of_run, at = q % of_run, n = of_run - at < from + chunk->n - q ? of_run - at : from + chunk->n - q;
        int64_t src = q / of_row * p->dilations[0] * task->row + column * p->dilations[1] * task->pixel + at * BL_QUAD;
        chunk->segments[chunk->n_segments++] = (bl_segment_t){src, n};
        int64_t channel = at * BL_QUAD % size;
        for (int64_t i = 0; i < n; i++, q++, channel = channel + BL_QUAD == size ? 0 : channel + BL_QUAD)
            for (int half = 0; half < 2; half++) {
                __m256i w = _mm256_loadu_si256((const __m256i *)(weights + q * BL_QUAD * BL_PANEL + 32 * half));
                __m256i sums = _mm256_maddubs_epi16(ones, w), extreme = _mm256_maddubs_epi16(quad_at(task->largest + channel), w);
                __m256i is_more = _mm256_or_si256(_mm256_cmpeq_epi16(extreme, most), _mm256_cmpeq_epi16(extreme, least));
                __m256i rest = _mm256_and_si256(is_more, _mm256_andnot_si256(low, w));
                shifts[half] = _mm256_sub_epi32(shifts[half], _mm256_madd_epi16(sums, one));
                _mm256_store_si256((__m256i *)(chunk->weights[q - from] + 32 * half), _mm256_xor_si256(w, rest));
                _mm256_storeu_si256((__m256i *)rests[half]->weights, rest);
                rests[half]->src = src + i * BL_QUAD;
                rests[half] += !_mm256_testz_si256(is_more, is_more);
            }
    }
    for (int half = 0; half < 2; half++) {
        shifts[half] = _mm256_mullo_epi32(shifts[half], zero);
        chunk->n_rests[half] = rests[half] - chunk->rests[half];
    }
}

/* The functions of some results, one after the other over all of them. */
TARGET_8 static void finish(const bl_byte_products_run_t *run, const bl_panel_t *panel, vec_8 (*results)[2], int64_t n) {
    const bl_tail_t *t = &run->problem->tail;
    vec_8 zero = {0};
#define ALL(FUNCTION)                         \
    for (int64_t r = 0; r < n; r++)           \
        _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++) { \
            vec_8 x = results[r][v];          \
            results[r][v] = FUNCTION;         \
        }
    if (t->slope != 1) ALL(max_8(zero, x) + t->slope * min_8(zero, x))
    if (t->gate == BL_NO_GATE || t->low > -INFINITY || t->high < INFINITY) ALL(min_8(panel->high[v], max_8(panel->low[v], x)))
    if (panel->is_direct) return;
    if (t->gate != BL_NO_GATE) ALL(gated_8(t, x, t->gate, t->n_gate_alphas))
    ALL(x * panel->factor[v] + panel->shift[v])
    if (run->problem->dst_is_f32) return;
    vec_8 least = run->bytes.least - zero, most = run->bytes.most - zero;
    ALL(min_8(most, max_8(least, x)))
#undef ALL
}

/* Results of 32 bits. */
INLINE TARGET_8 void copy_results(const bl_panel_t *panel, const __m256i (*results)[2], char *to, int64_t step, int64_t n) {
    for (; n > 0; n--, results++, to += 4 * step)
        if (panel->n == BL_PANEL)
            _mm256_storeu_si256((__m256i *)to, (*results)[0]), _mm256_storeu_si256((__m256i *)to + 1, (*results)[1]);
        else
            memcpy(to, results, (size_t)panel->n * 4);
}

/* One result or two side by side, from their words. */
INLINE TARGET_8 void write_bytes(const bl_panel_t *panel, const __m256i *words, char *to, int64_t step, const int n,
    const int is_plain) {
    __m256i bytes = bytes_of_words(words[0], words[n - 1]);
    if (panel->has_bounds)
        bytes = _mm256_xor_si256(_mm256_min_epu8(panel->most, _mm256_max_epu8(panel->least, bytes)), panel->flip);
#pragma GCC unroll 2
    for (int i = 0; i < n; i++, to += step) {
        __m128i half = i ? _mm256_extracti128_si256(bytes, 1) : _mm256_castsi256_si128(bytes);
        if (panel->n == BL_PANEL)
            _mm_storeu_si128((__m128i *)to, half);
        else if (is_plain)
            _mm_storel_epi64((__m128i *)to, half);
        else
            memcpy(to, &half, (size_t)panel->n);
    }
}

/* Results of a row in the channels of a panel, from their sums. By itself, since the code of all strips is large. */
__attribute__((noinline)) TARGET_8 static void write_strip(const bl_byte_products_run_t *run, const bl_panel_t *panel,
    __m256i (*sums)[2], char *to, int64_t n) {
    const bl_byte_products_t *p = run->problem;
    if (p->dst_is_s32) {
        copy_results(panel, (const __m256i(*)[2])sums, to, p->dst_pixel, n);
        return;
    }
    vec_8 results[BL_STRIP][2];
    __m256i words[BL_STRIP];
    for (int64_t r = 0; r < n; r++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) results[r][v] = (vec_8)_mm256_cvtepi32_ps(sums[r][v]) * panel->scale[v] + panel->bias[v];
    finish(run, panel, results, n);
    if (p->dst_is_f32) {
        copy_results(panel, (const __m256i(*)[2])results, to, p->dst_pixel, n);
        return;
    }
    for (int64_t r = 0; r < n; r++) words[r] = words_of(panel, results[r][0], results[r][1]);
    for (int64_t r = 0; r + 2 <= n; r += 2) write_bytes(panel, words + r, to + r * p->dst_pixel, p->dst_pixel, 2, 0);
    if (n % 2) write_bytes(panel, words + n - 1, to + (n - 1) * p->dst_pixel, 0, 1, 0);
}

/* The same of bytes by scale and bias alone, for some length. */
INLINE TARGET_8 void write_plain(const bl_panel_t *panel, __m256i (*sums)[2], char *to, int64_t step, const int n) {
    __m256i words[BL_STRIP];
#pragma GCC unroll 6
    for (int r = 0; r < n; r++) {
        vec_8 results[2];
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) results[v] = (vec_8)_mm256_cvtepi32_ps(sums[r][v]) * panel->scale[v] + panel->bias[v];
        words[r] = words_of(panel, results[0], results[1]);
    }
#pragma GCC unroll 3
    for (int r = 0; r < n; r += 2) write_bytes(panel, words + r, to + r * step, step, r + 1 < n ? 2 : 1, 1);
}

/* As these instructions, since compilers copy registers and spill some: those of a strip are all that there are. */
INLINE TARGET_8 void add_products(__m256i *sum, __m256i quad, const int8_t *weights, __m256i one) {
    __m256i pairs;
    __asm__("vpmaddubsw %[weights], %[quad], %[pairs]\n\t"
            "vpmaddwd %[one], %[pairs], %[pairs]\n\t"
            "vpaddd %[pairs], %[sum], %[sum]"
            : [sum] "+x"(*sum), [pairs] "=&x"(pairs)
            : [quad] "x"(quad), [weights] "m"(*(const __m256i_u *)weights), [one] "x"(one));
}

/* Sums of some results of a row in some quads of a panel; so_far: where those in the quads before are, or NULL. */
INLINE TARGET_8 void compute_strip(const bl_chunk_t *chunk, const __m256i *shifts, const uint8_t *src, int64_t step,
    __m256i (*so_far)[2], __m256i sums[BL_STRIP][2], const int n) {
    const __m256i one = _mm256_set1_epi16(1);
#pragma GCC unroll 6
    for (int r = 0; r < n; r++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) sums[r][v] = so_far ? _mm256_add_epi32(so_far[r][v], shifts[v]) : shifts[v];
    const int8_t *weights = chunk->weights[0];
    int64_t thrice = 3 * step;
    for (int64_t i = 0; i < chunk->n_segments; i++) {
        const uint8_t *from = src + chunk->segments[i].src, *end = from + BL_QUAD * chunk->segments[i].n;
        for (; from < end; from += BL_QUAD, weights += BL_QUAD * BL_PANEL) {
            const uint8_t *behind = from + 4 * step;
#pragma GCC unroll 6
            for (int r = 0; r < n; r++) {
                __m256i x = quad_at((r < 4 ? from : behind) + (r == 3 ? thrice : r % 4 * step));
                add_products(&sums[r][0], x, weights, one);
                add_products(&sums[r][1], x, weights + 32, one);
            }
        }
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++)
        for (int64_t i = 0; i < chunk->n_rests[v]; i++) {
            const bl_rest_t *rest = &chunk->rests[v][i];
#pragma GCC unroll 6
            for (int r = 0; r < n; r++) {
                add_products(&sums[r][v], quad_at(src + rest->src + r * step), rest->weights, one);
            }
        }
}

INLINE TARGET_8 void take_away(const int32_t *excesses, __m256i sums[BL_STRIP][2], const int n) {
#pragma GCC unroll 6
    for (int r = 0; r < n; r++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) sums[r][v] = _mm256_sub_epi32(sums[r][v], _mm256_set1_epi32(excesses[r]));
}

INLINE TARGET_8 void copy_sums(__m256i from[BL_STRIP][2], __m256i (*to)[2], const int n) {
#pragma GCC unroll 6
    for (int r = 0; r < n; r++) to[r][0] = from[r][0], to[r][1] = from[r][1];
}

/* The results of a task in a panel, those of each row in strips as even as can be. */
TARGET_8 static void compute_panel(const bl_byte_products_run_t *run, const bl_task_t *task, int64_t first, __m256i (*sums)[2],
    bl_chunk_t *chunk) {
    const bl_byte_products_t *p = run->problem;
    const int8_t *weights = run->weights + first * BL_QUAD * n_quads(p);
    bl_panel_t panel = panel_at(run, first);
    int64_t n = task->columns.last - task->columns.first, n_strips = n_parts(n, BL_STRIP), all = n_quads(p);
    int64_t shortest = n / n_strips, n_longer = n % n_strips, n_chunks = n_parts(all, BL_QUADS_AT_ONCE);
    int64_t step = task->steps[1], nbytes = p->dst_is_f32 || p->dst_is_s32 ? 4 : 1, dst_step = p->dst_pixel * nbytes;
    for (int64_t part = 0; part < n_chunks; part++) {
        bl_range_t quads = part_of(all, part, n_chunks);
        __m256i shifts[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
        chunk->n = quads.last - quads.first;
        read_weights(run, task, weights, quads.first, chunk, shifts);
        __m256i of_strip[BL_STRIP][2], (*so_far)[2] = n_chunks == 1 ? of_strip : sums;
        int is_plain = n_chunks == 1 && panel.is_plain;
        const int32_t *excesses = part == n_chunks - 1 ? task->excesses : NULL;
        for (int64_t y = task->rows.first; y < task->rows.last; y++) {
            const uint8_t *src = task->src + (y - task->rows.first) * task->steps[0];
            int64_t place = task->image * p->dst_image + y * p->dst_row + task->columns.first * p->dst_pixel + first;
            char *to = run->dst + place * nbytes;
            for (int64_t strip = 0, end; strip < n_strips;) {
                end = strip < n_longer ? n_longer : n_strips;
#define CASE(N)                                                                                 \
    case N:                                                                                     \
        for (; is_plain && strip < end; strip++, src += N * step, to += N * dst_step) {         \
            __m256i results[BL_STRIP][2];                                                       \
            compute_strip(chunk, shifts, src, step, NULL, results, N);                          \
            if (excesses) take_away(excesses, results, N), excesses += N;                       \
            write_plain(&panel, results, to, dst_step, N);                                      \
        }                                                                                       \
        for (; strip < end; strip++, src += N * step, to += N * dst_step) {                     \
            __m256i results[BL_STRIP][2];                                                       \
            compute_strip(chunk, shifts, src, step, part ? so_far : NULL, results, N);          \
            if (excesses) take_away(excesses, results, N), excesses += N;                       \
            copy_sums(results, so_far, N);                                                      \
            if (part == n_chunks - 1) write_strip(run, &panel, so_far, to, N);                  \
            if (n_chunks > 1) so_far += N;                                                      \
        }                                                                                       \
        break;
                switch (shortest + (strip < n_longer)) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
#undef CASE
            }
        }
    }
}

static void work(void *given) {
    const bl_byte_products_run_t *run = given;
    const bl_byte_products_t *p = run->problem;
    int64_t n_rows = n_parts(p->results[0], p->results_of_task[0]), n_columns = n_parts(p->results[1], p->results_of_task[1]);
    int64_t n_panels = n_parts(p->n_dst, BL_PANEL), n_shares = n_parts(n_panels, p->panels_of_task), last_block = -1;
    bl_range_t tasks = bl_share(p->n_images * n_rows * n_columns * n_shares);
    char *own = run->scratchpad + omp_get_thread_num() * own_nbytes(p);
    char *largest = own + source_nbytes(p), *excesses = largest + whole_lines(pixel_nbytes(p));
    bl_task_t task = {.largest = (uint8_t *)largest, .excesses = p->has_weights_zero ? (int32_t *)excesses : NULL};
    for (int64_t i = tasks.first; i < tasks.last; i++) {
        int64_t block = i / n_shares;
        if (block != last_block) {
            task.image = block / n_columns / n_rows;
            task.rows = part_of(p->results[0], block / n_columns % n_rows, n_rows);
            task.columns = part_of(p->results[1], block % n_columns, n_columns);
            find_source(run, &task, (uint8_t *)own);
            find_largest(p, &task);
            if (task.excesses) find_excesses(run, &task);
            last_block = block;
        }
        bl_range_t panels = part_of(n_panels, i % n_shares, n_shares);
        for (int64_t number = panels.first; number < panels.last; number++) {
            char *sums = excesses + excesses_nbytes(p);
            compute_panel(run, &task, number * BL_PANEL, (__m256i(*)[2])sums, (bl_chunk_t *)(sums + sums_nbytes(p)));
        }
    }
}

static int run_all(const bl_byte_products_t *p, void *const *data) {
    const int32_t *weights_zero = data[BL_PRODUCTS_WEIGHTS_ZERO];
    bl_byte_products_run_t run = {p, data[BL_PRODUCTS_SRC], data[BL_PRODUCTS_WEIGHTS], data[BL_PRODUCTS_BIAS],
        data[BL_PRODUCTS_DST], data[BL_PRODUCTS_SCRATCHPAD],
        bytes_of(data + BL_PRODUCTS_SRC_SCALE, p->src_is_signed, p->dst_is_signed), weights_zero ? *weights_zero : 0,
        data[BL_PRODUCTS_FACTORS]};
    /* dnnl_invalid_arguments: padding is bytes, too */
    if (run.bytes.zero != (uint8_t)run.bytes.zero || run.weights_zero != (int8_t)run.weights_zero) return 2;
    bl_parallel(p->n_threads, work, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_byte_products, BL_PRODUCTS_ARGS, run_all)
