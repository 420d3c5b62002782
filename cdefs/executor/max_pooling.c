#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "max_pooling.h"
#include "regions.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    BL_VECTORS = 4,    /* at once: as many as hide the time that one takes */
    BL_ROW = 1024,     /* of a source, as much as is folded at once */
    BL_MAX_STRIDE = 8, /* of a window along rows that are folded */
    BL_SCATTERED = 16, /* lanes of a task */
};

/* The part of a window that lies in the source. */
typedef struct {
    int64_t corner, first;                 /* its first element: where it lies, and its number */
    int64_t taps[3], steps[3], numbers[3]; /* from tap to tap: distances, and of numbers */
} bl_window_t;

/* A row of results, or some lanes of its lines: at its first image, group and row. */
typedef struct {
    const char *src;
    char *dst;
    int64_t *indices; /* NULL where none are wanted */
    bl_window_t window; /* of the row's results, but for their columns */
    int64_t number, first, n_lanes;
} bl_task_t;

/* Narrows a window to what lies in the source along one dimension. */
INLINE void narrow(const bl_max_pooling_t *p, bl_window_t *window, int dim, int64_t result) {
    int64_t begin = result * p->strides[dim] - p->pads[dim], step = p->dilations[dim], room = p->extents[dim] - begin;
    int64_t first = begin >= 0 ? 0 : step == 1 ? -begin : (-begin + step - 1) / step;
    int64_t last = room <= 0 ? 0 : step == 1 ? room : (room + step - 1) / step;
    window->corner += (begin + first * step) * p->src.spatial[dim];
    window->first += (begin + first * step) * p->scanned[dim];
    window->taps[dim] = (last < p->kernel[dim] ? last : p->kernel[dim]) - first;
    window->steps[dim] = step * p->src.spatial[dim];
    window->numbers[dim] = step * p->scanned[dim];
}

/* A number as indices say it. */
INLINE int64_t numbered(const bl_max_pooling_t *p, int64_t number) {
    if (p->is_row_major) return number;
    int64_t row = number / p->extents[2];
    return row / p->extents[1] * p->number.spatial[0] + row % p->extents[1] * p->number.spatial[1] +
           number % p->extents[2] * p->number.spatial[2];
}

INLINE float value_at(const char *data, int64_t place, int is_bf16) {
    uint32_t bits;
    if (is_bf16)
        bits = (uint32_t)((const uint16_t *)data)[place] << 16;
    else
        bits = ((const uint32_t *)data)[place];
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE void put(char *data, int64_t place, float value, int is_bf16) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (is_bf16)
        ((uint16_t *)data)[place] = (uint16_t)(bits >> 16); /* exactly: it was one */
    else
        ((uint32_t *)data)[place] = bits;
}

/* One element at a time, for what vectors are too long for. */
static void pool_1(const bl_max_pooling_t *p, bl_task_t task) {
    int is_bf16 = p->itemsize == 2;
    for (int64_t column = 0; column < p->results[2]; column++)
        for (int64_t lane = task.first; lane < p->padded_lanes; lane++) {
            bl_window_t window = task.window;
            narrow(p, &window, 2, column);
            int64_t where = window.first, dst = column * p->dst.spatial[2] + lane * p->dst.lane;
            float best = -INFINITY;
            for (int64_t d = 0; d < window.taps[0]; d++)
                for (int64_t h = 0; h < window.taps[1]; h++)
                    for (int64_t w = 0; w < window.taps[2]; w++) {
                        int64_t at = d * window.steps[0] + h * window.steps[1] + w * window.steps[2];
                        float value = value_at(task.src, window.corner + at + lane * p->src.lane, is_bf16);
                        if (value <= best || best != best) continue;
                        best = value;
                        where = window.first + d * window.numbers[0] + h * window.numbers[1] + w * window.numbers[2];
                    }
            put(task.dst, dst, lane < task.n_lanes ? best : 0.0f, is_bf16);
            if (task.indices)
                task.indices[column * p->indices.spatial[2] + lane * p->indices.lane] =
                    lane < task.n_lanes ? task.number + lane * p->number.lane + numbered(p, where) : 0;
        }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 4
#define TARGET __attribute__((target("sse4.1")))
#define OWN(name) name##_4
#define VEC __m128
#define INTS __m128i
#define MASK __m128
#define LOAD(p) _mm_loadu_ps(p)
#define LOAD_BF16(p) _mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)(p))), 16))
#define STORE(p, v) _mm_storeu_ps(p, v)
#define STORE_BF16(p, v) _mm_storel_epi64((__m128i *)(p), \
    _mm_packus_epi32(_mm_srli_epi32(_mm_castps_si128(v), 16), _mm_setzero_si128()))
#define SET(x) _mm_set1_ps(x)
#define LOAD_INTS(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE_INTS(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define SET_INTS(x) _mm_set1_epi32((int32_t)(x))
#define FROM(x) _mm_add_epi32(SET_INTS(x), _mm_setr_epi32(0, 1, 2, 3))
#define EVEN(p) _mm_shuffle_ps(LOAD(p), LOAD((p) + 4), 0x88)
#define AS_INTS(v) _mm_castps_si128(v)
#define LARGER(v, w) _mm_or_ps(_mm_max_ps(v, w), IS_NAN(v)) /* max_ps is w where one is NaN */
#define IS_NAN(v) _mm_cmpunord_ps(v, v)
#define IS_ABOVE(v, w) _mm_and_ps(_mm_cmpnle_ps(v, w), _mm_cmpord_ps(w, w))
#define IS_SAME(v, w) _mm_or_ps(_mm_cmpeq_ps(v, w), _mm_and_ps(IS_NAN(v), IS_NAN(w)))
#define IS_BELOW(i, j) _mm_castsi128_ps(_mm_cmplt_epi32(i, j))
#define EITHER(m, n) _mm_or_ps(m, n)
#define BOTH(m, n) _mm_and_ps(m, n)
#define PICK(m, v, w) _mm_blendv_ps(w, v, m)
#define PICK_INTS(m, v, w) _mm_castps_si128(PICK(m, _mm_castsi128_ps(v), _mm_castsi128_ps(w)))
#include "max_pooling_kernel.h"

#define LANES 8
#define TARGET __attribute__((target("avx2")))
#define OWN(name) name##_8
#define VEC __m256
#define INTS __m256i
#define MASK __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define LOAD_BF16(p) \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define HIGH_HALVES(v) _mm256_srli_epi32(_mm256_castps_si256(v), 16)
#define STORE_BF16(p, v) _mm_storeu_si128((__m128i *)(p), \
    _mm_packus_epi32(_mm256_castsi256_si128(HIGH_HALVES(v)), _mm256_extracti128_si256(HIGH_HALVES(v), 1)))
#define SET(x) _mm256_set1_ps(x)
#define LOAD_INTS(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_INTS(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define SET_INTS(x) _mm256_set1_epi32((int32_t)(x))
#define FROM(x) _mm256_add_epi32(SET_INTS(x), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define EVEN(p) _mm256_permutevar8x32_ps( \
    _mm256_shuffle_ps(LOAD(p), LOAD((p) + 8), 0x88), _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7))
#define AS_INTS(v) _mm256_castps_si256(v)
#define LARGER(v, w) _mm256_or_ps(_mm256_max_ps(v, w), IS_NAN(v))
#define IS_NAN(v) _mm256_cmp_ps(v, v, _CMP_UNORD_Q)
#define IS_ABOVE(v, w) _mm256_and_ps(_mm256_cmp_ps(v, w, _CMP_NLE_UQ), _mm256_cmp_ps(w, w, _CMP_ORD_Q))
#define IS_SAME(v, w) _mm256_or_ps(_mm256_cmp_ps(v, w, _CMP_EQ_OQ), _mm256_and_ps(IS_NAN(v), IS_NAN(w)))
#define IS_BELOW(i, j) _mm256_castsi256_ps(_mm256_cmpgt_epi32(j, i))
#define EITHER(m, n) _mm256_or_ps(m, n)
#define BOTH(m, n) _mm256_and_ps(m, n)
#define PICK(m, v, w) _mm256_blendv_ps(w, v, m)
#define PICK_INTS(m, v, w) _mm256_castps_si256(PICK(m, _mm256_castsi256_ps(v), _mm256_castsi256_ps(w)))
#include "max_pooling_kernel.h"

#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define OWN(name) name##_16
#define VEC __m512
#define INTS __m512i
#define MASK __mmask16
#define LOAD(p) _mm512_loadu_ps(p)
#define LOAD_BF16(p) \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define STORE_BF16(p, v) \
    _mm256_storeu_si256((__m256i *)(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(v), 16)))
#define SET(x) _mm512_set1_ps(x)
#define LOAD_INTS(p) _mm512_loadu_si512(p)
#define STORE_INTS(p, v) _mm512_storeu_si512(p, v)
#define SET_INTS(x) _mm512_set1_epi32((int32_t)(x))
#define FROM(x) \
    _mm512_add_epi32(SET_INTS(x), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define EVEN(p) _mm512_permutex2var_ps( \
    LOAD(p), _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), LOAD((p) + 16))
#define AS_INTS(v) _mm512_castps_si512(v)
#define LARGER(v, w) _mm512_mask_max_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v, w)
#define IS_NAN(v) _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q)
#define IS_ABOVE(v, w) _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(w, w, _CMP_ORD_Q), v, w, _CMP_NLE_UQ)
#define IS_SAME(v, w) (_mm512_cmp_ps_mask(v, w, _CMP_EQ_OQ) | (IS_NAN(v) & IS_NAN(w)))
#define IS_BELOW(i, j) _mm512_cmplt_epi32_mask(i, j)
#define EITHER(m, n) ((MASK)((m) | (n)))
#define BOTH(m, n) ((MASK)((m) & (n)))
#define PICK(m, v, w) _mm512_mask_mov_ps(w, m, v)
#define PICK_INTS(m, v, w) _mm512_mask_mov_epi32(w, m, v)
#include "max_pooling_kernel.h"
#endif

typedef struct {
    const bl_max_pooling_t *problem;
    void *const *data;
    void (*pool)(const bl_max_pooling_t *, bl_task_t);
} bl_max_pooling_run_t;

static void pool_rows(void *given) {
    const bl_max_pooling_run_t *run = given;
    const bl_max_pooling_t *p = run->problem;
    /* Some lanes of a line at once. The last take with them what makes no vector: no two threads write the same. */
    int64_t lanes = p->is_across ? p->lanes_at_once : 1;
    int64_t at_once = lanes > 1 ? BL_VECTORS * lanes : p->padded_lanes;
    int64_t n_chunks = (p->padded_lanes + at_once - lanes) / at_once, n_rows = p->results[0] * p->results[1];
    bl_range_t numbers = bl_share(p->n_outer * p->n_groups * n_rows * n_chunks);
    for (int64_t number = numbers.first; number < numbers.last; number++) {
        int64_t row = number / n_chunks % n_rows, line = number / n_chunks / n_rows;
        int64_t group = line % p->n_groups, outer = line / p->n_groups;
        int64_t d = row / p->results[1], h = row % p->results[1];
        int64_t dst = outer * p->dst.outer + group * p->dst.group + d * p->dst.spatial[0] + h * p->dst.spatial[1];
        int64_t index = outer * p->indices.outer + group * p->indices.group + d * p->indices.spatial[0] +
                        h * p->indices.spatial[1];
        bl_window_t window = {0};
        narrow(p, &window, 0, d);
        narrow(p, &window, 1, h);
        run->pool(p, (bl_task_t){
            .src = (const char *)run->data[BL_POOL_SRC] + (outer * p->src.outer + group * p->src.group) * p->itemsize,
            .dst = (char *)run->data[BL_POOL_DST] + dst * p->itemsize,
            .indices = run->data[BL_POOL_INDICES] ? (int64_t *)run->data[BL_POOL_INDICES] + index : NULL,
            .window = window,
            .number = outer * p->number.outer + group * p->number.group,
            .first = number % n_chunks * at_once,
            .n_lanes = group == p->n_groups - 1 ? p->last_lanes : p->lanes,
        });
    }
}

static int pool_all(const bl_max_pooling_t *p, void *const *data) {
    bl_max_pooling_run_t run = {p, data, pool_1};
#if defined(__x86_64__)
    if (p->lanes_at_once == 4) run.pool = pool_4;
    if (p->lanes_at_once == 8) run.pool = pool_8;
    if (p->lanes_at_once == 16) run.pool = pool_16;
#endif
    bl_parallel(p->n_threads, pool_rows, &run);
    return 0;
}

BL_ENTRY(bl_max_pooling, BL_POOL_ARGS, pool_all)

/* Where the element of a number lies in the result; -1 where it has none. */
static int64_t place_of(const bl_max_unpooling_t *p, int64_t number) {
    int64_t at[5];
    for (int i = 4; i >= 0; i--) {
        at[i] = i ? number % p->numbered[i] : number;
        number /= p->numbered[i];
    }
    if (number) return -1;
    return at[0] * p->image + at[1] / p->in_group * p->group + at[1] % p->in_group * p->channel +
           at[2] * p->dst.spatial[0] + at[3] * p->dst.spatial[1] + at[4] * p->dst.spatial[2];
}

/* Some lanes of all lines of a plane; returns whether an index is wrong. */
INLINE int scatter(const bl_max_unpooling_t *p, const char *src, const int64_t *indices, char *dst, int64_t task, int size) {
    int64_t n_chunks = (p->lanes + BL_SCATTERED - 1) / BL_SCATTERED, line = task / n_chunks;
    int64_t group = line % p->n_groups, outer = line / p->n_groups, first = task % n_chunks * BL_SCATTERED;
    int64_t n_lanes = group == p->n_groups - 1 ? p->last_lanes : p->lanes;
    int64_t last = first + BL_SCATTERED < n_lanes ? first + BL_SCATTERED : n_lanes;
    int64_t plane = p->numbered[2] * p->numbered[3] * p->numbered[4], pixel = p->dst.spatial[2];
    /* Whether elements of a plane are as far apart as their numbers are. */
    int is_even = p->dst.spatial[1] == p->numbered[4] * pixel && p->dst.spatial[0] == p->numbered[3] * p->dst.spatial[1];
    int64_t number = outer * p->number.outer + group * p->number.group, own = outer * p->dst.outer + group * p->dst.group;
    src += (outer * p->src.outer + group * p->src.group) * size;
    indices += outer * p->indices.outer + group * p->indices.group;
    for (int64_t z = 0; z < p->extents[0]; z++)
        for (int64_t y = 0; y < p->extents[1]; y++)
            for (int64_t x = 0; x < p->extents[2]; x++) {
                int64_t from = z * p->src.spatial[0] + y * p->src.spatial[1] + x * p->src.spatial[2];
                int64_t index = z * p->indices.spatial[0] + y * p->indices.spatial[1] + x * p->indices.spatial[2];
                for (int64_t lane = first; lane < last; lane++) {
                    /* Read once: another thread of the program may change what was fed. */
                    int64_t wanted = *(const volatile int64_t *)&indices[index + lane * p->indices.lane];
                    int64_t ahead = wanted - number - lane * p->number.lane;
                    int64_t to = is_even && ahead >= 0 && ahead < plane ? own + lane * p->dst.lane + ahead * pixel
                                                                        : place_of(p, wanted);
                    if (to < 0) return 1;
                    memcpy(dst + to * size, src + (from + lane * p->src.lane) * size, (size_t)size);
                }
            }
    return 0;
}

typedef struct {
    const bl_max_unpooling_t *problem;
    void *const *data;
    atomic_int is_wrong;
} bl_max_unpooling_run_t;

static void scatter_lines(void *given) {
    bl_max_unpooling_run_t *run = given;
    const bl_max_unpooling_t *p = run->problem;
    const char *src = run->data[BL_POOL_SRC];
    const int64_t *indices = run->data[BL_POOL_INDICES];
    char *dst = run->data[BL_POOL_DST];
    bl_range_t bytes = bl_share(p->nbytes);
    memset(dst + bytes.first, 0, (size_t)(bytes.last - bytes.first));
    GOMP_barrier();
    bl_range_t tasks = bl_share(p->n_outer * p->n_groups * ((p->lanes + BL_SCATTERED - 1) / BL_SCATTERED));
    for (int64_t task = tasks.first; task < tasks.last; task++)
        if (p->itemsize == 2 ? scatter(p, src, indices, dst, task, 2) : scatter(p, src, indices, dst, task, 4)) {
            atomic_store_explicit(&run->is_wrong, 1, memory_order_relaxed);
            return;
        }
}

static int scatter_all(const bl_max_unpooling_t *p, void *const *data) {
    bl_max_unpooling_run_t run = {p, data, 0};
    bl_parallel(p->n_threads, scatter_lines, &run);
    return run.is_wrong ? 2 : 0;
}

BL_ENTRY(bl_max_unpooling, BL_POOL_ARGS, scatter_all)
