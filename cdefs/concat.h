/* Concatenation of n tensors. */

dnnl_status_t dnnl_concat_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_memory_desc_t dst, int n, int axis,
    const_dnnl_memory_desc_t const *srcs, const_dnnl_primitive_attr_t attr);
