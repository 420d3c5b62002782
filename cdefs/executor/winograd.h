/* Convolution with 3x3 windows and stride 1 by Winograd's F(4x4, 3x3): a tile of 4x4 results takes 36 products for each pair
   of channels instead of 144; and by F(2x2, 3x3), 16 products of bf16 instead of 36. Of bytes, products are of 16 bits and results
   exact. Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016. The library has none for x86-64. */

/* 1 / (1 + 2^y), as of Swish and GELU; y, but no less than 0 and no more than 1, as of HardSwish. */
enum { BL_NO_GATE, BL_LOGISTIC_GATE, BL_LINEAR_GATE };

/* The function of results: those below 0 times slope, then no less than low, no more than high; then times a gate, a function of
   an odd polynomial of themselves plus gate_beta; then linear_alpha times that plus linear_beta. */
typedef struct {
    float slope, low, high;
    int gate, n_gate_alphas;
    float gate_alphas[7]; /* of the powers 1, 3, 5, ...: one, two or all */
    float gate_beta, linear_alpha, linear_beta;
} bl_tail_t;

/* Where the channels of an image lie, in elements: in groups, each of some channels side by side. */
typedef struct {
    int64_t image, group, channels, row, pixel;
} bl_place_t;

typedef int (*bl_get_data_t)(const void *memory, void **data);

typedef struct {
    bl_get_data_t get_data;                 /* dnnl_memory_get_data_handle */
    int lanes;                              /* floats in a vector: 8 for AVX2, 16 for AVX-512 */
    int tile;                               /* results along its sides: 4, or 2 with products of bf16 */
    int is_bf16, are_bytes;                 /* sources, weights, addend and results; floats if neither */
    int src_is_signed, dst_is_signed, has_scales; /* of bytes; whether each channel's weights have a scale */
    int n_threads;
    int64_t n_images, n_src, n_dst;         /* n_src, n_dst: channels, padding not included */
    int64_t group_src, group_dst;           /* channels of a group */
    int64_t panel_src;                      /* sources that a panel of 2 * lanes results depends on */
    int64_t height, width;                  /* of the source */
    int64_t dst_height, dst_width;
    int64_t pad_top, pad_left;
    bl_place_t src, dst;
    int are_transformed;                    /* weights: of 4x4 then, products of bf16, one group */
    int64_t weights_tap, weights_src, weights_panel; /* from one to the next, in elements */
    int is_apart;                           /* whether each thread has tiles of its own */
    int64_t tiles_at_once;                  /* whose transformed sources are held, by each thread or by all together */
    int64_t tiles_of_task;                  /* whose products one thread holds, at most */
    bl_tail_t tail;
} bl_winograd_t;

/* What bl_winograd takes, in this order. */
enum { BL_SRC, BL_WEIGHTS, BL_BIAS, BL_ADDEND, BL_DST, BL_SCRATCHPAD, BL_SRC_SCALE, BL_WEIGHTS_SCALE, BL_DST_SCALE,
    BL_SRC_ZERO, BL_DST_ZERO, BL_N_ARGS };

/* Bytes of scratchpad. */
int64_t bl_winograd_scratchpad(const bl_winograd_t *problem);

/* Of the type bl_execute_t. args: dnnl_exec_arg_t[BL_N_ARGS], without memory where there is no bias, addend, scale or zero
   point; the addend lies as the results do. The weights of a panel for one tap and one source lie side by side,
   of bytes and of transformed ones those for two sources, by twos. */
int bl_winograd(const void *problem, void *stream, int n_args, const void *args);
