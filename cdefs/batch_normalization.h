/* Batch normalisation, and the flags every normalisation shares. */

typedef enum {
    dnnl_normalization_flags_none = 0,
    dnnl_use_global_stats = 0x1,
    dnnl_use_scale = 0x2,
    dnnl_use_shift = 0x4,
    dnnl_fuse_norm_relu = 0x8,
    dnnl_fuse_norm_add_relu = 0x10
} dnnl_normalization_flags_t;

dnnl_status_t dnnl_batch_normalization_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t dst, float epsilon, unsigned flags, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_batch_normalization_backward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t diff_dst, const_dnnl_memory_desc_t src, float epsilon, unsigned flags,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
