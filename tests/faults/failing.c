/* Makes calls of the C library fail, or end the process, at the n-th place. Preloaded, and told what to do by ctypes.

   Allocations fail that are made by code of one library, named by a part of its path. Writes of any code end the process:
   before they are done, or when half of it is. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MALLOC = 1, MMAP = 2, NEW = 4 };

static struct {
    const char *from, *to;
} code[16];
static int n_parts, kinds;
static size_t least;
static atomic_long n_calls, n_writes;
static long failing = -1, deadly = -1;
static int does_half;

/* Allocations. */

static int add_part(struct dl_phdr_info *info, size_t size, void *name) {
    (void)size;
    if (!info->dlpi_name || !strstr(info->dlpi_name, name)) return 0;
    for (int i = 0; i < info->dlpi_phnum && n_parts < 16; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X)) continue;
        code[n_parts].from = (const char *)info->dlpi_addr + part->p_vaddr;
        code[n_parts].to = code[n_parts].from + part->p_memsz;
        n_parts++;
    }
    return 0;
}

/* Of a library, allocations of some kinds and so many bytes at least; how many parts its code has. */
int failing_watch(const char *name, int of_kinds, size_t nbytes) {
    n_parts = 0, kinds = of_kinds, least = nbytes;
    dl_iterate_phdr(add_part, (void *)name);
    return n_parts;
}

/* The n-th from now on fails; with 0 all are only counted, with -1 none. */
void failing_at(long n) {
    atomic_store(&n_calls, 0);
    failing = n;
}

long failing_counted(void) { return atomic_load(&n_calls); }

static int fails(int kind, const void *caller, size_t nbytes) {
    if (failing < 0 || !(kind & kinds) || nbytes < least) return 0;
    for (int i = 0; i < n_parts; i++) {
        if ((const char *)caller < code[i].from || (const char *)caller >= code[i].to) continue;
        if (atomic_fetch_add(&n_calls, 1) + 1 != failing) return 0;
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

#define CALLER __builtin_return_address(0)
#define REAL(result, name, ...)                   \
    static result (*real)(__VA_ARGS__);           \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name)

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t nbytes) { return fails(MALLOC, CALLER, nbytes) ? NULL : __libc_malloc(nbytes); }
void *calloc(size_t n, size_t each) { return fails(MALLOC, CALLER, n * each) ? NULL : __libc_calloc(n, each); }
void *realloc(void *old, size_t nbytes) { return fails(MALLOC, CALLER, nbytes) ? NULL : __libc_realloc(old, nbytes); }
void *memalign(size_t to, size_t nbytes) { return fails(MALLOC, CALLER, nbytes) ? NULL : __libc_memalign(to, nbytes); }
void *aligned_alloc(size_t to, size_t nbytes) {
    return fails(MALLOC, CALLER, nbytes) ? NULL : __libc_memalign(to, nbytes);
}

int posix_memalign(void **place, size_t to, size_t nbytes) {
    void *made = fails(MALLOC, CALLER, nbytes) ? NULL : __libc_memalign(to, nbytes);
    if (made) *place = made;
    return made ? 0 : ENOMEM;
}

void *mmap(void *at, size_t nbytes, int access, int flags, int file, off_t offset) {
    REAL(void *, mmap, void *, size_t, int, int, int, off_t);
    return fails(MMAP, CALLER, nbytes) ? MAP_FAILED : real(at, nbytes, access, flags, file, offset);
}

/* C++'s, which throws where the one of its library does. */
static void *new_of(const char *name, size_t nbytes) {
    static void *library;
    if (!library) library = dlopen("libstdc++.so.6", RTLD_LAZY);
    void *(*real)(size_t);
    *(void **)&real = dlsym(library, name);
    return real(nbytes);
}

void *_Znwm(size_t nbytes) { return new_of("_Znwm", fails(NEW, CALLER, nbytes) ? (size_t)-1 / 4 : nbytes); }
void *_Znam(size_t nbytes) { return new_of("_Znam", fails(NEW, CALLER, nbytes) ? (size_t)-1 / 4 : nbytes); }

/* Writes. */

/* The n-th change of a file from now on ends the process; with 0 they are only counted, with -1 not even that. */
void dying_at(long n, int by_half) {
    atomic_store(&n_writes, 0);
    deadly = n, does_half = by_half;
}

long dying_counted(void) { return atomic_load(&n_writes); }

static int dies(void) { return deadly >= 0 && atomic_fetch_add(&n_writes, 1) + 1 == deadly; }
static void die(void) { kill(getpid(), SIGKILL); }

#define DIES_AT_WRITE(result, name, args, given, half)  \
    result name args {                                  \
        REAL(result, name, TYPES);                      \
        if (dies()) {                                   \
            if (does_half) half;                        \
            die();                                      \
        }                                               \
        return real given;                              \
    }

#define TYPES int, const void *, size_t
DIES_AT_WRITE(ssize_t, write, (int file, const void *from, size_t n), (file, from, n), real(file, from, n / 2))
#undef TYPES
#define TYPES int, const void *, size_t, off_t
DIES_AT_WRITE(ssize_t, pwrite, (int file, const void *from, size_t n, off_t at), (file, from, n, at), real(file, from, n / 2, at))
DIES_AT_WRITE(ssize_t, pwrite64, (int file, const void *from, size_t n, off_t at), (file, from, n, at), real(file, from, n / 2, at))
#undef TYPES
#define TYPES const char *, const char *
DIES_AT_WRITE(int, rename, (const char *from, const char *to), (from, to), real(from, to))
#undef TYPES
#define TYPES int, off_t
DIES_AT_WRITE(int, ftruncate, (int file, off_t size), (file, size), real(file, size))
DIES_AT_WRITE(int, ftruncate64, (int file, off_t size), (file, size), real(file, size))
#undef TYPES
#define TYPES int
DIES_AT_WRITE(int, fsync, (int file), (file), real(file))
DIES_AT_WRITE(int, fdatasync, (int file), (file), real(file))
#undef TYPES
#define TYPES const char *
DIES_AT_WRITE(int, unlink, (const char *path), (path), real(path))
