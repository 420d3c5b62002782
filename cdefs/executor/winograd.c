#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arguments.h"
#include "regions.h"
#include "winograd.h"

/* Sources whose weights are transformed at once: 36 matrices of as many rows stay in a core's own cache. */
enum { BL_SRC_AT_ONCE = 64 };

typedef struct {
    const float *src, *weights, *bias, *addend;
    float *dst;
    float *sources; /* transformed: [36][tiles_at_once][sources, whole vectors of them], of each thread if it works apart */
    float *own;     /* of each thread: products [36][tiles_of_task][panel], then weights [36][BL_SRC_AT_ONCE][panel] */
    int64_t sources_length, own_length; /* of one thread's */
} bl_buffers_t;

typedef struct {
    int64_t image, row, column;
} bl_tile_t;

/* From one of 36 matrices to the next: with distances that are powers of two, all of them would compete for the same
   few places of the nearest cache. */
static int64_t apart(int64_t length) { return length + 16; }

static int64_t tiles_along(int64_t extent) { return (extent + 3) / 4; }

static int64_t n_tiles(const bl_winograd_t *p) {
    return p->n_images * tiles_along(p->dst_height) * tiles_along(p->dst_width);
}

static bl_tile_t tile_at(const bl_winograd_t *p, int64_t number) {
    int64_t rows = tiles_along(p->dst_height), columns = tiles_along(p->dst_width);
    return (bl_tile_t){number / (rows * columns), number / columns % rows, number % columns};
}

static int64_t channel_at(const bl_place_t *place, int64_t image, int64_t channel) {
    return image * place->image + channel / place->channels * place->group + channel % place->channels;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define LANES 8
#define ROWS 6
#define TARGET __attribute__((target("avx2,fma")))
#define MIN(a, b) _mm256_min_ps(a, b)
#define MAX(a, b) _mm256_max_ps(a, b)
#define OWN(name) name##_8
#include "winograd_kernel.h"
#undef LANES
#undef ROWS
#undef TARGET
#undef MIN
#undef MAX
#undef OWN

#define LANES 16
#define ROWS 12
#define TARGET __attribute__((target("avx512f")))
#define MIN(a, b) _mm512_min_ps(a, b)
#define MAX(a, b) _mm512_max_ps(a, b)
#define OWN(name) name##_16
#include "winograd_kernel.h"
#endif

static int64_t sources_length(const bl_winograd_t *p) {
    return 36 * apart(p->tiles_at_once * ((p->n_src + p->lanes - 1) / p->lanes * p->lanes));
}

static int64_t own_length(const bl_winograd_t *p) {
    return 36 * (apart(p->tiles_of_task * 2 * p->lanes) + apart(INT64_C(2) * BL_SRC_AT_ONCE * p->lanes));
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
    if (p->lanes == 16)
        run.work = p->is_apart ? work_apart_16 : work_together_16;
    else
        run.work = p->is_apart ? work_apart_8 : work_together_8;
    bl_parallel(p->n_threads, work, &run);
#else
    (void)buffers;
    return 3; /* dnnl_unimplemented */
#endif
    return 0;
}
