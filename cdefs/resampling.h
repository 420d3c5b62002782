/* Resampling of the spatial dimensions; factors may be NULL. */

dnnl_status_t dnnl_resampling_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_alg_kind_t algorithm,
    const float *factors, const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_resampling_backward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const float *factors,
    const_dnnl_memory_desc_t diff_src, const_dnnl_memory_desc_t diff_dst, const_dnnl_primitive_desc_t hint,
    const_dnnl_primitive_attr_t attr);
