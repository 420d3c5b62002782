#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arguments.h"
#include "regions.h"
#include "winograd.h"

/* Sources whose weights are transformed at once: the matrices of as many rows stay in a core's own cache. */
enum { BL_SRC_AT_ONCE = 64, BL_PAIRED_SRC_AT_ONCE = 256 };

typedef struct {
    const void *src, *weights; /* floats or bf16, as are addend and results */
    const float *bias;
    const void *addend;
    void *dst;
    /* Transformed: [products][tiles_at_once][sources, whole vectors of them], of each thread if it works apart; in bf16 with
       tiles of 2x2, as are weights. */
    float *sources;
    float *own; /* of each thread: [products][tiles_of_task][panel], then weights [products][sources at once][panel] */
    int64_t sources_length, own_length; /* of one thread's */
} bl_buffers_t;

typedef struct {
    int64_t image, row, column;
} bl_tile_t;

/* From one of the matrices to the next: with distances that are powers of two, all of them would compete for the same few
   places of the nearest cache. */
static int64_t apart(int64_t length) { return length + 16; }

static int64_t tiles_along(int64_t extent, int tile) { return (extent + tile - 1) / tile; }

static int64_t n_tiles(const bl_winograd_t *p, int tile) {
    return p->n_images * tiles_along(p->dst_height, tile) * tiles_along(p->dst_width, tile);
}

static bl_tile_t tile_at(const bl_winograd_t *p, int tile, int64_t number) {
    int64_t rows = tiles_along(p->dst_height, tile), columns = tiles_along(p->dst_width, tile);
    return (bl_tile_t){number / (rows * columns), number / columns % rows, number % columns};
}

static int64_t channel_at(const bl_place_t *place, int64_t image, int64_t channel) {
    return image * place->image + channel / place->channels * place->group + channel % place->channels;
}

#if defined(__x86_64__)
#include "vectors.h"

#define TILE 4
#define HAS_PAIRS 0
#define SRC_AT_ONCE BL_SRC_AT_ONCE

#define LANES 8
#define ROWS 6
#define TARGET TARGET_8
#define OWN(name) name##_8
typedef float element_8;
INLINE TARGET vec_8 read_8(const float *from) { return *(const vec_8 *)from; }
INLINE TARGET void write_8(float *to, vec_8 value) { *(vec_8 *)to = value; }
#define keep_8 write_8
#include "winograd_kernel.h"
#undef LANES
#undef ROWS
#undef TARGET
#undef OWN

#define LANES 16
#define ROWS 12
#define TARGET TARGET_16
#define OWN(name) name##_16
typedef float element_16;
INLINE TARGET vec_16 read_16(const float *from) { return *(const vec_16 *)from; }
INLINE TARGET void write_16(float *to, vec_16 value) { *(vec_16 *)to = value; }
#define keep_16 write_16
#include "winograd_kernel.h"
#undef OWN

/* Reads and writes bf16; products and sums are in f32. */
#define OWN(name) name##_bf16
typedef vec_16 vec_bf16;
typedef uint16_t element_bf16;
INLINE TARGET vec_16 read_bf16(const uint16_t *from) {
    return (vec_16)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from)), 16);
}
INLINE TARGET void write_bf16(uint16_t *to, vec_16 value) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(rounded(value)));
}
#define min_bf16 min_16
#define max_bf16 max_16
#define logistic_bf16 rough_logistic
#define keep_bf16 write_16
#include "winograd_kernel.h"
#undef OWN
#undef TILE
#undef HAS_PAIRS
#undef SRC_AT_ONCE
#undef TARGET

#if __GNUC__ >= 10 || defined(__clang__)
/* The same with products of bf16. */
#define TILE 2
#define HAS_PAIRS 1
#define SRC_AT_ONCE BL_PAIRED_SRC_AT_ONCE
#define TARGET TARGET_BF16
#define OWN(name) name##_pairs
typedef vec_16 vec_pairs;
typedef uint16_t element_pairs;
typedef int32_t bl_pair_t __attribute__((aligned(2), may_alias));
#define read_pairs read_bf16
#define write_pairs write_bf16
#define min_pairs min_16
#define max_pairs max_16
#define logistic_pairs rough_logistic
INLINE TARGET void keep_pairs(uint16_t *to, vec_16 value) {
    _mm256_storeu_si256((__m256i *)to, (__m256i)_mm512_cvtneps_pbh((__m512)value));
}
INLINE TARGET __m512i pair_pairs(vec_16 first, vec_16 second) {
    __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)first));
    __m512i high = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh((__m512)second));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
INLINE TARGET vec_16 add_pair_pairs(vec_16 sum, __m512i a, __m512i b) {
    return (vec_16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#include "winograd_kernel.h"
#else
#define work_apart_pairs NULL
#define work_together_pairs NULL
#endif
#endif

static int64_t n_products(const bl_winograd_t *p) { return p->tile == 2 ? 16 : 36; }

static int64_t sources_length(const bl_winograd_t *p) {
    int64_t row = (p->n_src + p->lanes - 1) / p->lanes * p->lanes;
    return n_products(p) * apart(p->tiles_at_once * row) / (p->tile == 2 ? 2 : 1);
}

static int64_t own_length(const bl_winograd_t *p) {
    int64_t panel = 2 * p->lanes;
    int64_t weights = p->tile == 2 ? apart(BL_PAIRED_SRC_AT_ONCE * panel) / 2 : apart(BL_SRC_AT_ONCE * panel);
    return n_products(p) * (apart(p->tiles_of_task * panel) + weights);
}

int64_t bl_winograd_scratchpad(const bl_winograd_t *problem) {
    int64_t n_sources = problem->is_apart ? problem->n_threads : 1;
    int64_t length = n_sources * sources_length(problem) + problem->n_threads * own_length(problem);
    return length * (int64_t)sizeof(float);
}

#if defined(__x86_64__)
typedef struct {
    const bl_winograd_t *problem;
    bl_buffers_t buffers;
    void (*work)(const bl_winograd_t *, const bl_buffers_t *, int, int);
} bl_winograd_run_t;

static void work(void *given) {
    const bl_winograd_run_t *run = given;
    run->work(run->problem, &run->buffers, omp_get_thread_num(), omp_get_num_threads());
}
#endif

int bl_winograd(const void *problem, void *stream, int n_args, const void *args) {
    const bl_winograd_t *p = problem;
    void *data[BL_N_ARGS] = {0};
    (void)stream;
    int status = bl_find_data(p->get_data, args, n_args, data);
    if (status) return status;
    float *scratchpad = data[BL_SCRATCHPAD];
    float *own = scratchpad + (p->is_apart ? p->n_threads : 1) * sources_length(p);
    bl_buffers_t buffers = {data[BL_SRC], data[BL_WEIGHTS], data[BL_BIAS], data[BL_ADDEND], data[BL_DST], scratchpad, own,
        sources_length(p), own_length(p)};
#if defined(__x86_64__)
    bl_winograd_run_t run = {p, buffers, NULL};
    if (p->tile == 2)
        run.work = p->is_apart ? work_apart_pairs : work_together_pairs;
    else if (p->is_bf16)
        run.work = p->is_apart ? work_apart_bf16 : work_together_bf16;
    else if (p->lanes == 16)
        run.work = p->is_apart ? work_apart_16 : work_together_16;
    else
        run.work = p->is_apart ? work_apart_8 : work_together_8;
    if (!run.work) return 3; /* dnnl_unimplemented */
    bl_parallel(p->n_threads, work, &run);
#else
    (void)buffers;
    return 3; /* dnnl_unimplemented */
#endif
    return 0;
}
