/* Convolutions channels last, one product for each tap, source and result. While a panel of weights is multiplied the next one
   is fetched: those of layers with many channels and few pixels come from far away. Pixels of a stride, and those at distances
   that the nearest cache does badly, are copied first. */

typedef struct {
    bl_get_data_t get_data;
    int lanes;                             /* floats in a vector: 8 for AVX2, 16 for AVX-512 */
    int is_bf16, has_bf16_bias;            /* whether source, weights, addend and result are; and the bias */
    int n_threads;
    int64_t n_images, n_src, n_dst;        /* n_src, n_dst: channels */
    int64_t height, width;                 /* of the source */
    int64_t dst_height, dst_width;
    int64_t pad_top, pad_left;
    int64_t kernel[2], strides[2], steps[2]; /* steps: from one tap to the next, in pixels */
    bl_place_t src, dst;
    int64_t weights_panel;                 /* from one panel of weights to the next, in elements */
    int64_t pixels_at_once;                /* whose results for a panel one thread computes in a row, at most */
    int64_t sources_at_once;               /* n_src; or fewer of f32, seen by one tap, where the addend is not the result */
    bl_tail_t tail;
} bl_direct_t;

enum { BL_DIRECT_SRC, BL_DIRECT_WEIGHTS, BL_DIRECT_BIAS, BL_DIRECT_ADDEND, BL_DIRECT_DST, BL_DIRECT_SCRATCHPAD, BL_DIRECT_ARGS };

/* Bytes of scratchpad. */
int64_t bl_direct_scratchpad(const bl_direct_t *problem);

/* Of the type bl_execute_t; there may be no bias or addend, which lies as the result does. The weights of a panel, 2 * lanes
   results, lie together, by tap, then by source, or by pair of these in bf16. */
int bl_direct(const void *problem, void *stream, int n_args, const void *args);
