#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "winograd.h"

#include "arguments.h"
#include "copying.h"
#include "regions.h"

#define INLINE static inline __attribute__((always_inline))

enum { BL_WORTH_SHARING = 1 << 16 }; /* bytes */

/* With a length that the compiler knows, one element is one instruction or two. */
INLINE void copy_each(char *dst, const char *src, int64_t n, int64_t to, int64_t from, int64_t nbytes) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * to, src + i * from, (size_t)nbytes);
}

static void copy_row(const bl_copying_t *p, char *dst, const char *src) {
    int64_t n = p->extents[p->n_loops - 1], to = p->dst[p->n_loops - 1], from = p->src[p->n_loops - 1];
    switch (p->nbytes) {
    case 1: copy_each(dst, src, n, to, from, 1); break;
    case 2: copy_each(dst, src, n, to, from, 2); break;
    case 4: copy_each(dst, src, n, to, from, 4); break;
    case 8: copy_each(dst, src, n, to, from, 8); break;
    default: copy_each(dst, src, n, to, from, p->nbytes);
    }
}

typedef struct {
    const bl_copying_t *problem;
    const char *src;
    char *dst;
    int64_t n_rows;
} bl_copied_t;

static void copy_rows(void *given) {
    const bl_copied_t *copied = given;
    const bl_copying_t *p = copied->problem;
    bl_range_t rows = bl_share(copied->n_rows);
    for (int64_t row = rows.first; row < rows.last; row++) {
        int64_t left = row, to = 0, from = 0;
        for (int loop = p->n_loops - 2; loop >= 0; loop--) {
            int64_t i = left % p->extents[loop];
            left /= p->extents[loop];
            to += i * p->dst[loop];
            from += i * p->src[loop];
        }
        copy_row(p, copied->dst + to, copied->src + from);
    }
}

static int run_all(const bl_copying_t *p, void *const *data) {
    bl_copied_t copied = {p, (const char *)data[BL_COPY_SRC] + p->begin, data[BL_COPY_DST], 1};
    for (int loop = 0; loop < p->n_loops - 1; loop++) copied.n_rows *= p->extents[loop];
    int is_shared = copied.n_rows * p->extents[p->n_loops - 1] * p->nbytes >= BL_WORTH_SHARING;
    bl_parallel(is_shared ? p->n_threads : 1, copy_rows, &copied);
    return 0;
}

BL_ENTRY(bl_copying, BL_COPY_ARGS, run_all)
