/* Convolutions of bytes, channels last, and products of matrices of bytes, where the instructions for products of bytes saturate
   sums of two at 16 bits. Two weights whose sum is at most 128 cannot make it happen; where two are more, their products are
   summed one by one. So all is exact. */

typedef struct {
    bl_get_data_t get_data;
    int n_threads;
    int src_is_signed, dst_is_signed, dst_is_f32, has_scales; /* has_scales: whether each channel's weights have a scale */
    int dst_is_s32, has_weights_zero;                         /* dst_is_s32: whether results are the sums, in 32 bits */
    int64_t n_images, n_src, n_dst;                           /* n_src, n_dst: channels */
    int64_t extents[2], results[2];                           /* height and width of the source and of the result */
    int64_t kernel[2], strides[2], dilations[2], pads[2];     /* pads: in front */
    int64_t src_image, src_row, src_pixel;                    /* from one to the next, in elements */
    int64_t dst_image, dst_row, dst_pixel;
    int is_read_in_place;                                     /* whether the source needs no padding, and no bit changed */
    int64_t results_of_task[2], panels_of_task; /* rows and columns of an image, and panels of 16 channels of them, at most */
    bl_tail_t tail;
} bl_byte_products_t;

enum { BL_PRODUCTS_SRC, BL_PRODUCTS_WEIGHTS, BL_PRODUCTS_BIAS, BL_PRODUCTS_DST, BL_PRODUCTS_SCRATCHPAD, BL_PRODUCTS_SRC_SCALE,
    BL_PRODUCTS_WEIGHTS_SCALE, BL_PRODUCTS_DST_SCALE, BL_PRODUCTS_SRC_ZERO, BL_PRODUCTS_DST_ZERO, BL_PRODUCTS_WEIGHTS_ZERO,
    BL_PRODUCTS_FACTORS, BL_PRODUCTS_ARGS };

/* Bytes of scratchpad. */
int64_t bl_byte_products_scratchpad(const bl_byte_products_t *problem);

/* Of the type bl_execute_t, without memory where there is no bias, scale, zero point, or factor of each channel behind all
   functions. Weights of 16 results lie together, by tap, then by four channels of the source. */
int bl_byte_products(const void *problem, void *stream, int n_args, const void *args);
