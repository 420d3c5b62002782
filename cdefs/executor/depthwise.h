/* Depthwise convolution: each channel by its own window. Rows of results are kept in registers, several pixels at a time. */

enum { BL_DEPTHWISE_LARGEST = 7 }; /* rows and columns of a window */

typedef struct {
    bl_get_data_t get_data;         /* dnnl_memory_get_data_handle */
    int lanes;                      /* floats in a vector: 8 for AVX2, 16 for AVX-512 */
    int is_bf16, has_bf16;          /* of all but the bias, and whether there are instructions for it */
    int are_bytes;                  /* of all but the bias: of numbers, around zero points */
    int src_is_signed, dst_is_signed, has_scales; /* of bytes; whether each channel's weights have a scale */
    int n_threads;
    int64_t n_images, n_channels;   /* padding not included */
    int64_t height, width;          /* of the source */
    int64_t dst_height, dst_width;
    int64_t kernel[2], strides[2], pad_top, pad_left;
    bl_place_t src, dst;            /* groups of as many channels as a vector has lanes, or one of all */
    int64_t rows_of_task;           /* of results */
    int64_t n_parts, part, n_longer; /* of a row of results: how many, results of one, and how many have one more */
    bl_tail_t tail;
} bl_depthwise_t;

/* What bl_depthwise takes, in this order. */
enum { BL_DEPTHWISE_SRC, BL_DEPTHWISE_WEIGHTS, BL_DEPTHWISE_BIAS, BL_DEPTHWISE_ADDEND, BL_DEPTHWISE_DST, BL_DEPTHWISE_SRC_SCALE,
    BL_DEPTHWISE_WEIGHTS_SCALE, BL_DEPTHWISE_DST_SCALE, BL_DEPTHWISE_SRC_ZERO, BL_DEPTHWISE_DST_ZERO, BL_DEPTHWISE_ARGS };

/* Of the type bl_execute_t, without memory where there is no bias, addend, scale or zero point; the addend lies as the results do. Weights lie
   in blocks of `lanes` channels, bytes of 16, of these tap after tap. */
int bl_depthwise(const void *problem, void *stream, int n_args, const void *args);
