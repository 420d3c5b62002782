#define _POSIX_C_SOURCE 199309L
#include <stddef.h>
#include <stdint.h>

#include "executor.h"
#include "regions.h"
#include "team.h"

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
        if (stop && is_stopped(stop)) return BL_STOPPED;
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
static void flush(void *given) {
    unsigned *modes = given, mode = get_mode();
    modes[omp_get_thread_num()] = mode;
    set_mode(mode | FLUSH);
}

static void restore(void *given) {
    const unsigned *modes = given;
    set_mode(modes[omp_get_thread_num()]);
}

static int run_flushed(bl_program_t *program, const bl_stop_t *stop, long long *times) {
    if (!CAN_FLUSH || program->flush_threads < 1) return run_steps(program, stop, times);

    if (program->flush_threads == 1) {
        unsigned before = get_mode();
        set_mode(before | FLUSH);
        int status = run_steps(program, stop, times);
        set_mode(before);
        return status;
    }
    bl_parallel(program->flush_threads, flush, program->modes);
    int status = run_steps(program, stop, times);
    bl_parallel(program->flush_threads, restore, program->modes);
    return status;
}

int bl_run(bl_program_t *program, const bl_stop_t *stop, long long *times) {
    int before = program->n_threads ? bl_enter(program->n_threads) : 0;
    int status = BL_NO_THREADS;
    if (program->n_threads < 2 || bl_wake()) {
        align_fresh(program);
        bind(program);
        status = run_flushed(program, stop, times);
        unbind(program);
    }
    if (program->n_threads) bl_leave(before);
    return status;
}
