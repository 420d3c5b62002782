#define _POSIX_C_SOURCE 199309L
#include "executor.h"

#include <omp.h>
#include <stddef.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>

enum { CAN_FLUSH = 1 };
static const unsigned FLUSH = 0x8040; /* results become zero, and sources count as zero */
static unsigned get_mode(void) { return _mm_getcsr(); }
static void set_mode(unsigned mode) { _mm_setcsr(mode); }
#else
enum { CAN_FLUSH = 0 };
static const unsigned FLUSH = 0;
static unsigned get_mode(void) { return 0; }
static void set_mode(unsigned mode) { (void)mode; }
#endif

static long long now(void) {
    struct timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    return read.tv_sec * 1000000000LL + read.tv_nsec;
}

static int run(void *stream, const bl_step_t *steps, int n_steps, int *failed, long long *times) {
    if (times) times[0] = now();
    for (int i = 0; i < n_steps; i++) {
        const bl_step_t *step = &steps[i];
        int status = step->execute ? step->execute(step->primitive, stream, step->n_args, step->args) : 0;
        if (status) {
            *failed = i;
            return status;
        }
        if (times) times[i + 1] = now();
    }
    return 0;
}

/* The threads of a region are the same from one to the next, so each finds its own mode again. */
static void flush(int n_threads, unsigned *before) {
    if (n_threads == 1) {
        before[0] = get_mode();
        set_mode(before[0] | FLUSH);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        unsigned mode = get_mode();
        before[omp_get_thread_num()] = mode;
        set_mode(mode | FLUSH);
    }
}

static void restore(int n_threads, const unsigned *before) {
    if (n_threads == 1) {
        set_mode(before[0]);
        return;
    }
#pragma omp parallel num_threads(n_threads)
    set_mode(before[omp_get_thread_num()]);
}

int bl_run(void *stream, const bl_step_t *steps, int n_steps, int flush_threads, int *failed, long long *times) {
    if (!CAN_FLUSH || flush_threads < 1) return run(stream, steps, n_steps, failed, times);

    unsigned before[flush_threads];
    flush(flush_threads, before);
    int status = run(stream, steps, n_steps, failed, times);
    restore(flush_threads, before);
    return status;
}
