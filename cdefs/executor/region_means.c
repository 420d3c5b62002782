#include <stdint.h>
#include <string.h>

#include "region_means.h"
#include "regions.h"

/* Compiled for each of these, since the extension itself takes no more than SSE2; the loader chooses. */
#define CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))

CLONES static void add_pixel(float *restrict sum, const float *restrict pixel, float weight, int64_t n) {
    for (int64_t i = 0; i < n; i++) sum[i] += weight * pixel[i];
}

CLONES static void transpose(float *restrict dst, const float *restrict sums, int64_t n_bins, int64_t n_channels) {
    for (int64_t begin = 0; begin < n_channels; begin += 16) {
        int64_t end = begin + 16 < n_channels ? begin + 16 : n_channels;
        for (int64_t bin = 0; bin < n_bins; bin++)
            for (int64_t i = begin; i < end; i++) dst[i * n_bins + bin] = sums[bin * n_channels + i];
    }
}

static void add_row(const bl_windows_t *p, float *sums, const float *line, const float *columns, float row,
                    int64_t n_taps) {
    for (int64_t bin = 0; bin < p->n_bins[1]; bin++)
        for (int64_t i = 0; i < n_taps; i++) {
            float weight = row * columns[bin * p->n_taps[1] + i];
            if (weight != 0) add_pixel(sums + bin * p->n_channels, line + i * p->n_channels, weight, p->n_channels);
        }
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

typedef struct {
    const bl_windows_t *windows;
    int64_t n_regions;
    const int64_t *image, *line, *pixel;
    const float *down, *across, *src;
    float *sums, *dst;
} bl_regions_t;

static void add_regions(void *given) {
    const bl_regions_t *r = given;
    const bl_windows_t *p = r->windows;
    int64_t n_bins = p->n_bins[0] * p->n_bins[1], length = n_bins * p->n_channels;
    float *own = r->sums + omp_get_thread_num() * length;
    bl_range_t regions = bl_share(r->n_regions);
    for (int64_t region = regions.first; region < regions.last; region++) {
        int64_t line = r->line[region], pixel = r->pixel[region];
        const float *rows = r->down + region * p->n_bins[0] * p->n_taps[0];
        const float *columns = r->across + region * p->n_bins[1] * p->n_taps[1];
        int64_t n_rows = least(p->n_taps[0], p->n_rows - line);
        int64_t n_columns = least(p->n_taps[1], p->n_columns - pixel);
        const float *begin = r->src + ((r->image[region] * p->n_rows + line) * p->n_columns + pixel) * p->n_channels;
        memset(own, 0, sizeof(float) * (size_t)length);
        for (int64_t bin = 0; bin < p->n_bins[0]; bin++)
            for (int64_t i = 0; i < n_rows; i++) {
                float row = rows[bin * p->n_taps[0] + i];
                if (row != 0)
                    add_row(p, own + bin * p->n_bins[1] * p->n_channels, begin + i * p->n_columns * p->n_channels,
                            columns, row, n_columns);
            }
        transpose(r->dst + region * length, own, n_bins, p->n_channels);
    }
}

void bl_region_means(const bl_windows_t *windows, int64_t n_regions, const int64_t *image, const int64_t *line,
                     const int64_t *pixel, const float *down, const float *across, const float *src, float *sums,
                     float *dst) {
    bl_regions_t regions = {windows, n_regions, image, line, pixel, down, across, src, sums, dst};
    bl_parallel(windows->n_threads, add_regions, &regions);
}
