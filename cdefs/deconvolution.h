/* Deconvolution (transposed convolution); weights are (oc, ic, kh, kw) as in convolution. */

dnnl_status_t dnnl_deconvolution_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_alg_kind_t algorithm,
    const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst, const dnnl_dims_t strides, const dnnl_dims_t dilations,
    const dnnl_dims_t pads_begin, const dnnl_dims_t pads_end, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_deconvolution_backward_data_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t diff_src,
    const_dnnl_memory_desc_t weights, const_dnnl_memory_desc_t diff_dst, const dnnl_dims_t strides,
    const dnnl_dims_t dilations, const dnnl_dims_t pads_begin, const dnnl_dims_t pads_end,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_deconvolution_backward_weights_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t diff_weights, const_dnnl_memory_desc_t diff_bias, const_dnnl_memory_desc_t diff_dst,
    const dnnl_dims_t strides, const dnnl_dims_t dilations, const dnnl_dims_t pads_begin, const dnnl_dims_t pads_end,
    const_dnnl_primitive_desc_t hint, const_dnnl_primitive_attr_t attr);
