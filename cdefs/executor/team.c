/* Threads that compute the shares of parallel regions: a caller and its workers.

   A caller offers each worker its share, computes its own, and then those that no worker has begun. Every share that
   was begun is computed by a thread that does nothing else meanwhile, and the one whose share it is always comes for it
   unless somebody has taken it; so shares may wait for each other, as barriers do.

   Who waits spins for a while, then sleeps. Where a wait inside of a region outlasts that, or a worker that should be
   awake has not come for its share when the caller has computed its own, a thread of the team has lost its CPU to
   somebody else. Spinning would keep it from coming back, so for some time everyone sleeps at once; then it is tried again. */

#define _GNU_SOURCE
#include "team.h"

#include <stddef.h>

#if defined(__linux__) && defined(__LP64__)

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
    SPIN_NS = 200000,           /* for the next region */
    SPIN_INSIDE_NS = 1000000,   /* for a partner */
    RESTS_OF_A_LOOK = 16,       /* between looks at the clock */
    WAKING_NS = 500000,         /* a worker that was woken takes less where there is a CPU for it */
    LATE_NS = 10000000,         /* two late shares within this are no interrupts */
    NAP_AT_FIRST_NS = 80000000, /* without spinning; twice as long each time that the next try fails, up to */
    NAP_AT_MOST_NS = 1280000000,
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

    _Alignas(LINE) word_t unfinished; /* shares that were offered */
    word_t caller_sleeps;

    _Alignas(LINE) word_t arrived; /* at the barrier */
    word_t phase;                  /* barriers that all have passed */
    word_t n_asleep;               /* at the barrier */

    _Alignas(LINE) word_t is_impatient; /* nobody spins */
    int64_t last_late, nap_ns, nap_end, patient_since; /* the caller's own; nap_end is 0 unless there is a nap */

    worker_t **workers; /* that of share 1, of share 2, ... */
    int n_workers;
    cpu_set_t cpus;
    team_t *next; /* among idle ones */
};

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
static _Atomic int n_busy; /* threads of teams that have a caller */
static _Atomic int n_cpus = 1; /* that this process may use */
static pthread_key_t at_end;

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

/* Whether the word became another while it was worth spinning. */
static int spin_while(team_t *team, word_t *word, uint32_t value, int64_t ns) {
    int64_t end = 0;
    do {
        for (int i = 0; i < RESTS_OF_A_LOOK; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != value) return 1;
            rest();
        }
        if (!end) end = now() + ns;
    } while (is_patient(team) && now() < end);
    return 0;
}

/* A worker has not begun its share; by the caller, when it has computed its own. */
static void note_unbegun(team_t *team, const worker_t *worker) {
    int64_t time = now();
    if (time - worker->woken < WAKING_NS) return;
    if (team->nap_end) {
        team->nap_end = time + team->nap_ns;
    } else {
        if (time - team->last_late < LATE_NS) atomic_store(&team->is_impatient, 1);
        team->last_late = time;
    }
}

/* Before a region, where patience was lost: begins a nap, or ends it; by the caller. */
static void nap(team_t *team) {
    int64_t time = now();
    if (!team->nap_end) {
        int is_relapse = team->nap_ns && time - team->patient_since < PEACE_NS;
        team->nap_ns = is_relapse ? 2 * team->nap_ns : NAP_AT_FIRST_NS;
        if (team->nap_ns > NAP_AT_MOST_NS) team->nap_ns = NAP_AT_MOST_NS;
        team->nap_end = time + team->nap_ns;
    } else if (time >= team->nap_end) {
        team->nap_end = team->last_late = 0;
        team->patient_since = time;
        atomic_store(&team->is_impatient, 0);
    }
}

/* Waits for a partner, which is computing. */
static void wait_inside(team_t *team, word_t *word, uint32_t value, word_t *n_asleep) {
    if (is_patient(team)) {
        if (spin_while(team, word, value, SPIN_INSIDE_NS)) return;
        if (is_patient(team)) atomic_store(&team->is_impatient, 1);
    }
    atomic_fetch_add(n_asleep, 1);
    while (atomic_load(word) == value) sleep_while(word, value);
    atomic_fetch_sub(n_asleep, 1);
}

static uint32_t wait_for_offer(worker_t *worker) {
    for (;;) {
        uint32_t offer = atomic_load_explicit(&worker->offer, memory_order_acquire);
        if (offer % 2 == 0) return offer;
        if (is_patient(worker->team) && spin_while(worker->team, &worker->offer, offer, SPIN_NS)) continue;
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

/* Workers. */

static void *work(void *given) {
    worker_t *worker = given;
    team_t *team = worker->team;
    unsigned mode = get_mode();
    for (;;) {
        if (!take_offer(worker, wait_for_offer(worker))) continue;
        if (!team->fn) return NULL;
        if (mode != team->mode) set_mode(mode = team->mode);
        here = (thread_t){.team = team, .width = team->width, .depth = 1, .share = worker->share, .n_shares = team->n_shares};
        team->fn(team->data);
        if (atomic_fetch_sub(&team->unfinished, 1) == 1 && atomic_load(&team->caller_sleeps)) wake(&team->unfinished, 1);
    }
}

static int add_worker(team_t *team) {
    worker_t **workers = realloc(team->workers, (size_t)(team->n_workers + 1) * sizeof *workers);
    if (!workers) return 0;
    team->workers = workers;
    worker_t *worker = aligned_alloc(LINE, sizeof *worker);
    if (!worker) return 0;
    *worker = (worker_t){.offer = 1, .team = team, .share = team->n_workers + 1};
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
    snprintf(name, sizeof name, "blocklayout-%u", worker->share % 1000u);
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
    for (int i = 0; i < team->n_workers; i++) offer_share(team->workers[i]);
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
    if (!here.team || here.team->width == 0) {
        cpu_set_t cpus;
        if (sched_getaffinity(0, sizeof cpus, &cpus)) CPU_ZERO(&cpus);
        if (!here.team) here.team = take_team(&cpus);
        if (!here.team) return NULL;
        if (!CPU_EQUAL(&here.team->cpus, &cpus)) {
            for (int i = 0; i < here.team->n_workers; i++)
                pthread_setaffinity_np(here.team->workers[i]->thread, sizeof cpus, &cpus);
            here.team->cpus = cpus;
        }
        here.team->width = n_shares;
        atomic_fetch_add(&n_busy, n_shares);
    }
    while (here.team->n_workers + 1 < n_shares && add_worker(here.team)) continue;
    return here.team;
}

static void let_go(void) {
    team_t *team = here.team;
    if (!team || team->width == 0) return;
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
    if (atomic_load_explicit(&team->is_impatient, memory_order_relaxed)) nap(team);
    team->fn = fn;
    team->data = data;
    team->n_shares = here.n_shares;
    team->mode = get_mode();
    atomic_store_explicit(&team->unfinished, (uint32_t)here.n_shares - 1, memory_order_relaxed);
    for (int i = 0; i < here.n_shares - 1; i++) offer_share(team->workers[i]);
}

static void parallel_end(void) {
    if (here.depth > 1) {
        here.depth--;
        return;
    }
    team_t *team = here.team;
    for (int i = 0; i < here.n_shares - 1; i++) {
        worker_t *worker = team->workers[i];
        if (!take_offer(worker, atomic_load(&worker->offer))) {
            worker->is_called = 0;
            continue;
        }
        note_unbegun(team, worker);
        here.share = i + 1;
        team->fn(team->data);
        atomic_fetch_sub(&team->unfinished, 1);
    }
    if (here.n_shares > 1)
        for (uint32_t left; (left = atomic_load(&team->unfinished));)
            wait_inside(team, &team->unfinished, left, &team->caller_sleeps);
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

static const struct {
    const char *name;
    void (*function)(void);
} SERVED[] = {
#define SERVE(name, function) {name, (void (*)(void))function}
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
enum { N_SERVED = sizeof SERVED / sizeof SERVED[0] };

/* Import tables. */

enum { LOOK, OPEN, FILL, SEAL }; /* in this order */

typedef struct {
    uintptr_t address;  /* in the object that is looked for */
    int pass;
    const char *reason; /* why it cannot be served */
    char unserved[64];
} import_t;

static int is_openmp(const char *name) {
    return !strncmp(name, "GOMP_", 5) || !strncmp(name, "omp_", 4) || !strncmp(name, "__kmpc_", 7);
}

static void visit_slot(import_t *import, const char *name, uintptr_t slot, uintptr_t sealed, uintptr_t sealed_end) {
    int number = 0;
    while (number < N_SERVED && strcmp(SERVED[number].name, name)) number++;
    if (number == N_SERVED) {
        import->reason = import->unserved;
        snprintf(import->unserved, sizeof import->unserved, "it calls %.40s", name);
        return;
    }
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = slot / page * page;
    int is_sealed = sealed <= slot && slot < sealed_end;
    if (import->pass == OPEN && is_sealed && mprotect((void *)begin, page, PROT_READ | PROT_WRITE))
        import->reason = "its import table cannot be written";
    if (import->pass == FILL) __atomic_store_n((uintptr_t *)slot, (uintptr_t)SERVED[number].function, __ATOMIC_RELEASE);
    if (import->pass == SEAL && is_sealed) mprotect((void *)begin, page, PROT_READ);
}

static void visit_table(import_t *import, const struct dl_phdr_info *object, const ElfW(Rela) *table, size_t nbytes,
    const ElfW(Sym) *symbols, const char *names) {
    uintptr_t sealed = 0, sealed_end = 0, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            sealed = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            sealed_end = (sealed + object->dlpi_phdr[i].p_memsz) / page * page; /* what shares a page with data is open */
        }
    for (size_t i = 0; i < nbytes / sizeof *table && !import->reason; i++) {
        const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(table[i].r_info)];
        if (!ELF64_R_SYM(table[i].r_info) || symbol->st_shndx != SHN_UNDEF) continue;
        if (is_openmp(names + symbol->st_name))
            visit_slot(import, names + symbol->st_name, object->dlpi_addr + table[i].r_offset, sealed, sealed_end);
    }
}

static int holds(const struct dl_phdr_info *object, uintptr_t address) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - object->dlpi_addr - part->p_vaddr < part->p_memsz) return 1;
    }
    return 0;
}

/* 1 ends the walk over objects: it was this one. */
static int visit_object(struct dl_phdr_info *object, size_t size, void *given) {
    import_t *import = given;
    (void)size;
    if (!holds(object, import->address)) return 0;
    const ElfW(Rela) *calls = NULL, *others = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    size_t calls_nbytes = 0, others_nbytes = 0;
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        const void *pointer = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_JMPREL) calls = pointer;
        if (entry->d_tag == DT_PLTRELSZ) calls_nbytes = entry->d_un.d_val;
        if (entry->d_tag == DT_RELA) others = pointer;
        if (entry->d_tag == DT_RELASZ) others_nbytes = entry->d_un.d_val;
        if (entry->d_tag == DT_SYMTAB) symbols = pointer;
        if (entry->d_tag == DT_STRTAB) names = pointer;
    }
    if (!symbols || !names || (uintptr_t)symbols < object->dlpi_addr) {
        import->reason = "its import table cannot be read";
        return 1;
    }
    visit_table(import, object, calls, calls_nbytes, symbols, names);
    visit_table(import, object, others, others_nbytes, symbols, names);
    return 1;
}

static const char *visit(import_t *import, int pass) {
    import->pass = pass;
    if (!dl_iterate_phdr(visit_object, import)) return "it is not loaded";
    return import->reason;
}

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

static void prepare(void) {
    pthread_key_create(&at_end, end_kept_team);
    pthread_atfork(NULL, NULL, begin_in_child);
}

const char *bl_serve(const void *address, int n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static _Thread_local import_t import;
    import = (import_t){.address = (uintptr_t)address};
    pthread_once(&once, prepare);
    n_cpus = n;
    for (int pass = LOOK; pass <= SEAL; pass++) {
        const char *reason = visit(&import, pass);
        if (reason) return reason;
    }
    return NULL;
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

void bl_wake(void) {
    team_t *team = here.width > 1 && !here.depth ? team_of(here.width) : NULL;
    if (!team || !is_patient(team)) return;
    for (int i = 0; i < team->n_workers && i < here.width - 1; i++)
        if (atomic_load_explicit(&team->workers[i]->sleeps, memory_order_relaxed)) wake(&team->workers[i]->offer, 1);
}

void bl_keep_team(void) {
    here.keeps_team = 1;
    pthread_setspecific(at_end, &here);
}

int bl_width(void) { return get_max_threads(); }

#else

const char *bl_serve(const void *address, int n_cpus) {
    (void)address, (void)n_cpus;
    return "there are teams on Linux with 64 bits only";
}

int bl_enter(int n_threads) { return (void)n_threads, 0; }
void bl_leave(int before) { (void)before; }
void bl_wake(void) {}
void bl_keep_team(void) {}
int bl_width(void) { return 1; }

#endif
