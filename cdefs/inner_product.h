/* Inner product: a fully connected layer. */

dnnl_status_t dnnl_inner_product_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_inner_product_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t diff_dst, const_dnnl_primitive_desc_t hint,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_inner_product_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t diff_weights, const_dnnl_memory_desc_t diff_bias, const_dnnl_memory_desc_t diff_dst,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
