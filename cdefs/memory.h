/* Memory descriptors (what an address means) and memory objects (a descriptor with an address). */

#define DNNL_MAX_NDIMS 12

typedef int64_t dnnl_dim_t;
typedef dnnl_dim_t dnnl_dims_t[12];

typedef enum {
    dnnl_data_type_undef = 0,
    dnnl_f16 = 1,
    dnnl_bf16 = 2,
    dnnl_f32 = 3,
    dnnl_s32 = 4,
    dnnl_s8 = 5,
    dnnl_u8 = 6,
    dnnl_f64 = 7
} dnnl_data_type_t;

typedef enum {
    dnnl_format_kind_undef,
    dnnl_format_kind_any,
    dnnl_blocked,
    dnnl_format_kind_opaque
} dnnl_format_kind_t;

/* The library names the other tags itself: dnnl_fmt_tag2str. */
typedef enum { dnnl_format_tag_undef, dnnl_format_tag_any } dnnl_format_tag_t;

typedef struct dnnl_memory_desc *dnnl_memory_desc_t;
typedef const struct dnnl_memory_desc *const_dnnl_memory_desc_t;
typedef struct dnnl_memory *dnnl_memory_t;
typedef const struct dnnl_memory *const_dnnl_memory_t;

/* What dnnl_memory_desc_query and dnnl_primitive_desc_query can be asked. */
typedef enum {
    dnnl_query_undef = 0,
    dnnl_query_engine,
    dnnl_query_primitive_kind,
    dnnl_query_num_of_inputs_s32,
    dnnl_query_num_of_outputs_s32,
    dnnl_query_time_estimate_f64,
    dnnl_query_memory_consumption_s64,
    dnnl_query_scratchpad_engine,
    dnnl_query_impl_info_str,
    dnnl_query_prop_kind = 11,
    dnnl_query_strides = 14,
    dnnl_query_dilations,
    dnnl_query_padding_l,
    dnnl_query_padding_r,
    dnnl_query_epsilon_f32,
    dnnl_query_flags,
    dnnl_query_alg_kind,
    dnnl_query_alpha_f32,
    dnnl_query_beta_f32,
    dnnl_query_axis_s32,
    dnnl_query_local_size_s64,
    dnnl_query_k_f32,
    dnnl_query_p_f32,
    dnnl_query_factors,
    dnnl_query_kernel = 31,
    dnnl_query_group_size_s64,
    dnnl_query_some_md = 128,
    dnnl_query_src_md,
    dnnl_query_diff_src_md,
    dnnl_query_weights_md,
    dnnl_query_diff_weights_md,
    dnnl_query_dst_md,
    dnnl_query_diff_dst_md,
    dnnl_query_workspace_md,
    dnnl_query_scratchpad_md,
    dnnl_query_exec_arg_md = 255,
    dnnl_query_ndims_s32,
    dnnl_query_dims,
    dnnl_query_data_type,
    dnnl_query_submemory_offset_s64,
    dnnl_query_padded_dims,
    dnnl_query_padded_offsets,
    dnnl_query_format_kind,
    dnnl_query_inner_nblks_s32,
    dnnl_query_inner_blks,
    dnnl_query_inner_idxs
} dnnl_query_t;

dnnl_status_t dnnl_memory_desc_create_with_tag(dnnl_memory_desc_t *desc, int ndims, const dnnl_dims_t dims,
    dnnl_data_type_t data_type, dnnl_format_tag_t tag);
dnnl_status_t dnnl_memory_desc_create_with_strides(dnnl_memory_desc_t *desc, int ndims, const dnnl_dims_t dims,
    dnnl_data_type_t data_type, const dnnl_dims_t strides);
dnnl_status_t dnnl_memory_desc_create_submemory(dnnl_memory_desc_t *desc, const_dnnl_memory_desc_t parent,
    const dnnl_dims_t dims, const dnnl_dims_t offsets);
dnnl_status_t dnnl_memory_desc_reshape(dnnl_memory_desc_t *desc, const_dnnl_memory_desc_t old, int ndims,
    const dnnl_dims_t dims);
dnnl_status_t dnnl_memory_desc_permute_axes(dnnl_memory_desc_t *desc, const_dnnl_memory_desc_t old,
    const int *permutation);
dnnl_status_t dnnl_memory_desc_clone(dnnl_memory_desc_t *desc, const_dnnl_memory_desc_t old);
dnnl_status_t dnnl_memory_desc_destroy(dnnl_memory_desc_t desc);
dnnl_status_t dnnl_memory_desc_query(const_dnnl_memory_desc_t desc, dnnl_query_t what, void *result);
int dnnl_memory_desc_equal(const_dnnl_memory_desc_t lhs, const_dnnl_memory_desc_t rhs);
size_t dnnl_memory_desc_get_size(const_dnnl_memory_desc_t desc);
const char *dnnl_fmt_tag2str(dnnl_format_tag_t tag);

dnnl_status_t dnnl_memory_create(dnnl_memory_t *memory, const_dnnl_memory_desc_t desc, dnnl_engine_t engine,
    void *handle);
dnnl_status_t dnnl_memory_get_memory_desc(const_dnnl_memory_t memory, const_dnnl_memory_desc_t *desc);
dnnl_status_t dnnl_memory_get_data_handle(const_dnnl_memory_t memory, void **handle);
dnnl_status_t dnnl_memory_set_data_handle(dnnl_memory_t memory, void *handle);
dnnl_status_t dnnl_memory_destroy(dnnl_memory_t memory);
