/* Threads that compute the shares of parallel regions: a caller and its workers.

   A caller offers each worker its share, computes its own, and then those that no worker has begun. Every share that
   was begun is computed by a thread that does nothing else meanwhile, and the one whose share it is always comes for it
   unless somebody has taken it; so shares may wait for each other, as barriers do.

   Where others want the CPUs too and shares are short, fewer threads compute all of them in turn, and the other workers
   are left asleep: to wake them costs more than they are worth. They come at a barrier, and look from time to time for
   shares that others wait for by means that the team does not see.

   Who waits spins for a while, between regions by turns with other threads that want its CPU, then sleeps. Where a wait
   inside of a region outlasts that, or a worker that should be awake has not come for its share when the caller has
   computed its own, a thread of the team has lost its CPU to somebody else, and the time that this took is lost. Where
   more is lost than to sleep would cost, spinning keeps them from coming back: for some time nobody spins, then that is
   tried again. */

#define _GNU_SOURCE
#include "team.h"

#include <stddef.h>

#if defined(__linux__) && defined(__LP64__)

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "imports.h"
#include "team_waiting.h"

/* What a thread knows of itself. */
typedef struct {
    team_t *team;
    int width;    /* of the regions that it begins; 0: nobody said */
    int depth;    /* regions that it is inside of; those inside of others are one thread wide */
    int share, n_shares;
    int keeps_team;
    long next, end, step, chunk, trip; /* of a loop that is shared out */
} thread_t;

static _Thread_local thread_t here;

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static team_t *idle; /* teams without a caller */
static int n_idle_workers;
static pthread_key_t at_end;

/* Workers. */

/* The shares of a region that no worker has begun; by a thread that has computed its own. */
static void compute_unbegun(team_t *team) {
    for (int i = 0; i < here.n_shares - 1; i++) {
        worker_t *worker = team->workers[i];
        uint32_t offer = atomic_load(&worker->offer);
        if (!take_offer(worker, offer)) continue;
        here.share = i + 1;
        team->fn(team->data);
        if (offer % N_STATES == WANTED) note_unbegun(team, worker);
        atomic_fetch_sub(&team->unfinished, 1);
    }
}

static void *work(void *given) {
    worker_t *worker = given;
    team_t *team = worker->team;
    unsigned mode = get_mode();
    for (;;) {
        uint32_t offer = wait_for_offer(worker);
        if (!take_offer(worker, offer)) continue;
        if (!team->fn) return NULL;
        if (offer % N_STATES == AT_LEISURE) atomic_fetch_or(&team->together, bit_of(team->fn));
        if (atomic_load(&worker->woken)) atomic_store(&worker->woken, 0);
        if (mode != team->mode) set_mode(mode = team->mode);
        here = (thread_t){.team = team, .width = team->width, .depth = 1, .share = worker->share, .n_shares = team->n_shares};
        team->fn(team->data);
        if (team->n_wanted < team->n_shares) compute_unbegun(team);
        if (atomic_fetch_sub(&team->unfinished, 1) == 1 && atomic_load(&team->caller_sleeps)) wake(&team->unfinished, 1);
    }
}

static int add_worker(team_t *team) {
    worker_t **workers = realloc(team->workers, (size_t)(team->n_workers + 1) * sizeof *workers);
    if (!workers) return 0;
    team->workers = workers;
    worker_t *worker = aligned_alloc(LINE, sizeof *worker);
    if (!worker) return 0;
    *worker = (worker_t){.offer = TAKEN, .team = team, .share = team->n_workers + 1};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the business of the program's own threads */
    int error = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free(worker);
        return 0;
    }
    char name[16];
    snprintf(name, sizeof name, "blocklayout-%u", (unsigned)worker->share % 1000);
    pthread_setname_np(worker->thread, name);
    team->workers[team->n_workers++] = worker;
    return 1;
}

/* Teams. */

static team_t *new_team(void) {
    team_t *team = aligned_alloc(LINE, sizeof *team);
    if (team) *team = (team_t){0};
    return team;
}

static void end_team(team_t *team) {
    team->fn = NULL;
    for (int i = 0; i < team->n_workers; i++) offer_share(team->workers[i], team->region + 1, WANTED);
    for (int i = 0; i < team->n_workers; i++) {
        pthread_join(team->workers[i]->thread, NULL);
        free(team->workers[i]);
    }
    free(team->workers);
    free(team);
}

/* An idle team on the same CPUs, any other, or a new one. */
static team_t *take_team(const cpu_set_t *cpus) {
    pthread_mutex_lock(&idle_lock);
    team_t **place = &idle;
    while (*place && !CPU_EQUAL(&(*place)->cpus, cpus)) place = &(*place)->next;
    if (!*place) place = &idle;
    team_t *team = *place;
    if (team) {
        *place = team->next;
        n_idle_workers -= team->n_workers;
    }
    pthread_mutex_unlock(&idle_lock);
    return team ? team : new_team();
}

static void give_team(team_t *team) {
    pthread_mutex_lock(&idle_lock);
    int is_kept = !idle || n_idle_workers + team->n_workers <= n_cpus;
    if (is_kept) {
        team->next = idle;
        idle = team;
        n_idle_workers += team->n_workers;
    }
    pthread_mutex_unlock(&idle_lock);
    if (!is_kept) end_team(team);
}

/* The calling thread's team, with threads for so many shares if they can be had; they run where the caller may. */
static team_t *team_of(int n_shares) {
    team_t *team = here.team;
    if (!team || !team->width) {
        cpu_set_t cpus;
        if (sched_getaffinity(0, sizeof cpus, &cpus)) CPU_ZERO(&cpus);
        if (!team) team = here.team = take_team(&cpus);
        if (!team) return NULL;
        if (!CPU_EQUAL(&team->cpus, &cpus)) {
            for (int i = 0; i < team->n_workers; i++) pthread_setaffinity_np(team->workers[i]->thread, sizeof cpus, &cpus);
            team->cpus = cpus;
        }
        team->width = n_shares;
        atomic_fetch_add(&n_busy, n_shares);
    }
    while (team->n_workers + 1 < n_shares && add_worker(team)) continue;
    return team;
}

static void let_go(void) {
    team_t *team = here.team;
    if (!team || !team->width) return;
    atomic_fetch_sub(&n_busy, team->width);
    team->width = 0;
    if (here.keeps_team) return;
    here.team = NULL;
    give_team(team);
}

/* OpenMP, as compiled code calls it. */

static int get_max_threads(void) { return here.width ? here.width : n_cpus; }
static int get_num_threads(void) { return here.depth == 1 ? here.n_shares : 1; }
static int get_thread_num(void) { return here.depth == 1 ? here.share : 0; }
static int in_parallel(void) { return here.depth > 0 && here.n_shares > 1; }

static void parallel_start(void (*fn)(void *), void *data, unsigned n_threads) {
    if (here.depth++) return;
    here.share = 0;
    here.n_shares = n_threads ? (int)n_threads : get_max_threads();
    if (here.n_shares == 1) return;
    team_t *team = team_of(here.n_shares);
    if (!team || team->n_workers + 1 < here.n_shares) here.n_shares = team ? team->n_workers + 1 : 1;
    if (here.n_shares == 1) return;
    judge_losses(team, now());
    team->fn = fn;
    team->data = data;
    team->n_shares = here.n_shares;
    team->mode = get_mode();
    atomic_store_explicit(&team->unfinished, (uint32_t)here.n_shares - 1, memory_order_relaxed);
    team->n_wanted = count_wanted(team);
    team->region++;
    for (int i = 0; i < here.n_shares - 1; i++)
        offer_share(team->workers[i], team->region, i + 1 < team->n_wanted ? WANTED : AT_LEISURE);
}

static void parallel_end(void) {
    if (here.depth > 1) {
        here.depth--;
        return;
    }
    team_t *team = here.team;
    if (here.n_shares > 1) {
        if (!is_patient(team)) note_share(team);
        compute_unbegun(team);
        for (uint32_t left; (left = atomic_load(&team->unfinished));)
            wait_inside(team, &team->unfinished, left, &team->caller_sleeps);
    }
    here.depth = here.share = 0;
    here.n_shares = 1;
    if (!here.width) let_go();
}

static void parallel(void (*fn)(void *), void *data, unsigned n_threads, unsigned flags) {
    (void)flags;
    parallel_start(fn, data, n_threads);
    fn(data);
    parallel_end();
}

static void barrier(void) {
    if (here.depth != 1 || here.n_shares == 1) return;
    team_t *team = here.team;
    uint32_t phase = atomic_load(&team->phase);
    if (atomic_fetch_add(&team->arrived, 1) + 1 < (uint32_t)here.n_shares) {
        if (team->n_wanted < team->n_shares) want_all(team);
        wait_inside(team, &team->phase, phase, &team->n_asleep);
        return;
    }
    atomic_store(&team->arrived, 0);
    atomic_fetch_add(&team->phase, 1);
    if (atomic_load(&team->n_asleep)) wake(&team->phase, INT_MAX);
}

/* The chunks of a loop that are a share's own; without a size, there is one for each share. */
static _Bool loop_static_next(long *from, long *to) {
    if (here.depth != 1 || here.n_shares == 1) return 0; /* all of it was given at once */
    long n = (here.end - here.next + here.step + (here.step > 0 ? -1 : 1)) / here.step;
    long chunk = here.chunk ? here.chunk : (n + here.n_shares - 1) / here.n_shares;
    long first = (here.trip++ * here.n_shares + here.share) * chunk;
    if (first >= n) return 0;
    long last = first + chunk < n ? first + chunk : n;
    *from = here.next + first * here.step;
    *to = here.next + last * here.step;
    return 1;
}

static _Bool loop_static_start(long start, long end, long step, long chunk, long *from, long *to) {
    if (step > 0 ? start >= end : start <= end) end = start;
    if (here.depth != 1 || here.n_shares == 1) {
        *from = start;
        *to = end;
        return start != end;
    }
    here.next = start, here.end = end, here.step = step, here.chunk = chunk, here.trip = 0;
    return loop_static_next(from, to);
}

static void loop_end_nowait(void) {}

static const bl_served_t SERVED[] = {
#define SERVE(name, function) {name, (void (*)(void))(function)}
    SERVE("GOMP_parallel", parallel),
    SERVE("GOMP_parallel_start", parallel_start),
    SERVE("GOMP_parallel_end", parallel_end),
    SERVE("GOMP_barrier", barrier),
    SERVE("GOMP_loop_static_start", loop_static_start),
    SERVE("GOMP_loop_static_next", loop_static_next),
    SERVE("GOMP_loop_end", barrier),
    SERVE("GOMP_loop_end_nowait", loop_end_nowait),
    SERVE("omp_get_max_threads", get_max_threads),
    SERVE("omp_get_num_threads", get_num_threads),
    SERVE("omp_get_thread_num", get_thread_num),
    SERVE("omp_in_parallel", in_parallel),
};
/* What it does not have are workers of the parent's: it makes its own. */
static void begin_in_child(void) {
    idle_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    idle = NULL;
    n_idle_workers = 0;
    atomic_store(&n_busy, 0);
    here.team = NULL;
}

static void end_kept_team(void *marker) {
    (void)marker;
    if (here.team) end_team(here.team);
    here.team = NULL;
}

static int is_prepared;

static void prepare(void) {
    is_prepared = !pthread_key_create(&at_end, end_kept_team) && !pthread_atfork(NULL, NULL, begin_in_child);
}

const char *bl_serve(const void *address, int n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    if (!is_prepared) return "the system has no thread-specific key, or no memory, for it";
    n_cpus = n;
    return bl_fill_imports((const void *[]){address, SERVED}, 2, SERVED, sizeof SERVED / sizeof SERVED[0]);
}

int bl_enter(int n_threads) {
    int before = here.width;
    here.width = n_threads;
    return before;
}

void bl_leave(int before) {
    here.width = before;
    if (!before) let_go();
}

int bl_wake(void) {
    if (here.width < 2 || here.depth) return 1;
    team_t *team = team_of(here.width);
    if (!team || team->n_workers + 1 < here.width) return 0;
    if (!is_patient(team)) return 1;
    for (int i = 0; i < team->n_workers && i < here.width - 1; i++)
        if (atomic_load_explicit(&team->workers[i]->sleeps, memory_order_relaxed)) wake(&team->workers[i]->offer, 1);
    return 1;
}

int bl_keep_team(void) {
    here.keeps_team = !pthread_setspecific(at_end, &here);
    return here.keeps_team;
}

int bl_width(void) { return get_max_threads(); }

#else

const char *bl_serve(const void *address, int n_cpus) {
    (void)address, (void)n_cpus;
    return "there are teams on Linux with 64 bits only";
}

int bl_enter(int n_threads) { return (void)n_threads, 0; }
void bl_leave(int before) { (void)before; }
int bl_wake(void) { return 1; }
int bl_keep_team(void) { return 1; }
int bl_width(void) { return 1; }

#endif
