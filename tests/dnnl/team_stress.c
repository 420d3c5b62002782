/* A team, to be compiled with sanitizers and without: regions, barriers, loops, nested and one-thread calls, sizes that
   change, several callers at once, threads that end, memory and threads that the system refuses, forks, and the end of
   the process. Prints "right", or what was wrong. An argument chooses one: "forks", "ends", or "keys". */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* Requests for memory and threads that are granted before all are refused; negative: all are granted. */
static int granted = -1;

static int is_refused(void) { return granted >= 0 && granted-- < 1 && !++granted; }
static void *realloc_or_not(void *old, size_t nbytes) { return is_refused() ? NULL : realloc(old, nbytes); }
static void *aligned_alloc_or_not(size_t to, size_t nbytes) { return is_refused() ? NULL : aligned_alloc(to, nbytes); }
static int create_or_not(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *), void *given) {
    return is_refused() ? EAGAIN : pthread_create(thread, how, fn, given);
}

static _Thread_local int n_yields;
static int count_yield(void) { return ++n_yields, sched_yield(); }

#undef _GNU_SOURCE
#define sched_yield count_yield
#define realloc realloc_or_not
#define aligned_alloc aligned_alloc_or_not
#define pthread_create create_or_not
#include "../../cdefs/executor/imports.c"
#undef _GNU_SOURCE
#include "../../cdefs/executor/team.c"

#include <sys/wait.h>

enum { MOST = 6, N_ITEMS = 97 };

typedef struct {
    int n, marks[MOST], items[N_ITEMS], wrong;
    _Atomic int n_inner;
    long from, to, step, chunk;
} region_t;

static void fail(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
    _exit(1);
}

static void mark(void *given) {
    region_t *region = given;
    region->marks[get_thread_num()]++; /* a race if a share were computed twice */
    if (get_num_threads() != region->n || in_parallel() != (region->n > 1)) fail("wrong number of threads");
}

static void mark_inner(void *given) {
    if (get_num_threads() != 1 || get_thread_num() != 0) fail("a nested region has several threads");
    atomic_fetch_add(&((region_t *)given)->n_inner, 1);
    barrier();
}

static void meet(void *given) {
    region_t *region = given;
    int share = get_thread_num(), next = (share + 1) % region->n;
    for (int round = 1; round <= 3; round++) {
        region->marks[share] = round;
        barrier();
        if (region->marks[next] != round) fail("a barrier let somebody pass");
        barrier();
    }
}

/* As `meet`, by means that the team does not see. */
static void meet_unseen(void *given) {
    region_t *region = given;
    atomic_fetch_add(&region->n_inner, 1);
    while (atomic_load(&region->n_inner) < region->n) sched_yield();
    mark(given);
}

static void nest(void *given) {
    mark(given);
    parallel(mark_inner, given, 3, 0);
    if (get_thread_num() >= get_num_threads()) fail("a nested region changed the outer one");
}

static void loop(void *given) {
    region_t *region = given;
    long from, to;
    if (loop_static_start(region->from, region->to, region->step, region->chunk, &from, &to)) do
            for (long i = from; region->step > 0 ? i < to : i > to; i += region->step) region->items[i]++;
        while (loop_static_next(&from, &to));
    loop_end_nowait();
}

static void check_loop(int n, long from, long to, long step, long chunk) {
    region_t region = {.n = n, .from = from, .to = to, .step = step, .chunk = chunk};
    parallel(loop, &region, (unsigned)n, 0);
    for (long i = 0; i < N_ITEMS; i++) {
        int is_in = step > 0 ? i >= from && i < to && (i - from) % step == 0 : i <= from && i > to && (from - i) % -step == 0;
        if (region.items[i] != is_in) fail("a loop left something out, or did it twice");
    }
}

static void check(int n) {
    region_t marked = {.n = n}, met = {.n = n}, nested = {.n = n};
    parallel(mark, &marked, (unsigned)n, 0);
    parallel(meet, &met, (unsigned)n, 0);
    parallel(nest, &nested, (unsigned)n, 0);
    for (int i = 0; i < MOST; i++)
        if (marked.marks[i] != (i < n) || nested.marks[i] != (i < n)) fail("a share was left out");
    if (atomic_load(&nested.n_inner) != n) fail("a nested region was left out");
    check_loop(n, 0, N_ITEMS, 1, 0);
    check_loop(n, 3, N_ITEMS - 2, 4, 2);
    check_loop(n, N_ITEMS - 1, 5, -3, 1);
    check_loop(n, 5, 5, 1, 0);
}

/* Whether a team spins in a region that begins then, after so much was lost in the one before. */
static int spins(team_t *team, int64_t time_ms, int64_t lost_ms) {
    note_loss(team, lost_ms * 1000000);
    judge_losses(team, time_ms * 1000000);
    return is_patient(team);
}

static void check_patience(void) {
    team_t team = {0};
    if (!spins(&team, 999, 0) || !spins(&team, 1000, 500)) fail("one interruption ended the patience");
    for (int64_t time = 1020; time < 2000; time += 20)
        if (!spins(&team, time, 4)) fail("losses that are borne ended the patience");
    if (!spins(&team, 3000, 0) || !spins(&team, 3004, 4) || spins(&team, 3008, 4)) fail("losses in a row did not end it");
    if (spins(&team, 3017, 0) || !spins(&team, 3018, 0)) fail("the first nap was not 10 ms");
    if (spins(&team, 3019, 2)) fail("a try that failed went on");
    if (spins(&team, 3038, 0) || !spins(&team, 3039, 0)) fail("the nap after a try that failed was not twice as long");
    if (!spins(&team, 4000, 0) || !spins(&team, 4001, 4) || spins(&team, 4002, 4)) fail("peace did not bring patience back");
    if (spins(&team, 4011, 0) || !spins(&team, 4012, 0)) fail("the nap after peace was not as the first");
    for (int64_t time = 4013, nap = 20; nap < 2000; nap *= 2) {
        if (spins(&team, time, 2)) fail("a try that failed went on");
        time += nap < 320 ? nap : 320;
        if (!spins(&team, time++, 0)) fail("a nap was longer than the longest");
    }
}

/* Threads that a region of so many shares gets. */
static int wanted(team_t *team, int n_shares) {
    team->n_shares = n_shares;
    return count_wanted(team);
}

static void check_parts(void) {
    team_t team = {.fn = mark};
    n_cpus = n_busy = 4;
    if (wanted(&team, 4) != 4 || wanted(&team, 9) != 9) fail("a team that is alone is not whole");
    n_busy = 8;
    if (wanted(&team, 4) != 2 || wanted(&team, 3) != 2 || wanted(&team, 2) != 1) fail("one of two teams has not half the CPUs");
    n_busy = 80;
    if (wanted(&team, 4) != 1) fail("a caller does not compute");
    n_busy = 4;
    team.is_impatient = 1;
    if (wanted(&team, 4) != 2 || wanted(&team, 3) != 2 || wanted(&team, 2) != 1) fail("there is no half of the CPUs in a nap");
    team.together = bit_of(mark);
    if (wanted(&team, 4) != 4) fail("shares that wait for each other are computed in turn");
    team.together = 0;
    team.share_ns = LONG_SHARE_NS;
    if (wanted(&team, 4) != 4) fail("long shares are computed in turn");
    team.share_ns = 0;
    team.together = bit_of(mark);
    team.began += NAP_AT_MOST_NS;
    if (wanted(&team, 4) != 2 || team.together) fail("that shares wait for each other is never forgotten");
    n_busy = 0;
}

/* A worker that is not wanted comes for a share that others wait for, and is wanted from then on. */
static void *check_waiting_shares(void *given) {
    region_t region = {.n = 2};
    n_cpus = 1;
    int before = bl_enter(2);
    parallel(meet_unseen, &region, 2, 0);
    if (here.team->n_wanted != 1) fail("a team has more threads than CPUs");
    if (!(here.team->together & bit_of(meet_unseen))) fail("nobody knows that shares wait for each other");
    bl_leave(before);
    return given;
}

/* Who waits for the next region lets others have the CPU; who waits for a partner inside of one does not. */
static void check_yields(void) {
    team_t team = {0};
    word_t word = 1;
    if (spin_while(&team, &word, 1, 100000, 100000) || n_yields) fail("others had the CPU of one that was to spin alone");
    if (spin_while(&team, &word, 1, 100000, 0) || !n_yields) fail("others did not get the CPU");
    if (!spin_while(&team, &word, 0, 100000, 0)) fail("a word that became another was waited for");
}

static void *call(void *given) {
    int seed = (int)(intptr_t)given;
    if (seed % 2) bl_keep_team();
    for (int round = 0; round < 60; round++) {
        int width = 1 + (seed + round) % (MOST - 1), before = bl_enter(width);
        if (round % 3 == 0) bl_wake();
        if (round % 7 == 0 && here.team) atomic_store(&here.team->lost_ns, LOST_TOO_MUCH_NS);
        if (get_max_threads() != width) fail("the width is not what it was set to");
        for (int n = 1; n <= MOST; n++) check(n);
        region_t met = {.n = width};
        if (round % 10 == 0) parallel(meet_unseen, &met, 0, 0);
        int outer = bl_enter(2);
        check(2);
        bl_leave(outer);
        if (get_max_threads() != width) fail("the width is not what it was before");
        bl_leave(before);
        if (round % 5 == 0) check(3); /* without a word on how wide regions are */
    }
    return NULL;
}

static void all(int n_callers) {
    pthread_t callers[MOST];
    for (intptr_t i = 0; i < n_callers; i++)
        if (pthread_create(&callers[i], NULL, call, (void *)i)) fail("no thread to call from");
    for (int i = 0; i < n_callers; i++) pthread_join(callers[i], NULL);
}

/* With the n-th request refused and all behind it, for every n: a team says that it has not all of its threads, what it
   computes is right, and it has them as soon as they are granted. */
static void *call_refused(void *given) {
    (void)given;
    for (int n = 0, is_whole = 0; !is_whole; n++) {
        if (n > 100) fail("requests are refused, and a team is whole");
        team_t *team = new_team(); /* one that has no workers yet */
        here.team = team;
        here.keeps_team = 1;
        int before = bl_enter(MOST);
        granted = n;
        is_whole = bl_wake();
        region_t marked = {.n = team->n_workers + 1};
        parallel(mark, &marked, MOST, 0);
        granted = -1;
        if (is_whole != (marked.n == MOST)) fail("a team does not know how many threads it has");
        if (!bl_wake()) fail("a team lacks threads that were granted");
        check(MOST);
        bl_leave(before);
        end_kept_team(NULL);
    }
    team_t *others = idle;
    idle = NULL;
    granted = 0;
    int before = bl_enter(2);
    if (bl_wake()) fail("a team that has no memory is there");
    region_t marked = {.n = 1};
    parallel(mark, &marked, 2, 0);
    if (marked.marks[0] != 1) fail("without a team a share was left out");
    bl_leave(before);
    granted = -1;
    idle = others;
    return NULL;
}

/* Without a key of its own the team would use somebody else's. */
static int check_keys(void) {
    pthread_key_t first, key;
    if (pthread_key_create(&first, NULL) || pthread_setspecific(first, "mine")) fail("no key");
    while (!pthread_key_create(&key, NULL)) continue;
    if (!bl_serve(SERVED, 2)) fail("there is a team without a key");
    if (strcmp(pthread_getspecific(first), "mine")) fail("a key was overwritten");
    return printf("right\n") < 0;
}

static void *call_forever(void *given) {
    for (;;) call(given);
    return NULL;
}

/* The process ends while some callers are inside of regions and the workers of others sleep. */
static int end_inside(void) {
    pthread_t caller;
    all(2);
    for (intptr_t i = 0; i < 3; i++)
        if (pthread_create(&caller, NULL, call_forever, (void *)i)) fail("no thread to call from");
    usleep(20000);
    return printf("right\n") < 0;
}

static void apart(void *(*fn)(void *)) {
    pthread_t caller;
    if (pthread_create(&caller, NULL, fn, NULL)) fail("no thread to call from");
    pthread_join(caller, NULL);
}

static void *fork_now(void *given) {
    (void)given;
    pid_t child = fork();
    if (!child) {
        int before = bl_enter(3);
        check(3);
        bl_leave(before);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status) fail("a child is wrong");
    return NULL;
}

int main(int argc, char **argv) {
    const char *chosen = argc > 1 ? argv[1] : "";
    if (!strcmp(chosen, "keys")) return check_keys();
    prepare();
    if (!strcmp(chosen, "ends")) return end_inside();
    check_patience();
    check_parts();
    check_yields();
    apart(check_waiting_shares);
    for (n_cpus = 1; n_cpus < 9; n_cpus += 3) { /* 1: everyone sleeps at once */
        all(1);
        all(4);
    }
    n_cpus = 2;
    apart(call_refused);
    if (!strcmp(chosen, "forks")) {
        pthread_t busy;
        if (pthread_create(&busy, NULL, call, NULL)) fail("no thread to call from");
        for (int i = 0; i < 5; i++) fork_now(NULL);
        pthread_join(busy, NULL);
    }
    printf("right\n");
    return 0;
}
