/* Shuffle of groups along an axis. */

dnnl_status_t dnnl_shuffle_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t dst, int axis, dnnl_dim_t group_size, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_shuffle_backward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t diff_dst, int axis, dnnl_dim_t group_size, const_dnnl_primitive_desc_t hint,
    const_dnnl_primitive_attr_t attr);
