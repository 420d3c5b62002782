/* Recurrent layers, one function a cell; weights are (layers, directions, ic, gates, oc). */

typedef enum {
    dnnl_rnn_direction_undef = 0,
    dnnl_unidirectional_left2right,
    dnnl_unidirectional_right2left,
    dnnl_bidirectional_concat,
    dnnl_bidirectional_sum
} dnnl_rnn_direction_t;

dnnl_status_t dnnl_vanilla_rnn_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, const dnnl_alg_kind_t activation,
    const dnnl_rnn_direction_t direction, const_dnnl_memory_desc_t src_layer, const_dnnl_memory_desc_t src_iter,
    const_dnnl_memory_desc_t weights_layer, const_dnnl_memory_desc_t weights_iter, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst_layer, const_dnnl_memory_desc_t dst_iter, unsigned flags, float alpha, float beta,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_lstm_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_rnn_direction_t direction,
    const_dnnl_memory_desc_t src_layer, const_dnnl_memory_desc_t src_iter, const_dnnl_memory_desc_t src_iter_c,
    const_dnnl_memory_desc_t weights_layer, const_dnnl_memory_desc_t weights_iter,
    const_dnnl_memory_desc_t weights_peephole, const_dnnl_memory_desc_t weights_projection,
    const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst_layer, const_dnnl_memory_desc_t dst_iter,
    const_dnnl_memory_desc_t dst_iter_c, unsigned flags, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_gru_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_rnn_direction_t direction,
    const_dnnl_memory_desc_t src_layer, const_dnnl_memory_desc_t src_iter, const_dnnl_memory_desc_t weights_layer,
    const_dnnl_memory_desc_t weights_iter, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst_layer,
    const_dnnl_memory_desc_t dst_iter, unsigned flags, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_lbr_gru_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_rnn_direction_t direction,
    const_dnnl_memory_desc_t src_layer, const_dnnl_memory_desc_t src_iter, const_dnnl_memory_desc_t weights_layer,
    const_dnnl_memory_desc_t weights_iter, const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t dst_layer,
    const_dnnl_memory_desc_t dst_iter, unsigned flags, const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_augru_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_rnn_direction_t direction,
    const_dnnl_memory_desc_t src_layer, const_dnnl_memory_desc_t src_iter, const_dnnl_memory_desc_t attention,
    const_dnnl_memory_desc_t weights_layer, const_dnnl_memory_desc_t weights_iter, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst_layer, const_dnnl_memory_desc_t dst_iter, unsigned flags,
    const_dnnl_primitive_attr_t attr);
dnnl_status_t dnnl_lbr_augru_forward_primitive_desc_create(
    dnnl_primitive_desc_t *pd, dnnl_engine_t engine, dnnl_prop_kind_t prop_kind, dnnl_rnn_direction_t direction,
    const_dnnl_memory_desc_t src_layer, const_dnnl_memory_desc_t src_iter, const_dnnl_memory_desc_t attention,
    const_dnnl_memory_desc_t weights_layer, const_dnnl_memory_desc_t weights_iter, const_dnnl_memory_desc_t bias,
    const_dnnl_memory_desc_t dst_layer, const_dnnl_memory_desc_t dst_iter, unsigned flags,
    const_dnnl_primitive_attr_t attr);
