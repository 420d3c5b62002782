#include <stddef.h>
#include <stdint.h>

#include "winograd.h"

#include "arguments.h"
#include "byte_pooling.h"
#include "regions.h"

typedef struct {
    const bl_byte_pooling_t *problem;
    const char *src;
    char *dst;
} bl_byte_pooling_run_t;

#if defined(__x86_64__)
#include "vectors.h"

/* Taps of a window that lie in the source along one dimension, from `first` on. */
typedef struct {
    int64_t begin, first, last;
} bl_taps_t;

static bl_taps_t taps_of(const bl_byte_pooling_t *p, int dim, int64_t result) {
    int64_t begin = result * p->strides[dim] - p->pads[dim], step = p->dilations[dim], room = p->extents[dim] - begin;
    int64_t first = begin >= 0 ? 0 : (-begin + step - 1) / step, last = room <= 0 ? 0 : (room + step - 1) / step;
    return (bl_taps_t){begin, first, last < p->kernel[dim] ? last : p->kernel[dim]};
}

/* A row of results, for 64 channels or those of a mask. */
INLINE TARGET_16 void pool_channels(const bl_byte_pooling_t *p, const char *src, char *dst, bl_taps_t rows, __mmask64 mask,
    const int is_signed, const int is_whole) {
    int64_t right = p->dilations[1] * p->src_pixel;
    for (int64_t column = 0; column < p->results[1]; column++, dst += p->dst_pixel) {
        bl_taps_t taps = taps_of(p, 1, column);
        __m512i largest = _mm512_set1_epi8(is_signed ? INT8_MIN : 0);
        for (int64_t row = rows.first; row < rows.last; row++) {
            int64_t y = rows.begin + row * p->dilations[0], x = taps.begin + taps.first * p->dilations[1];
            const char *at = src + y * p->src_row + x * p->src_pixel;
            for (int64_t tap = taps.first; tap < taps.last; tap++, at += right) {
                __m512i bytes = is_whole ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(mask, at);
                largest = is_signed ? _mm512_max_epi8(largest, bytes) : _mm512_max_epu8(largest, bytes);
            }
        }
        if (is_whole)
            _mm512_storeu_si512(dst, largest);
        else
            _mm512_mask_storeu_epi8(dst, mask, largest);
    }
}

TARGET_16 static void pool_rows(void *given) {
    const bl_byte_pooling_run_t *run = given;
    const bl_byte_pooling_t *p = run->problem;
    bl_range_t tasks = bl_share(p->n_images * p->results[0]);
    for (int64_t task = tasks.first; task < tasks.last; task++) {
        int64_t image = task / p->results[0], row = task % p->results[0];
        bl_taps_t rows = taps_of(p, 0, row);
        for (int64_t channel = 0; channel < p->n_channels; channel += 64) {
            int64_t n = p->n_channels - channel;
            const char *src = run->src + image * p->src_image + channel;
            char *dst = run->dst + image * p->dst_image + row * p->dst_row + channel;
            __mmask64 mask = n < 64 ? (UINT64_C(1) << n) - 1 : ~UINT64_C(0);
            if (n < 64)
                p->is_signed ? pool_channels(p, src, dst, rows, mask, 1, 0) : pool_channels(p, src, dst, rows, mask, 0, 0);
            else
                p->is_signed ? pool_channels(p, src, dst, rows, mask, 1, 1) : pool_channels(p, src, dst, rows, mask, 0, 1);
        }
    }
}
#endif

int bl_byte_pooling(const void *problem, void *stream, int n_args, const void *args) {
    const bl_byte_pooling_t *p = problem;
    void *data[BL_BYTES_ARGS] = {0};
    (void)stream;
    int status = bl_find_data(p->get_data, args, n_args, data);
    if (status) return status;
#if defined(__x86_64__)
    bl_byte_pooling_run_t run = {p, data[BL_BYTES_SRC], data[BL_BYTES_DST]};
    bl_parallel(p->n_threads, pool_rows, &run);
    return 0;
#else
    return 3; /* dnnl_unimplemented */
#endif
}
