/* Matrix multiplication, batched over leading dimensions. */

dnnl_status_t dnnl_matmul_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, const_dnnl_memory_desc_t src, const_dnnl_memory_desc_t weights,
    const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst, const_dnnl_primitive_attr_t attr);
