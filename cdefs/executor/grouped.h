/* Convolutions of groups of few channels, channels last: a vector of results is computed at a time, of several groups
   or of a part of one, or both vectors of one, so that neither half of it is idle nor groups are multiplied by zeros. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int lanes;                       /* floats in a vector: 8 for AVX2, 16 for AVX-512 */
    int is_bf16;                     /* whether source and weights are, and products are of pairs */
    int dst_is_bf16;
    int64_t group;                   /* channels of a group, of the source as of the result: 4 or 8, with AVX-512 also 16 or 32 */
    int64_t n_images, n_channels;
    int64_t extents[2], results[2];  /* height and width of the source and of the result */
    int64_t kernel[2], strides[2], pads[2]; /* pads: in front */
    int64_t n_columns;               /* that a row of results sees, padding included, of every stride-th */
    int64_t src_image, src_row, src_pixel; /* from one to the next, in elements */
    int64_t dst_image, dst_row, dst_pixel;
    float slope, low, high;          /* results below 0 times slope, then no less than low, no more than high */
} bl_grouped_t;

enum { BL_GROUPED_SRC, BL_GROUPED_WEIGHTS, BL_GROUPED_BIAS, BL_GROUPED_DST, BL_GROUPED_SCRATCHPAD, BL_GROUPED_ARGS };

/* Bytes of scratchpad. */
int64_t bl_grouped_scratchpad(const bl_grouped_t *problem);

/* Of the type bl_execute_t; there may be no bias. The weights of a vector of results lie together, by tap, then by channel
   of the source, or by pair of these in bf16; where groups share a vector, those of a group do. */
int bl_grouped(const void *problem, void *stream, int n_args, const void *args);
