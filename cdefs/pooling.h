/* Pooling: dilations count the gaps, 0 is dense. */

dnnl_status_t dnnl_pooling_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_alg_kind_t algorithm,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t kernel,
    const dnnl_dims_t dilations, const dnnl_dims_t pads_begin, const dnnl_dims_t pads_end,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_pooling_backward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides, const dnnl_dims_t kernel,
    const dnnl_dims_t dilations, const dnnl_dims_t pads_begin, const dnnl_dims_t pads_end,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
