"""Attention, in PyTorch's several forms, as products of matrices around a softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, lowers


@lowers("scaled_dot_product_attention")
def _attention(
    w: NodeWriter,
    query: BuildValue,
    key: BuildValue,
    value: BuildValue,
    attn_mask: BuildValue | None = None,
    dropout_p: float = 0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise w.refuse("attention with dropout; inference mode only")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (_for_each_query(w, each, query.shape[-3]) for each in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    perm = [*range(len(key.shape) - 2), len(key.shape) - 1, len(key.shape) - 2]
    scores = w.op("MatMul", w.op("Mul", query, factor), w.transpose(key, perm))
    if is_causal:
        attn_mask = w.constant(np.tril(np.ones(scores.shape[-2:], np.bool_)))
    return w.op("MatMul", _weights(w, scores, attn_mask), value)


def _for_each_query(w: NodeWriter, x: BuildValue, n_heads: int) -> BuildValue:
    """Heads of keys or values, each as often as heads of queries share it."""
    *outer, heads, n, width = x.shape
    shared = w.op("Expand", w.reshape(x, (*outer, heads, 1, n, width)), (*outer, heads, n_heads // heads, n, width))
    return w.reshape(shared, (*outer, n_heads, n, width))


def _weights(w: NodeWriter, scores: BuildValue, mask: BuildValue | None) -> Any:
    """Softmax of scores; 0 in rows that a mask of truth leaves nothing."""
    if mask is None:
        return w.op("Softmax", scores, axis=-1)
    if mask.dtype != "bool":
        return w.op("Softmax", w.op("Add", scores, w.cast(mask, scores.dtype)), axis=-1)
    data = mask.value.data
    if data is not None and data.any(-1).all():
        added = w.constant(np.where(data, 0.0, -np.inf), scores.dtype)
        return w.op("Softmax", w.op("Add", scores, added), axis=-1)
    masked = w.op("Where", mask, scores, w.constant(-np.inf, scores.dtype))
    is_left = w.cast(w.op("ReduceMax", w.cast(mask, "u8"), [-1]), "bool")
    return w.op("Where", is_left, w.op("Softmax", masked, axis=-1), w.constant(0, scores.dtype))


lowers("_scaled_dot_product_flash_attention_for_cpu")(
    lambda w, query, key, value, *args, attn_mask=None, scale=None: _attention(
        w, query, key, value, attn_mask, *args, scale=scale
    )
)


def encoder_layer(x: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, *args: Any) -> Any:
    """``aten._transformer_encoder_layer_fwd.default`` by PyTorch's functions; not with a mask."""
    from torch.nn import functional

    proj_weight, proj_bias, use_gelu, norm_first, eps, *vectors = args
    scale_1, shift_1, scale_2, shift_2, weight_1, bias_1, weight_2, bias_2, *mask = vectors
    if any(each is not None for each in mask):
        return NotImplemented

    def attended(x: Any) -> Any:
        parts = functional.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, num_heads, embed_dim // num_heads))
        heads = (each.squeeze(0) for each in parts.permute(2, 0, 3, 1, 4).split(1))
        rows = functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        return functional.linear(rows, proj_weight, proj_bias)

    def forward(x: Any) -> Any:
        hidden = functional.linear(x, weight_1, bias_1)
        return functional.linear(functional.gelu(hidden) if use_gelu else hidden.relu(), weight_2, bias_2)

    for step, scale, shift in ((attended, scale_1, shift_1), (forward, scale_2, shift_2)):
        norm = [embed_dim], scale, shift, eps
        x = x + step(functional.layer_norm(x, *norm)) if norm_first else functional.layer_norm(x + step(x), *norm)
    return x
