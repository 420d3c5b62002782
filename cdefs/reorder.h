/* Copying into another layout or data type. */

dnnl_status_t dnnl_reorder_primitive_desc_create(
    dnnl_primitive_desc_t *pd, const_dnnl_memory_desc_t src, dnnl_engine_t src_engine, const_dnnl_memory_desc_t dst,
    dnnl_engine_t dst_engine, const_dnnl_primitive_attr_t attr);
