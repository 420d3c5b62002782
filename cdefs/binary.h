/* Element-wise functions of two tensors; src_1 broadcasts over extents of 1. */

dnnl_status_t dnnl_binary_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src_0,
    const_dnnl_memory_desc_t src_1, const_dnnl_memory_desc_t dst, const_dnnl_primitive_attr_t attr);
