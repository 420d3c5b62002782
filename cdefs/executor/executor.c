#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>

#include "executor.h"
#include "team.h"

#include <omp.h>
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

enum { STOPPED = -1 }; /* the library's own are not negative */

static long long now(void) {
    struct timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    return read.tv_sec * 1000000000LL + read.tv_nsec;
}

static void align_fresh(const bl_program_t *program) {
    for (int i = 0; i < program->n_fresh; i++) {
        char **buffer = &program->buffers[program->n_given + i];
        program->gaps[i] = (int)(-(uintptr_t)*buffer % 64);
        *buffer += program->gaps[i];
    }
}

/* Setting a memory's handle cannot fail: the memory is there. */
static void bind(const bl_program_t *program) {
    for (int i = 0; i < program->n_bindings; i++) {
        const bl_binding_t *binding = &program->bindings[i];
        program->set_data(binding->memory, program->buffers[binding->buffer] + binding->offset);
    }
}

static void unbind(const bl_program_t *program) {
    for (int i = 0; i < program->n_bindings; i++) program->set_data(program->bindings[i].memory, NULL);
}

static int run_step(const bl_program_t *program, const bl_step_t *step) {
    if (!step->execute) return 0;
    int is_narrow = step->n_threads < program->n_threads;
    int before = is_narrow ? bl_enter(step->n_threads) : 0;
    int status = step->execute(step->primitive, program->stream, step->n_args, step->args);
    if (is_narrow) bl_leave(before);
    return status;
}

static int is_stopped(const bl_stop_t *stop) {
    return stop->is_asked || (stop->deadline && now() >= stop->deadline);
}

static int run_steps(bl_program_t *program, const bl_stop_t *stop, long long *times) {
    if (times) times[0] = now();
    for (int i = 0; i < program->n_steps; i++) {
        if (stop && is_stopped(stop)) return STOPPED;
        int status = run_step(program, &program->steps[i]);
        if (status) {
            program->failed = i;
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

static int run_flushed(bl_program_t *program, const bl_stop_t *stop, long long *times) {
    if (!CAN_FLUSH || program->flush_threads < 1) return run_steps(program, stop, times);

    unsigned before[program->flush_threads];
    flush(program->flush_threads, before);
    int status = run_steps(program, stop, times);
    restore(program->flush_threads, before);
    return status;
}

int bl_run(bl_program_t *program, const bl_stop_t *stop, long long *times) {
    int before = program->n_threads ? bl_enter(program->n_threads) : 0;
    if (program->n_threads > 1) bl_wake();
    align_fresh(program);
    bind(program);
    int status = run_flushed(program, stop, times);
    unbind(program);
    if (program->n_threads) bl_leave(before);
    return status;
}
