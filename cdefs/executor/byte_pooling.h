/* The largest byte of each window, channels last. The library takes three times as long. */

typedef struct {
    bl_get_data_t get_data;              /* dnnl_memory_get_data_handle */
    int lanes;                           /* floats in a vector: 8 for AVX2, 16 for AVX-512 */
    int is_signed;
    int n_threads;
    int64_t n_images, n_channels;
    int64_t extents[2], results[2], kernel[2], strides[2], dilations[2], pads[2]; /* pads: in front */
    int64_t src_image, src_row, src_pixel; /* from one to the next */
    int64_t dst_image, dst_row, dst_pixel;
} bl_byte_pooling_t;

enum { BL_BYTES_SRC, BL_BYTES_DST, BL_BYTES_ARGS };

/* Of the type bl_execute_t. */
int bl_byte_pooling(const void *problem, void *stream, int n_args, const void *args);
