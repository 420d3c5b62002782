/* Layer normalisation over the last dimension; stat describes mean and variance. */

dnnl_status_t dnnl_layer_normalization_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t dst, const_dnnl_memory_desc_t stat, float epsilon, unsigned flags,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_layer_normalization_backward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t diff_dst, const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t stat, float epsilon,
    unsigned flags, const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
