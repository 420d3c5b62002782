/* Parallel regions, written as the calls that gcc makes of OpenMP's pragmas: with any compiler the team serves them, or
   libgomp does. */

#pragma once

#include <stdint.h>

void GOMP_parallel(void (*fn)(void *), void *data, unsigned n_threads, unsigned flags);
void GOMP_barrier(void);
int omp_get_thread_num(void);
int omp_get_num_threads(void);

static inline void bl_parallel(int n_threads, void (*fn)(void *), void *data) {
    GOMP_parallel(fn, data, (unsigned)n_threads, 0);
}

typedef struct {
    int64_t first, last;
} bl_range_t;

/* Of `n` tasks, those of the calling thread. */
static inline bl_range_t bl_share(int64_t n) {
    int64_t thread = omp_get_thread_num(), n_threads = omp_get_num_threads();
    return (bl_range_t){n * thread / n_threads, n * (thread + 1) / n_threads};
}
