#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "grouped.h"
#include "regions.h"

enum {
    BL_WIDE = 14,  /* pixels at a time, as many as hide the time that a product takes and leave registers for weights */
    BL_NARROW = 7, /* on narrow maps, and where there are half as many registers */
    BL_TAPS_AT_ONCE = 3,
    BL_VECTORS_AT_ONCE = 2, /* of a group, for few pixels */
    BL_LINE = 64, /* bytes of a line of the caches */
    BL_NEAR = 128 << 10, /* bytes of a core's own cache */
    BL_TURN = 40 << 10, /* bytes of weights for a turn: while it lasts those of the next are fetched */
    BL_MAX_TAPS = 7, /* along a side of the kernel */
};

typedef struct {
    const bl_grouped_t *problem;
    const char *src, *weights;
    const float *bias;
    char *dst, *scratchpad;
} bl_grouped_run_t;

static int64_t itemsize(const bl_grouped_t *p) { return p->is_bf16 ? 2 : 4; }

/* Channels that are read together, of whole groups: with AVX-512, a line of the caches or two. */
static int64_t n_read(const bl_grouped_t *p) {
    int64_t least = p->is_bf16 ? 2 * p->lanes : p->lanes;
    return p->group > least ? p->group : least;
}

static int64_t row_nbytes(const bl_grouped_t *p) { return p->strides[1] * p->n_columns * n_read(p) * itemsize(p); }

static int64_t rows_nbytes(const bl_grouped_t *p) { return (p->kernel[0] * row_nbytes(p) + 63) / 64 * 64; }

static int64_t weights_nbytes(const bl_grouped_t *p) {
    return p->kernel[0] * p->kernel[1] * p->group * n_read(p) * itemsize(p);
}

/* Parts of the channels that are read together are computed in turn, row by row: as many as stay near in their rows and
   weights, since pixels of few channels each are far apart; but not with more weights than can be fetched ahead. */
static int64_t parts_at_once(const bl_grouped_t *p) {
    int64_t n_parts = p->n_channels / n_read(p), most = BL_NEAR / (rows_nbytes(p) + weights_nbytes(p));
    if (most > BL_TURN / weights_nbytes(p)) most = BL_TURN / weights_nbytes(p);
    if (most < 1) most = 1;
    int64_t n_turns = (n_parts + most - 1) / most;
    return (n_parts + n_turns - 1) / n_turns;
}

/* Bytes that a thread holds: of each of these parts the rows that a row of results sees, and the weights in order. */
static int64_t own_nbytes(const bl_grouped_t *p) { return parts_at_once(p) * (rows_nbytes(p) + weights_nbytes(p)); }

int64_t bl_grouped_scratchpad(const bl_grouped_t *problem) { return problem->n_threads * own_nbytes(problem); }

/* One row of the source, `n_parts` of its channels, between the padding that is there already. Columns as far apart as the
   stride lie side by side, so that what neighbours among the results see are neighbours. */
static void read_row(const bl_grouped_t *p, const char *src, char *row, int64_t n_parts) {
    int64_t size = n_read(p) * itemsize(p), apart = rows_nbytes(p), stride = p->strides[1];
    int64_t line = p->pads[1] % stride, column = p->pads[1] / stride, pixel_nbytes = p->src_pixel * itemsize(p);
    for (int64_t i = 0; i < p->extents[1] && column < p->n_columns; i++, src += pixel_nbytes) {
        char *dst = row + (line * p->n_columns + column) * size;
        const char *pixel = src;
        for (int64_t part = 0; part < n_parts; part++, dst += apart, pixel += size)
            if (size == 64) /* of constant sizes these are a few moves */
                memcpy(dst, pixel, 64);
            else if (size == 32)
                memcpy(dst, pixel, 32);
            else
                memcpy(dst, pixel, 128);
        if (++line == stride) line = 0, column++;
    }
}

/* Weights of `n` results whose groups share vectors, by vector, tap and channel, or pair of channels, of the source. */
static void order_weights(const bl_grouped_t *p, const char *weights, char *ordered, int64_t n) {
    int64_t n_units = p->kernel[0] * p->kernel[1] * p->group * itemsize(p) / 4, size = p->group * 4;
    for (int64_t first = 0; first < n / p->group; first += p->lanes / p->group)
        for (int64_t unit = 0; unit < n_units; unit++)
            for (int64_t group = first; group < first + p->lanes / p->group; group++, ordered += size)
                if (size == 16)
                    memcpy(ordered, weights + (group * n_units + unit) * size, 16);
                else
                    memcpy(ordered, weights + (group * n_units + unit) * size, 32);
}

#if defined(__x86_64__)
#include "vectors.h"

typedef int32_t numbers_8 __attribute__((vector_size(32)));
typedef int32_t numbers_16 __attribute__((vector_size(64)));

/* In each lane, the number of its group's first channel. */
#define GROUPS(group) ((numbers_16){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} & -(group))

INLINE TARGET_16 __m512 spread_16(const float *pixel, numbers_16 numbers, int channel, int group) {
    __m512 read = _mm512_loadu_ps(pixel);
    if (group != 4) return _mm512_permutexvar_ps((__m512i)numbers, read);
    switch (channel) { /* within four lanes a CPU moves more at once */
        case 0: return _mm512_permute_ps(read, 0x00);
        case 1: return _mm512_permute_ps(read, 0x55);
        case 2: return _mm512_permute_ps(read, 0xAA);
        default: return _mm512_permute_ps(read, 0xFF);
    }
}

#define OWN(name) name##_8
#define TARGET TARGET_8
#define LANES 8
#define WIDEST BL_NARROW
#define PER_PRODUCT 1
#define ITEM float
#define VEC __m256
#define FACTOR __m256
#define MIN _mm256_min_ps
#define MAX _mm256_max_ps
#define LOAD _mm256_loadu_ps
#define NUMBERS numbers_8
#define FIRST_NUMBERS(group) ((numbers_8){0})
#define SPREAD(pixel, numbers, channel, group) /* of four lanes */ \
    _mm256_permutevar_ps(_mm256_loadu_ps(pixel), (__m256i)(numbers))
#define SPREAD_ONE _mm256_broadcast_ss
#define LOAD_FACTOR _mm256_loadu_ps
#define ADD_PRODUCT(sum, a, b) _mm256_fmadd_ps(a, b, sum)
#define STORE(to, is_bf16, result) _mm256_storeu_ps((float *)(to), result)
#include "grouped_kernel.h"

#define OWN(name) name##_16
#define TARGET TARGET_16
#define LANES 16
#define WIDEST BL_WIDE
#define PER_PRODUCT 1
#define ITEM float
#define VEC __m512
#define FACTOR __m512
#define MIN _mm512_min_ps
#define MAX _mm512_max_ps
#define LOAD _mm512_loadu_ps
#define NUMBERS numbers_16
#define FIRST_NUMBERS(group) GROUPS(group)
#define SPREAD spread_16
#define SPREAD_ONE(item) _mm512_set1_ps(*(item))
#define LOAD_FACTOR _mm512_loadu_ps
#define ADD_PRODUCT(sum, a, b) _mm512_fmadd_ps(a, b, sum)
#define STORE(to, is_bf16, result) _mm512_storeu_ps(to, result)
#include "grouped_kernel.h"

/* Pairs of bf16: as many bits as a float, and as many lanes. */
INLINE TARGET_BF16 void store(char *to, int is_bf16, __m512 result) {
    if (is_bf16)
        _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh(result));
    else
        _mm512_storeu_ps(to, result);
}

#define OWN(name) name##_bf16
#define TARGET TARGET_BF16
#define LANES 16
#define WIDEST BL_WIDE
#define PER_PRODUCT 2
#define ITEM uint16_t
#define VEC __m512
#define FACTOR __m512i
#define MIN _mm512_min_ps
#define MAX _mm512_max_ps
#define LOAD _mm512_loadu_ps
#define NUMBERS numbers_16
#define FIRST_NUMBERS(group) (GROUPS(group) >> 1)
#define SPREAD(pixel, numbers, channel, group) \
    _mm512_permutexvar_epi32((__m512i)(numbers), _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(pixel))))
#define SPREAD_ONE(items) _mm512_set1_epi32(*(const bl_pair_t *)(items))
#define LOAD_FACTOR _mm512_loadu_si512
#define ADD_PRODUCT(sum, a, b) _mm512_dpbf16_ps(sum, (__m512bh)(a), (__m512bh)(b))
#define STORE store
#include "grouped_kernel.h"

static void work(void *given) {
    const bl_grouped_run_t *run = given;
    const bl_grouped_t *p = run->problem;
    void (*compute)(const bl_grouped_t *, const char *const *, const void *, const float *, char *, const char *,
        const char *) =
        p->is_bf16 ? compute_row_bf16 : p->lanes == 16 ? compute_row_16 : compute_row_8;
    int64_t size = itemsize(p), dst_size = p->dst_is_bf16 ? 2 : 4, n_rows = p->results[0];
    int64_t n_parts = p->n_channels / n_read(p), at_once = parts_at_once(p), n_turns = (n_parts + at_once - 1) / at_once;
    bl_range_t share = bl_share(p->n_images * n_turns * n_rows);
    char *own = run->scratchpad + omp_get_thread_num() * own_nbytes(p), *ordered = own + at_once * rows_nbytes(p);
    int64_t first = 0; /* the first row of the source that is not read */
    memset(own, 0, (size_t)(at_once * rows_nbytes(p)));
    for (int64_t i = share.first; i < share.last; i++) {
        int64_t image = i / n_rows / n_turns, from = i / n_rows % n_turns * at_once, row = i % n_rows;
        int64_t n = n_parts - from < at_once ? n_parts - from : at_once, begin = row * p->strides[0] - p->pads[0];
        const char *src = run->src + (image * p->src_image + from * n_read(p)) * size;
        const char *weights = run->weights + from * weights_nbytes(p), *rows[BL_MAX_TAPS];
        int64_t next = from + at_once, n_next = i + n_rows - row < share.last && next < n_parts ? n_parts - next : 0;
        int64_t n_lines = (n_next < at_once ? n_next : at_once) * weights_nbytes(p) / BL_LINE; /* of the next turn */
        const char *later = run->weights + next * weights_nbytes(p);
        char *dst = run->dst + (image * p->dst_image + row * p->dst_row + from * n_read(p)) * dst_size;
        if (row == 0 || i == share.first) {
            first = 0;
            if (p->group < p->lanes) order_weights(p, weights, ordered, n * n_read(p));
        }
        if (first < begin) first = begin;
        for (; first < begin + p->kernel[0] && first < p->extents[0]; first++)
            read_row(p, src + first * p->src_row * size, own + first % p->kernel[0] * row_nbytes(p), n);
        if (p->group < p->lanes) weights = ordered;
        for (int64_t part = 0; part < n; part++, weights += weights_nbytes(p)) {
            for (int64_t tap = 0; tap < p->kernel[0]; tap++) {
                int64_t seen = begin + tap;
                const char *held = own + part * rows_nbytes(p) + seen % p->kernel[0] * row_nbytes(p);
                rows[tap] = seen >= 0 && seen < p->extents[0] ? held : NULL;
            }
            const float *bias = run->bias ? run->bias + (from + part) * n_read(p) : NULL;
            int64_t done = row * n + part, n_steps = n_rows * n;
            const char *ahead = later + done * n_lines / n_steps * BL_LINE;
            compute(p, rows, weights, bias, dst + part * n_read(p) * dst_size, ahead,
                later + (done + 1) * n_lines / n_steps * BL_LINE);
        }
    }
}

static int run_all(const bl_grouped_t *p, void *const *data) {
    bl_grouped_run_t run = {p, data[BL_GROUPED_SRC], data[BL_GROUPED_WEIGHTS], data[BL_GROUPED_BIAS], data[BL_GROUPED_DST],
        data[BL_GROUPED_SCRATCHPAD]};
    bl_parallel(p->n_threads, work, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_grouped, BL_GROUPED_ARGS, run_all)
