#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "group_normalization.h"
#include "regions.h"

enum {
    BL_PIECE = 4096,            /* elements whose moments are found at once: they are read twice, from the nearest cache */
    BL_PIXELS = 64,             /* of a piece with several groups, as long as these are no more than ... */
    BL_LARGE_PIECE = 65536,     /* elements */
    BL_AT_ONCE = 16384,         /* elements of a task that writes results */
    BL_LONGEST_PATTERN = 1024,  /* coefficients at hand */
    BL_WORTH_SHARING = 1 << 14, /* elements */
    BL_INVALID_ARGUMENTS = 2,   /* dnnl_invalid_arguments */
};

/* How many elements, their mean, and the sum of squares of what they are apart from it. */
typedef struct {
    double n, mean, squares;
} bl_moments_t;

/* A normal element is (element - middle) * scale + shift. */
typedef struct {
    float middle, scale, shift;
} bl_set_t;

typedef struct {
    float middle[BL_LONGEST_PATTERN], scale[BL_LONGEST_PATTERN], shift[BL_LONGEST_PATTERN];
} bl_pattern_t;

/* How the work is split, whoever does it. Lines are groups that lie together, or blocks. */
typedef struct {
    int64_t n_lines, line, elements; /* of a line: in elements, or pixels of so many elements */
    int64_t piece, pieces_of_line, n_slots;
    int64_t n_columns; /* that sums are in: lanes, repeated until they are some vectors */
    int64_t period;    /* of coefficients, a multiple of a vector: lanes, repeated; above BL_LONGEST_PATTERN, not repeated */
    int64_t pixels_at_once, parts_of_lanes, tasks_of_block;
    int64_t n_sets, n_rows; /* groups of all images; what a thread can do alone: groups that lie together, or images */
} bl_plan_t;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

static inline float value_at(const void *data, int64_t place, int is_bf16) {
    if (!is_bf16) return ((const float *)data)[place];
    uint32_t bits = (uint32_t)((const uint16_t *)data)[place] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The groups that a block has channels of. */
static bl_range_t groups_of(const bl_group_normalization_t *p, int64_t block) {
    int64_t last = least((block + 1) * p->n_lanes, p->n_channels) - 1;
    return (bl_range_t){block * p->n_lanes / p->group, last / p->group + 1};
}

/* The lanes of a block that are channels of a group. */
static bl_range_t lanes_of(const bl_group_normalization_t *p, int64_t block, int64_t group) {
    int64_t first = group * p->group - block * p->n_lanes;
    return (bl_range_t){first > 0 ? first : 0, least(first + p->group, p->n_lanes)};
}

/* From sums of what n elements, and their squares, are apart from a number near their mean. */
static bl_moments_t moments(int64_t n, double near, double off, double squares) {
    return (bl_moments_t){(double)n, near + off / (double)n, squares - off * off / (double)n};
}

static void add_moments(bl_moments_t *sum, const bl_moments_t *other) {
    double n = sum->n + other->n, apart = other->mean - sum->mean;
    sum->mean += apart * (other->n / n);
    sum->squares += other->squares + apart * apart * (sum->n * other->n / n);
    sum->n = n;
}

static void read_numbers(const bl_vector_t *vector, const void *data, int64_t image, int64_t channel, int64_t n,
                         float *numbers) {
    int64_t first = image * vector->image;
    if (vector->per == 1 && !vector->is_bf16) {
        memcpy(numbers, (const float *)data + first + channel, sizeof(float) * (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) numbers[i] = value_at(data, first + (channel + i) / vector->per, vector->is_bf16);
}

#define LANES 4
#if defined(__x86_64__)
#define TARGET __attribute__((target("sse4.1")))
#else
#define TARGET
#endif
#define OWN(name) name##_4
#include "group_normalization_kernel.h"

#if defined(__x86_64__)
#define LANES 8
#define TARGET __attribute__((target("avx2,fma")))
#define OWN(name) name##_8
#include "group_normalization_kernel.h"

#define LANES 16
#define TARGET __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl")))
#define OWN(name) name##_16
#include "group_normalization_kernel.h"
#endif

typedef void (*bl_fold_t)(const bl_group_normalization_t *, bl_plan_t, const char *, int64_t, float *, bl_moments_t *);
typedef void (*bl_apply_t)(const bl_group_normalization_t *, bl_plan_t, const bl_set_t *, void *const *, int64_t);

/* Lanes, repeated until they are whole vectors, if that is not too long. */
static int64_t period_of(const bl_group_normalization_t *p) {
    int64_t period = p->n_lanes;
    while (period % p->lanes_at_once && period <= BL_LONGEST_PATTERN) period += p->n_lanes;
    if (period <= BL_LONGEST_PATTERN) return period;
    return parts(p->n_lanes > BL_LONGEST_PATTERN ? p->n_lanes : BL_LONGEST_PATTERN + 1, p->lanes_at_once) * p->lanes_at_once;
}

static bl_plan_t planned(const bl_group_normalization_t *p) {
    int64_t n_groups = p->n_channels / p->group;
    bl_plan_t plan = {.n_sets = p->n_images * n_groups, .n_slots = 1, .elements = 1, .period = period_of(p)};
    if (p->is_together) {
        plan.n_lines = plan.n_rows = plan.n_sets;
        plan.line = p->group * p->n_pixels;
        plan.piece = BL_PIECE;
    } else {
        plan.n_lines = p->n_images * p->n_blocks;
        plan.n_rows = p->n_images;
        plan.line = p->n_pixels;
        plan.elements = p->n_lanes;
        plan.piece = most(BL_PIECE / p->n_lanes, most(least(BL_PIXELS, BL_LARGE_PIECE / p->n_lanes), 1));
        plan.n_columns = plan.period;
        while (plan.n_columns < 4 * (int64_t)p->lanes_at_once) plan.n_columns += plan.period;
        plan.n_slots = least(p->n_lanes, (p->n_lanes - 1) / p->group + 2);
    }
    plan.pieces_of_line = parts(plan.line, plan.piece);
    plan.parts_of_lanes = plan.period > BL_LONGEST_PATTERN ? parts(p->n_lanes, BL_LONGEST_PATTERN) : 1;
    plan.pixels_at_once = BL_AT_ONCE / least(p->n_lanes, BL_LONGEST_PATTERN);
    plan.tasks_of_block = parts(p->n_pixels, plan.pixels_at_once) * plan.parts_of_lanes;
    return plan;
}

static bl_set_t standardized(const bl_group_normalization_t *p, bl_plan_t plan, const bl_moments_t *found, int64_t set) {
    int64_t n_groups = p->n_channels / p->group, group = set % n_groups, image = set / n_groups;
    bl_moments_t sum = {0};
    if (p->is_together)
        for (int64_t i = 0; i < plan.pieces_of_line; i++) add_moments(&sum, found + set * plan.pieces_of_line + i);
    else
        for (int64_t block = group * p->group / p->n_lanes; block * p->n_lanes < (group + 1) * p->group; block++)
            for (int64_t i = 0; i < plan.pieces_of_line; i++) {
                int64_t task = (image * p->n_blocks + block) * plan.pieces_of_line + i;
                add_moments(&sum, found + task * plan.n_slots + group - groups_of(p, block).first);
            }
    double variance = sum.squares < 0 ? 0 : sum.squares / sum.n, scale = 1 / sqrt(variance + p->epsilon);
    float middle = (float)sum.mean;
    return (bl_set_t){middle, (float)scale, (float)((middle - sum.mean) * scale)};
}

static int64_t n_found(bl_plan_t plan) { return plan.n_lines * plan.pieces_of_line * plan.n_slots; }

int64_t bl_group_normalization_scratchpad(const bl_group_normalization_t *p) {
    bl_plan_t plan = planned(p);
    int64_t columns = p->is_together ? 0 : 3 * plan.n_columns * (int64_t)sizeof(float) * p->n_threads;
    return n_found(plan) * (int64_t)sizeof(bl_moments_t) + plan.n_sets * (int64_t)sizeof(bl_set_t) + columns;
}

/* A normalisation with its arguments, and what is found on the way. */
typedef struct {
    const bl_group_normalization_t *p;
    bl_plan_t plan;
    void *data[BL_NORM_VECTORS + BL_MAX_VECTORS];
    bl_moments_t *found;
    bl_set_t *sets;
    float *columns;
    bl_fold_t fold;
    bl_apply_t apply;
} bl_run_t;

static void fold_some(const bl_run_t *run, bl_range_t pieces) {
    float *own = run->columns + 3 * run->plan.n_columns * omp_get_thread_num();
    for (int64_t i = pieces.first; i < pieces.last; i++)
        run->fold(run->p, run->plan, run->data[BL_NORM_SRC], i, own, run->found);
}

static void standardize_some(const bl_run_t *run, bl_range_t sets) {
    for (int64_t i = sets.first; i < sets.last; i++) run->sets[i] = standardized(run->p, run->plan, run->found, i);
}

/* Backwards: what was read last is near. */
static void apply_some(const bl_run_t *run, bl_range_t tasks) {
    for (int64_t i = tasks.last; i-- > tasks.first;) run->apply(run->p, run->plan, run->sets, run->data, i);
}

static void run_rows(const bl_run_t *run, bl_range_t rows) {
    int64_t n_rows = run->plan.n_rows, n_pieces = run->plan.n_lines * run->plan.pieces_of_line / n_rows;
    int64_t n_sets = run->plan.n_sets / n_rows;
    int64_t n_tasks = run->p->n_images * run->p->n_blocks * run->plan.tasks_of_block / n_rows;
    for (int64_t row = rows.first; row < rows.last; row++) {
        fold_some(run, (bl_range_t){row * n_pieces, (row + 1) * n_pieces});
        standardize_some(run, (bl_range_t){row * n_sets, (row + 1) * n_sets});
        apply_some(run, (bl_range_t){row * n_tasks, (row + 1) * n_tasks});
    }
}

static void fold_share(void *given) {
    const bl_run_t *run = given;
    fold_some(run, bl_share(run->plan.n_lines * run->plan.pieces_of_line));
}

static void standardize_share(void *given) {
    const bl_run_t *run = given;
    standardize_some(run, bl_share(run->plan.n_sets));
}

static void apply_share(void *given) {
    const bl_run_t *run = given;
    apply_some(run, bl_share(run->p->n_images * run->p->n_blocks * run->plan.tasks_of_block));
}

static void run_share(void *given) {
    const bl_run_t *run = given;
    run_rows(run, bl_share(run->plan.n_rows));
}

/* In three regions and without barriers: where a thread has no CPU, its shares are computed by the one that asked. */
static void run_together(bl_run_t *run) {
    int n_threads = run->p->n_threads;
    bl_parallel(n_threads, fold_share, run);
    if (run->plan.n_sets > 1)
        bl_parallel(n_threads, standardize_share, run);
    else
        standardize_some(run, (bl_range_t){0, run->plan.n_sets});
    bl_parallel(n_threads, apply_share, run);
}

int bl_group_normalization(const void *problem, void *stream, int n_args, const void *args) {
    const bl_group_normalization_t *p = problem;
    bl_run_t run = {.p = p, .plan = planned(p), .fold = fold_4, .apply = apply_4};
    (void)stream;
    int status = bl_find_data(p->get_data, args, n_args, run.data);
    if (status) return status;
#if defined(__x86_64__)
    if (p->lanes_at_once == 8) run.fold = fold_8, run.apply = apply_8;
    if (p->lanes_at_once == 16) run.fold = fold_16, run.apply = apply_16;
#endif
    int64_t n_rows = run.plan.n_rows, n_elements = p->n_images * p->n_blocks * p->n_pixels * p->n_lanes;
    if (n_elements == 0) return 0;
    run.found = run.data[BL_NORM_SCRATCHPAD];
    if (!run.found) return BL_INVALID_ARGUMENTS;
    run.sets = (bl_set_t *)(run.found + n_found(run.plan));
    run.columns = (float *)(run.sets + run.plan.n_sets);
    if (p->n_threads == 1 || n_elements < BL_WORTH_SHARING)
        run_rows(&run, (bl_range_t){0, n_rows});
    else if (n_rows % p->n_threads == 0 || n_rows >= 4 * (int64_t)p->n_threads)
        bl_parallel(p->n_threads, run_share, &run);
    else
        run_together(&run);
    return 0;
}
