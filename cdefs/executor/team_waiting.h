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
    SPIN_NS = 1000000,        /* for the next region */
    ALONE_NS = 5000,          /* of that, before others may have the CPU in between */
    SPIN_INSIDE_NS = 1000000, /* for a partner */
    RESTS_OF_A_LOOK = 16,     /* between looks at the clock */
    WAKING_NS = 500000,       /* a worker that was woken takes less where there is a CPU for it */
    TICK_NS = 4000000,        /* between looks of a worker that is not wanted for shares that wait for it */
    LONG_SHARE_NS = 150000,   /* against which it costs little to wake a worker */
    SHARES_REMEMBERED = 64,

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

/* The state of a share; whoever makes it TAKEN computes it. Its worker comes at once for one that is WANTED, and for one
   AT_LEISURE if nobody has taken it for a tick. */
enum { TAKEN, AT_LEISURE, WANTED, N_STATES = 4 };

enum { AWAKE, LIGHTLY, SOUNDLY }; /* how a worker sleeps: not, for a tick, until it is woken */

typedef struct {
    _Alignas(LINE) word_t offer; /* the number of a region times N_STATES, plus the state of its share */
    word_t sleeps;
    team_t *team;
    int share;
    _Atomic int64_t woken; /* when it was; 0 when it has begun a share since */
    pthread_t thread;
} worker_t;

struct team {
    /* A region: written by the caller before it offers shares. */
    void (*fn)(void *);
    void *data;
    int n_shares, n_wanted; /* shares, and threads that are to compute them */
    uint32_t region;        /* its number */
    unsigned mode;          /* how the caller rounds, and what it does with denormals */
    int64_t began;          /* when */
    int64_t forgot;         /* when `together` was emptied; the caller's own, as is: */
    int64_t share_ns;       /* how long its own shares took lately, on average over regions in which nobody spins */

    _Atomic int width; /* of the caller's regions; 0 without a caller */
    word_t together;   /* functions, by bit_of, whose shares wait for each other by means that the team does not see */

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

static void sleep_while(word_t *word, uint32_t value, const struct timespec *at_most) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, at_most);
}
static void wake(word_t *word, int n) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL); }

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

/* A worker has not begun its share of the region, which is wanted; by the thread that has computed it instead. */
static void note_unbegun(team_t *team, worker_t *worker) {
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
    while (atomic_load(word) == value) sleep_while(word, value, NULL);
    atomic_fetch_sub(n_asleep, 1);
    note_loss(team, now() - start);
}

/* Workers and their shares. */

static uint32_t bit_of(void (*fn)(void *)) { return UINT32_C(1) << ((uint32_t)((uintptr_t)fn >> 4) * 2654435761u >> 27); }

/* Threads that are to compute the region's shares. Where teams have more threads than there are CPUs, as many as the
   team's part of these is; in a nap half, as if others had as many threads again. But one for each share where shares are
   long, or were seen to wait for each other. */
static int count_wanted(team_t *team) {
    int n = n_cpus, busy = atomic_load_explicit(&n_busy, memory_order_relaxed);
    if (atomic_load_explicit(&team->is_impatient, memory_order_relaxed) && busy < 2 * n) busy = 2 * n;
    if (busy <= n) return team->n_shares;
    if (team->began - team->forgot >= NAP_AT_MOST_NS) {
        team->forgot = team->began;
        atomic_store(&team->together, 0);
    }
    if (team->share_ns >= LONG_SHARE_NS || atomic_load(&team->together) & bit_of(team->fn)) return team->n_shares;
    return (team->n_shares * n + busy - 1) / busy;
}

/* The caller has computed its own share: an average of how long that takes. */
static void note_share(team_t *team) {
    int64_t ns = now() - team->began;
    if (ns > 8 * LONG_SHARE_NS) ns = 8 * LONG_SHARE_NS; /* it lost its CPU */
    team->share_ns += (ns - team->share_ns) / SHARES_REMEMBERED;
}

static uint32_t wait_for_offer(worker_t *worker) {
    static const struct timespec TICK = {.tv_nsec = TICK_NS};
    team_t *team = worker->team;
    for (uint32_t before = TAKEN;;) {
        uint32_t offer = atomic_load_explicit(&worker->offer, memory_order_acquire), state = offer % N_STATES;
        if (state == WANTED || (state == AT_LEISURE && offer == before)) return offer;
        if (state == TAKEN && is_patient(team) && spin_while(team, &worker->offer, offer, SPIN_NS, ALONE_NS)) continue;
        int is_light = state == AT_LEISURE || (!is_patient(team) && atomic_load(&team->width));
        atomic_store(&worker->sleeps, is_light ? LIGHTLY : SOUNDLY);
        if (atomic_load(&worker->offer) == offer) sleep_while(&worker->offer, offer, is_light ? &TICK : NULL);
        atomic_store(&worker->sleeps, AWAKE);
        before = offer;
    }
}

static int take_offer(worker_t *worker, uint32_t offer) {
    uint32_t taken = offer / N_STATES * N_STATES + TAKEN;
    return offer != taken && atomic_compare_exchange_strong(&worker->offer, &offer, taken);
}

static void rouse(worker_t *worker) {
    int64_t awake = 0;
    atomic_compare_exchange_strong(&worker->woken, &awake, now());
    wake(&worker->offer, 1);
}

static void offer_share(worker_t *worker, uint32_t region, uint32_t state) {
    atomic_store(&worker->offer, region * N_STATES + state);
    uint32_t sleeps = atomic_load(&worker->sleeps);
    if (sleeps == SOUNDLY || (sleeps && state == WANTED)) rouse(worker);
}

/* A share waits for all others of its region: those that nobody has begun are wanted. */
static void want_all(team_t *team) {
    for (int i = 0; i < team->n_shares - 1; i++) {
        worker_t *worker = team->workers[i];
        uint32_t offer = atomic_load(&worker->offer);
        if (offer % N_STATES != AT_LEISURE) continue;
        if (!atomic_compare_exchange_strong(&worker->offer, &offer, offer - AT_LEISURE + WANTED)) continue;
        if (atomic_load(&worker->sleeps)) rouse(worker);
    }
}
