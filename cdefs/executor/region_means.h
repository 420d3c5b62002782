/* Weighted sums of the pixels of windows, bin by bin: what RoiAlign makes of each region. */

typedef struct {
    int64_t n_channels, n_rows, n_columns; /* of the images: channels side by side, then pixels, lines, images */
    int64_t n_bins[2];                     /* down and across */
    int64_t n_taps[2];                     /* lines, and pixels of one, that a region's weights are for */
    int n_threads;
} bl_windows_t;

/* For each region its image, the first line and pixel of its window, and the weights (bins, taps) down and across; a
   weight beyond the image is zero. Results are (regions, channels, bins down, bins across). `sums` holds n_channels for
   each bin, of each thread. */
void bl_region_means(const bl_windows_t *windows, int64_t n_regions, const int64_t *image, const int64_t *line,
                     const int64_t *pixel, const float *down, const float *across, const float *src, float *sums,
                     float *dst);
