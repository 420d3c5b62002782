/* A team's words, and how its threads wait for each other. Included by team.c alone. */

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>

static void rest(void) { _mm_pause(); }
static unsigned get_mode(void) { return _mm_getcsr(); }
static void set_mode(unsigned mode) { _mm_setcsr(mode); }
#else
static void rest(void) {}
static unsigned get_mode(void) { return 0; }
static void set_mode(unsigned mode) { (void)mode; }
#endif

enum {
    SPIN_NS = 200000,         /* for the next region */
    ALONE_NS = 5000,          /* of that, before others may have the CPU in between */
    SPIN_INSIDE_NS = 1000000, /* for a partner */
    RESTS_OF_A_LOOK = 16,     /* between looks at the clock */
    WAKING_NS = 500000,       /* a worker that was woken takes less where there is a CPU for it */

    BORNE = 4,                  /* one part in so many of the time may be lost: to sleep costs about as much */
    LOSS_AT_MOST_NS = 4000000,  /* that one region counts for: an interruption is no neighbour */
    LOST_TOO_MUCH_NS = 6000000, /* beyond what is borne; there is a nap then */
    LOST_AT_A_TRY_NS = 5000000, /* counts as lost when a nap ends, so that a try that fails is short */
    NAP_AT_FIRST_NS = 10000000, /* without spinning; twice as long each time that the next try fails, up to */
    NAP_AT_MOST_NS = 320000000,
    PEACE_NS = 100000000, /* a try that went well for so long was right */
    LINE = 64
};

typedef _Atomic uint32_t word_t;
typedef struct team team_t;

typedef struct {
    _Alignas(LINE) word_t offer; /* odd: nothing to do. Even: a share; whoever adds 1 first computes it */
    word_t sleeps;
    team_t *team;
    int share;
    int64_t woken; /* when it was; the caller's own, as is: */
    int is_called; /* it was woken, and has not begun a share since */
    pthread_t thread;
} worker_t;

struct team {
    /* A region: written by the caller before it offers shares. */
    void (*fn)(void *);
    void *data;
    int n_shares, width;
    unsigned mode; /* how the caller rounds, and what it does with denormals */
    int64_t began; /* when; the caller's own */

    _Alignas(LINE) word_t unfinished; /* shares that were offered */
    word_t caller_sleeps;

    _Alignas(LINE) word_t arrived; /* at the barrier */
    word_t phase;                  /* barriers that all have passed */
    word_t n_asleep;               /* at the barrier */

    _Alignas(LINE) word_t is_impatient; /* nobody spins */
    _Atomic int64_t lost_ns; /* by waiting for threads that had lost their CPU, less what was borne */
    int64_t nap_ns, nap_end, patient_since; /* the caller's own; nap_end is 0 unless there is a nap */

    worker_t **workers; /* that of share 1, of share 2, ... */
    int n_workers;
    cpu_set_t cpus;
    team_t *next; /* among idle ones */
};

static _Atomic int n_busy; /* threads of teams that have a caller */
static _Atomic int n_cpus = 1; /* that this process may use */

static long futex(word_t *word, int what, uint32_t value) { return syscall(SYS_futex, word, what, value, NULL); }
static void sleep_while(word_t *word, uint32_t value) { futex(word, FUTEX_WAIT_PRIVATE, value); }
static void wake(word_t *word, int n) { futex(word, FUTEX_WAKE_PRIVATE, (uint32_t)n); }

/* Waiting. */

static int64_t now(void) {
    struct timespec read;
    clock_gettime(CLOCK_MONOTONIC, &read);
    return read.tv_sec * INT64_C(1000000000) + read.tv_nsec;
}

static int is_patient(team_t *team) {
    return !atomic_load_explicit(&team->is_impatient, memory_order_relaxed) &&
           atomic_load_explicit(&n_busy, memory_order_relaxed) <= n_cpus;
}

/* Whether the word became another while it was worth spinning; after alone_ns, who wants the CPU gets it in between. */
static int spin_while(team_t *team, word_t *word, uint32_t value, int64_t ns, int64_t alone_ns) {
    for (int64_t start = 0;;) {
        for (int i = 0; i < RESTS_OF_A_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return 1;
            rest();
        }
        int64_t time = now();
        if (!start) start = time;
        if (!is_patient(team) || time - start >= ns) return 0;
        if (time - start >= alone_ns) sched_yield();
    }
}

/* So much time went by without a thread of the team, which had lost its CPU although the others spin. */
static void note_loss(team_t *team, int64_t ns) {
    if (!is_patient(team)) return;
    atomic_fetch_add_explicit(&team->lost_ns, ns < LOSS_AT_MOST_NS ? ns : LOSS_AT_MOST_NS, memory_order_relaxed);
}

/* A worker has not begun its share of the region; by the caller, which has computed it. */
static void note_unbegun(team_t *team, const worker_t *worker) {
    int64_t time = now();
    if (time - worker->woken >= WAKING_NS) note_loss(team, time - team->began);
}

/* A region begins: a nap does where too much was lost, or it ends; by the caller. */
static void judge_losses(team_t *team, int64_t time) {
    int64_t borne = (time - team->began) / BORNE;
    team->began = time;
    int64_t lost = atomic_load_explicit(&team->lost_ns, memory_order_relaxed);
    if (!lost && !team->nap_end) return;
    if (borne > lost) borne = lost;
    atomic_fetch_sub_explicit(&team->lost_ns, borne, memory_order_relaxed);
    if (!team->nap_end) {
        if (lost - borne < LOST_TOO_MUCH_NS) return;
        int is_relapse = team->nap_ns && time - team->patient_since < PEACE_NS;
        team->nap_ns = is_relapse ? 2 * team->nap_ns : NAP_AT_FIRST_NS;
        if (team->nap_ns > NAP_AT_MOST_NS) team->nap_ns = NAP_AT_MOST_NS;
        team->nap_end = time + team->nap_ns;
        atomic_store(&team->is_impatient, 1);
    } else if (time >= team->nap_end) {
        team->nap_end = 0;
        team->patient_since = time;
        atomic_store_explicit(&team->lost_ns, LOST_AT_A_TRY_NS, memory_order_relaxed);
        atomic_store(&team->is_impatient, 0);
    }
}

/* Waits for a partner, which is computing. */
static void wait_inside(team_t *team, word_t *word, uint32_t value, word_t *n_asleep) {
    int64_t start = now();
    if (is_patient(team) && spin_while(team, word, value, SPIN_INSIDE_NS, SPIN_INSIDE_NS)) return;
    atomic_fetch_add(n_asleep, 1);
    while (atomic_load(word) == value) sleep_while(word, value);
    atomic_fetch_sub(n_asleep, 1);
    note_loss(team, now() - start);
}

static uint32_t wait_for_offer(worker_t *worker) {
    for (;;) {
        uint32_t offer = atomic_load_explicit(&worker->offer, memory_order_acquire);
        if (offer % 2 == 0) return offer;
        if (is_patient(worker->team) && spin_while(worker->team, &worker->offer, offer, SPIN_NS, ALONE_NS)) continue;
        atomic_store(&worker->sleeps, 1);
        if (atomic_load(&worker->offer) == offer) sleep_while(&worker->offer, offer);
        atomic_store(&worker->sleeps, 0);
    }
}

static int take_offer(worker_t *worker, uint32_t offer) {
    return offer % 2 == 0 && atomic_compare_exchange_strong(&worker->offer, &offer, offer + 1);
}

static void offer_share(worker_t *worker) {
    atomic_fetch_add(&worker->offer, 1);
    if (!atomic_load(&worker->sleeps)) return;
    if (!worker->is_called) worker->woken = now();
    worker->is_called = 1;
    wake(&worker->offer, 1);
}
