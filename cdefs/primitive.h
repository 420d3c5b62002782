/* Primitive descriptors (a problem with its chosen implementation), primitives, and their arguments. */

typedef struct dnnl_primitive_desc *dnnl_primitive_desc_t;
typedef const struct dnnl_primitive_desc *const_dnnl_primitive_desc_t;
typedef struct dnnl_primitive *dnnl_primitive_t;
typedef const struct dnnl_primitive *const_dnnl_primitive_t;

typedef struct {
    int arg;
    dnnl_memory_t memory;
} dnnl_exec_arg_t;

typedef enum {
    dnnl_prop_kind_undef = 0,
    dnnl_forward_training = 64,
    dnnl_forward_inference = 96,
    dnnl_forward = 64,
    dnnl_backward = 128,
    dnnl_backward_data = 160,
    dnnl_backward_weights = 192,
    dnnl_backward_bias = 193
} dnnl_prop_kind_t;

typedef enum {
    dnnl_undefined_primitive,
    dnnl_reorder,
    dnnl_shuffle,
    dnnl_concat,
    dnnl_sum,
    dnnl_convolution,
    dnnl_deconvolution,
    dnnl_eltwise,
    dnnl_lrn,
    dnnl_batch_normalization,
    dnnl_inner_product,
    dnnl_rnn,
    dnnl_binary = 13,
    dnnl_matmul,
    dnnl_resampling,
    dnnl_pooling,
    dnnl_reduction,
    dnnl_prelu,
    dnnl_softmax,
    dnnl_layer_normalization
} dnnl_primitive_kind_t;

typedef enum {
    dnnl_alg_kind_undef = 0,
    dnnl_convolution_direct = 0x1,
    dnnl_convolution_winograd = 0x2,
    dnnl_convolution_auto = 0x3,
    dnnl_deconvolution_direct = 0xa,
    dnnl_deconvolution_winograd = 0xb,
    dnnl_eltwise_relu = 0x20,
    dnnl_eltwise_tanh,
    dnnl_eltwise_elu,
    dnnl_eltwise_square,
    dnnl_eltwise_abs,
    dnnl_eltwise_sqrt,
    dnnl_eltwise_linear,
    dnnl_eltwise_soft_relu,
    dnnl_eltwise_hardsigmoid,
    dnnl_eltwise_logistic,
    dnnl_eltwise_exp,
    dnnl_eltwise_gelu_tanh,
    dnnl_eltwise_swish,
    dnnl_eltwise_log,
    dnnl_eltwise_clip,
    dnnl_eltwise_clip_v2,
    dnnl_eltwise_pow,
    dnnl_eltwise_gelu_erf,
    dnnl_eltwise_round,
    dnnl_eltwise_mish,
    dnnl_eltwise_hardswish,
    dnnl_eltwise_relu_use_dst_for_bwd = 0x100,
    dnnl_eltwise_tanh_use_dst_for_bwd,
    dnnl_eltwise_elu_use_dst_for_bwd,
    dnnl_eltwise_sqrt_use_dst_for_bwd,
    dnnl_eltwise_logistic_use_dst_for_bwd,
    dnnl_eltwise_exp_use_dst_for_bwd,
    dnnl_eltwise_clip_v2_use_dst_for_bwd,
    dnnl_pooling_max = 0x1ff,
    dnnl_pooling_avg_include_padding = 0x2ff,
    dnnl_pooling_avg_exclude_padding = 0x3ff,
    dnnl_lrn_across_channels = 0xaff,
    dnnl_lrn_within_channel = 0xbff,
    dnnl_vanilla_rnn = 0x1fff,
    dnnl_vanilla_lstm = 0x2fff,
    dnnl_vanilla_gru = 0x3fff,
    dnnl_lbr_gru = 0x4fff,
    dnnl_vanilla_augru = 0x5fff,
    dnnl_lbr_augru = 0x6fff,
    dnnl_binary_add = 0x1fff0,
    dnnl_binary_mul,
    dnnl_binary_max,
    dnnl_binary_min,
    dnnl_binary_div,
    dnnl_binary_sub,
    dnnl_binary_ge,
    dnnl_binary_gt,
    dnnl_binary_le,
    dnnl_binary_lt,
    dnnl_binary_eq,
    dnnl_binary_ne,
    dnnl_resampling_nearest = 0x2fff0,
    dnnl_resampling_linear,
    dnnl_reduction_max,
    dnnl_reduction_min,
    dnnl_reduction_sum,
    dnnl_reduction_mul,
    dnnl_reduction_mean,
    dnnl_reduction_norm_lp_max,
    dnnl_reduction_norm_lp_sum,
    dnnl_reduction_norm_lp_power_p_max,
    dnnl_reduction_norm_lp_power_p_sum,
    dnnl_softmax_accurate = 0x30000,
    dnnl_softmax_log
} dnnl_alg_kind_t;

#define DNNL_ARG_SRC 1
#define DNNL_ARG_SRC_0 1
#define DNNL_ARG_SRC_1 2
#define DNNL_ARG_SRC_2 3
#define DNNL_ARG_FROM 1
#define DNNL_ARG_SRC_LAYER 1
#define DNNL_ARG_SRC_ITER 2
#define DNNL_ARG_SRC_ITER_C 3
#define DNNL_ARG_AUGRU_ATTENTION 4
#define DNNL_ARG_DST 17
#define DNNL_ARG_TO 17
#define DNNL_ARG_DST_LAYER 17
#define DNNL_ARG_DST_ITER 18
#define DNNL_ARG_DST_ITER_C 19
#define DNNL_ARG_WEIGHTS 33
#define DNNL_ARG_WEIGHTS_LAYER 33
#define DNNL_ARG_WEIGHTS_ITER 34
#define DNNL_ARG_WEIGHTS_PEEPHOLE 35
#define DNNL_ARG_BIAS 41
#define DNNL_ARG_MEAN 49
#define DNNL_ARG_VARIANCE 50
#define DNNL_ARG_SCALE 51
#define DNNL_ARG_SHIFT 52
#define DNNL_ARG_WORKSPACE 64
#define DNNL_ARG_SCRATCHPAD 80
#define DNNL_ARG_DIFF_SRC 129
#define DNNL_ARG_DIFF_SRC_1 130
#define DNNL_ARG_DIFF_DST 145
#define DNNL_ARG_DIFF_WEIGHTS 161
#define DNNL_ARG_DIFF_BIAS 169
#define DNNL_ARG_DIFF_SCALE 255
#define DNNL_ARG_DIFF_SHIFT 256
#define DNNL_ARG_MULTIPLE_SRC 1024
#define DNNL_ARG_MULTIPLE_DST 2048
#define DNNL_ARG_ATTR_SCALES 4096
#define DNNL_ARG_ATTR_ZERO_POINTS 8192
#define DNNL_ARG_ATTR_POST_OP_DW 16384
#define DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE 32768

dnnl_status_t dnnl_primitive_desc_next_impl(dnnl_primitive_desc_t pd);
dnnl_status_t dnnl_primitive_desc_clone(dnnl_primitive_desc_t *pd, const_dnnl_primitive_desc_t old);
dnnl_status_t dnnl_primitive_desc_destroy(dnnl_primitive_desc_t pd);
dnnl_status_t dnnl_primitive_desc_query(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index, void *result);
const_dnnl_memory_desc_t dnnl_primitive_desc_query_md(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index);
int dnnl_primitive_desc_query_s32(const_dnnl_primitive_desc_t pd, dnnl_query_t what, int index);

dnnl_status_t dnnl_primitive_create(dnnl_primitive_t *primitive, const_dnnl_primitive_desc_t pd);
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int nargs,
    const dnnl_exec_arg_t *args);
dnnl_status_t dnnl_primitive_get_primitive_desc(const_dnnl_primitive_t primitive, const_dnnl_primitive_desc_t *pd);
dnnl_status_t dnnl_primitive_destroy(dnnl_primitive_t primitive);
