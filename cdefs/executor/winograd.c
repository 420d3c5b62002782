#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "arguments.h"
#include "regions.h"
#include "winograd.h"

/* Sources whose weights are transformed at once: 36 matrices of as many rows stay in a core's own cache. */
enum { BL_SRC_AT_ONCE = 64 };

typedef struct {
    const void *src, *weights; /* floats or bf16, as are addend and results */
    const float *bias;
    const void *addend;
    void *dst;
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
#include "vectors.h"

#define LANES 8
#define ROWS 6
#define TARGET TARGET_8
#define OWN(name) name##_8
typedef float element_8;
INLINE TARGET vec_8 read_8(const float *from) { return *(const vec_8 *)from; }
INLINE TARGET void write_8(float *to, vec_8 value) { *(vec_8 *)to = value; }
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
#include "winograd_kernel.h"
#undef OWN

/* Products and sums in f32 of what is read and written in bf16. */
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
    if (p->is_bf16)
        run.work = p->is_apart ? work_apart_bf16 : work_together_bf16;
    else if (p->lanes == 16)
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
