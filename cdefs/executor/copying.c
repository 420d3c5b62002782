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

/* Two sources in turn: a vector of each at once. */
#define IN_TURN(type)                                                                   \
    INLINE void type##_in_turn(type *restrict dst, const type *first, const type *second, int64_t n) { \
        for (int64_t i = 0; i < n; i++) {                                               \
            dst[2 * i] = first[i];                                                      \
            dst[2 * i + 1] = second[i];                                                 \
        }                                                                               \
    }
IN_TURN(uint16_t)
IN_TURN(uint32_t)

typedef struct {
    const bl_copying_t *problem;
    const char *src[BL_COPY_SRCS];
    char *dst;
    int64_t n_rows;
} bl_copied_t;

static void copy_row(const bl_copied_t *copied, int64_t to_row, int64_t from_row) {
    const bl_copying_t *p = copied->problem;
    int64_t n = p->extents[p->n_loops - 1], to = p->dst[p->n_loops - 1], from = p->src[p->n_loops - 1];
    int are_two = p->n_srcs == 2 && from == p->nbytes && to == 2 * from;
    char *dst = copied->dst + to_row;
    const char *const *src = copied->src;
    if (are_two && from == 2)
        uint16_t_in_turn((void *)dst, (const void *)(src[0] + from_row), (const void *)(src[1] + from_row), n);
    else if (are_two && from == 4)
        uint32_t_in_turn((void *)dst, (const void *)(src[0] + from_row), (const void *)(src[1] + from_row), n);
    else
        for (int k = 0; k < p->n_srcs; k++, dst += p->nbytes) switch (p->nbytes) {
            case 1: copy_each(dst, src[k] + from_row, n, to, from, 1); break;
            case 2: copy_each(dst, src[k] + from_row, n, to, from, 2); break;
            case 4: copy_each(dst, src[k] + from_row, n, to, from, 4); break;
            case 8: copy_each(dst, src[k] + from_row, n, to, from, 8); break;
            default: copy_each(dst, src[k] + from_row, n, to, from, p->nbytes);
            }
}

static void copy_rows(void *given) {
    const bl_copied_t *copied = given;
    const bl_copying_t *p = copied->problem;
    bl_range_t rows = bl_share(copied->n_rows);
    int64_t at[12], to = 0, from = 0, left = rows.first;
    for (int loop = p->n_loops - 2; loop >= 0; loop--) {
        at[loop] = left % p->extents[loop];
        left /= p->extents[loop];
        to += at[loop] * p->dst[loop];
        from += at[loop] * p->src[loop];
    }
    for (int64_t row = rows.first; row < rows.last; row++) {
        copy_row(copied, to, from);
        for (int loop = p->n_loops - 2; loop >= 0; loop--) {
            to += p->dst[loop];
            from += p->src[loop];
            if (++at[loop] < p->extents[loop]) break;
            to -= at[loop] * p->dst[loop];
            from -= at[loop] * p->src[loop];
            at[loop] = 0;
        }
    }
}

static int run_all(const bl_copying_t *p, void *const *data) {
    bl_copied_t copied = {.problem = p, .dst = data[BL_COPY_DST], .n_rows = 1};
    for (int k = 0; k < p->n_srcs; k++) copied.src[k] = (const char *)data[BL_COPY_SRC + k] + p->begin;
    for (int loop = 0; loop < p->n_loops - 1; loop++) copied.n_rows *= p->extents[loop];
    int64_t nbytes = copied.n_rows * p->extents[p->n_loops - 1] * p->nbytes * p->n_srcs;
    bl_parallel(nbytes >= BL_WORTH_SHARING ? p->n_threads : 1, copy_rows, &copied);
    return 0;
}

BL_ENTRY(bl_copying, BL_COPY_ARGS, run_all)
