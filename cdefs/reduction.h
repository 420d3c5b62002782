/* Reduction over every dimension whose destination extent is 1. */

dnnl_status_t dnnl_reduction_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t src,
    const_dnnl_memory_desc_t dst, float p, float eps, const_dnnl_primitive_attr_t attr);
