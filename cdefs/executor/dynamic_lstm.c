#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "dynamic_lstm.h"
#include "dynamic_quantization.h"
#include "regions.h"

/* Columns of weights whose sums are in registers at once, and rows of the state beside them. */
enum { BL_COLUMNS = 32, BL_ROWS = 2 };

static int64_t n_columns(const bl_dynamic_lstm_t *p) { return (4 * p->size + BL_COLUMNS - 1) / BL_COLUMNS * BL_COLUMNS; }

/* Rows of a panel, and from one state to the next. */
static int64_t apart(const bl_dynamic_lstm_t *p) { return (p->size + 31) / 32 * 32; }

/* Of a side: sums and cells as floats, then totals in 32 bits, then the state in words. */
static int64_t n_floats(const bl_dynamic_lstm_t *p) { return p->batch * (n_columns(p) + apart(p) + 16); }

static int64_t side_nbytes(const bl_dynamic_lstm_t *p) {
    return n_floats(p) * (int64_t)sizeof(float) + (p->batch * apart(p) * (int64_t)sizeof(int16_t) + 63) / 64 * 64;
}

int64_t bl_dynamic_lstm_scratchpad(const bl_dynamic_lstm_t *problem) { return problem->n_sides * side_nbytes(problem); }

#if defined(__x86_64__)
#include "vectors.h"

typedef struct {
    const bl_dynamic_lstm_t *problem;
    void *const *data;
} bl_dynamic_lstm_run_t;

/* A direction; `state` is what its last place left, quantised to words around 0 of `step`, whose rows come to totals. */
typedef struct {
    const bl_dynamic_lstm_t *problem;
    const int8_t *weights;
    const float *scales;
    const int32_t *zeros;
    const float *state;
    float step, *sums, *cells;
    int32_t *totals;
    int16_t *words;
} bl_side_t;

INLINE TARGET_8 vec_8 eight_of(const float *from, int64_t n) { return n < 8 ? first_of_8(from, n) : *(const vec_8 *)from; }

/* As onnxruntime quantises: by one scale for the states of all sequences. */
TARGET_8 static void quantize(bl_side_t *side) {
    const bl_dynamic_lstm_t *p = side->problem;
    int64_t n = p->batch * p->size;
    vec_8 lows = {0}, highs = {0};
    __m256 are_nan = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += 8) {
        vec_8 x = eight_of(side->state + i, n - i);
        lows = min_8(x, lows), highs = max_8(x, highs);
        are_nan = _mm256_or_ps(are_nan, _mm256_cmp_ps((__m256)x, (__m256)x, _CMP_UNORD_Q));
    }
    float low = 0, high = 0;
    for (int lane = 0; lane < 8; lane++) {
        if (lows[lane] < low) low = lows[lane];
        if (highs[lane] > high) high = highs[lane];
    }
    int zero;
    side->step = bl_dynamic_scale(low, high, _mm256_movemask_ps(are_nan), &zero);
    __m256i least = _mm256_set1_epi32(-zero), most = _mm256_set1_epi32(255 - zero);
    for (int64_t row = 0; row < p->batch; row++) {
        __m256i total = _mm256_setzero_si256();
        for (int64_t i = 0; i < p->size; i += 8) {
            vec_8 x = eight_of(side->state + row * p->size + i, p->size - i) / side->step;
            __m256i quanta = _mm256_min_epi32(most, _mm256_max_epi32(least, _mm256_cvtps_epi32((__m256)x)));
            total = _mm256_add_epi32(total, quanta);
            __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(quanta), _mm256_extracti128_si256(quanta, 1));
            _mm_storeu_si128((__m128i *)(side->words + row * apart(p) + i), words);
        }
        int32_t parts[8];
        _mm256_storeu_si256((__m256i *)parts, total);
        side->totals[row] = parts[0] + parts[1] + parts[2] + parts[3] + parts[4] + parts[5] + parts[6] + parts[7];
    }
}

/* Products of rows of the state and all columns: of words, by pairs, which do not saturate. */
INLINE TARGET_8 void multiply(const bl_side_t *side, int64_t row, const int n_rows) {
    const bl_dynamic_lstm_t *p = side->problem;
    for (int64_t column = 0; column < n_columns(p); column += BL_COLUMNS) {
        const int8_t *weights = side->weights + column * apart(p);
        __m256i sums[BL_ROWS][4];
        memset(sums, 0, sizeof sums);
#pragma GCC unroll 4
        for (int64_t i = 0; i < p->size; i += 2, weights += 2 * BL_COLUMNS) {
            __m256i pairs[BL_ROWS];
#pragma GCC unroll 2
            for (int r = 0; r < n_rows; r++) {
                int32_t pair;
                memcpy(&pair, side->words + (row + r) * apart(p) + i, sizeof pair);
                pairs[r] = _mm256_set1_epi32(pair);
            }
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(weights + 16 * v)));
#pragma GCC unroll 2
                for (int r = 0; r < n_rows; r++)
                    sums[r][v] = _mm256_add_epi32(sums[r][v], _mm256_madd_epi16(wide, pairs[r]));
            }
        }
#pragma GCC unroll 2
        for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                int64_t at = column + 8 * v;
                __m256i zeros = _mm256_maskload_epi32(side->zeros + at, mask_8(4 * p->size - at));
                __m256i excess = _mm256_mullo_epi32(zeros, _mm256_set1_epi32(side->totals[row + r]));
                vec_8 scale = side->step * first_of_8(side->scales + at, 4 * p->size - at);
                vec_8 sum = (vec_8)_mm256_cvtepi32_ps(_mm256_sub_epi32(sums[r][v], excess));
                *(vec_8 *)(side->sums + (row + r) * n_columns(p) + at) = sum * scale;
            }
    }
}

INLINE TARGET_8 vec_8 sigmoid(vec_8 x) { return logistic_8(x * -1.44269504f); }
INLINE TARGET_8 vec_8 tanh_8(vec_8 x) { return 2.0f * logistic_8(x * -2.88539008f) - 1.0f; }

/* The next state of a sequence, of what the source gives each gate. */
TARGET_8 static void follow(const bl_side_t *side, int64_t row, const float *src, float *dst) {
    int64_t size = side->problem->size;
    const float *sums = side->sums + row * n_columns(side->problem);
    float *cells = side->cells + row * apart(side->problem);
    for (int64_t i = 0; i < size; i += 8) {
        int64_t n = size - i;
        vec_8 gates[4];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) gates[g] = eight_of(src + g * size + i, n) + *(const vec_8 *)(sums + g * size + i);
        vec_8 cell = sigmoid(gates[2]) * *(const vec_8 *)(cells + i) + sigmoid(gates[0]) * tanh_8(gates[3]);
        vec_8 state = sigmoid(gates[1]) * tanh_8(cell);
        *(vec_8 *)(cells + i) = cell;
        if (n < 8)
            memcpy(dst + i, &state, (size_t)n * sizeof(float));
        else
            *(vec_8 *)(dst + i) = state;
    }
}

TARGET_8 static void run_side(const bl_dynamic_lstm_run_t *run, int64_t index) {
    const bl_dynamic_lstm_t *p = run->problem;
    void *const *data = run->data;
    int64_t of_states = p->batch * p->size, columns = index * 4 * p->size;
    char *room = (char *)data[BL_LSTM_SCRATCHPAD] + index * side_nbytes(p);
    bl_side_t side = {.problem = p, .sums = (float *)room, .words = (int16_t *)(room + n_floats(p) * (int64_t)sizeof(float))};
    side.cells = side.sums + p->batch * n_columns(p), side.totals = (int32_t *)(side.cells + p->batch * apart(p));
    side.weights = (const int8_t *)data[BL_LSTM_WEIGHTS] + index * n_columns(p) * apart(p);
    side.scales = (const float *)data[BL_LSTM_SCALE] + columns, side.zeros = (const int32_t *)data[BL_LSTM_ZERO] + columns;
    side.state = (const float *)data[BL_LSTM_STATE] + index * of_states;
    const float *src = data[index ? BL_LSTM_SRC_1 : BL_LSTM_SRC], *cell = (const float *)data[BL_LSTM_CELL] + index * of_states;
    memset(side.cells, 0, (size_t)(p->batch * apart(p)) * sizeof(float));
    for (int64_t row = 0; row < p->batch; row++)
        memcpy(side.cells + row * apart(p), cell + row * p->size, (size_t)p->size * sizeof(float));
    for (int64_t step = 0; step < p->n_places; step++) {
        int64_t place = p->is_reverse || index ? p->n_places - 1 - step : step, row = 0;
        float *dst = (float *)data[BL_LSTM_DST] + (place * p->n_sides + index) * of_states;
        quantize(&side);
        for (; row + BL_ROWS <= p->batch; row += BL_ROWS) multiply(&side, row, BL_ROWS);
        for (; row < p->batch; row++) multiply(&side, row, 1);
        for (row = 0; row < p->batch; row++)
            follow(&side, row, src + (place * p->batch + row) * 4 * p->size, dst + row * p->size);
        side.state = dst;
    }
    float *last = data[BL_LSTM_DST_STATE], *last_cell = data[BL_LSTM_DST_CELL];
    if (last) memcpy(last + index * of_states, side.state, (size_t)of_states * sizeof(float));
    for (int64_t row = 0; last_cell && row < p->batch; row++)
        memcpy(last_cell + index * of_states + row * p->size, side.cells + row * apart(p), (size_t)p->size * sizeof(float));
}

static void run_share(void *given) {
    const bl_dynamic_lstm_run_t *run = given;
    bl_range_t sides = bl_share(run->problem->n_sides);
    for (int64_t index = sides.first; index < sides.last; index++) run_side(run, index);
}

static int run_sides(const bl_dynamic_lstm_t *p, void *const *data) {
    bl_dynamic_lstm_run_t run = {p, data};
    bl_parallel(p->n_threads < p->n_sides ? p->n_threads : p->n_sides, run_share, &run);
    return 0;
}
#endif

BL_X86_ENTRY(bl_dynamic_lstm, BL_LSTM_ARGS, run_sides)
