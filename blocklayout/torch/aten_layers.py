"""Layers: convolutions, normalisations, pooling, sampling of images, products of matrices, attention, recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from blocklayout.dtypes import FLOATS
from blocklayout.errors import UnsupportedError
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import Writer, lowers, times

Ints = int | Sequence[int]


def _each(value: Ints, rank: int) -> tuple[int, ...]:
    """One number for each of ``rank`` dimensions, of a list with one for all or one for each."""
    listed = [value] if isinstance(value, int) else [*value]
    return tuple(listed * rank if len(listed) == 1 else listed)


def _batched(w: Writer, x: BuildValue, rank: int) -> BuildValue:
    """A batch of one, of a single image."""
    return x if len(x.shape) == rank + 2 else w.reshape(x, (1, *x.shape))


# Convolutions.


@lowers("convolution", *(f"conv{rank}d.{how}" for rank in (1, 2, 3) for how in ("default", "padding")))
@lowers("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _convolution(w: Writer, x: BuildValue, weight: BuildValue, bias: Any, padding: Any, **given: Any) -> Any:
    rank = len(weight.shape) - 2
    attrs: dict[str, Any] = {"strides": _each(given["stride"], rank), "dilations": _each(given["dilation"], rank)}
    if isinstance(padding, str):
        attrs["auto_pad"] = "SAME_UPPER" if padding == "same" else "VALID"
    else:
        attrs["pads"] = _each(padding, rank) * 2
    is_transposed = given.get("transposed", "transpose" in w.packet)
    if is_transposed:
        attrs["output_padding"] = _each(given["output_padding"], rank)
    op_type = "ConvTranspose" if is_transposed else "Conv"
    return w.op(op_type, _batched(w, x, rank), weight, bias, group=given["groups"], **attrs)


# Normalisations.


@lowers("_native_batch_norm_legit", "native_batch_norm", "batch_norm", "instance_norm")
@lowers("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training")
def _batch_norm(
    w: Writer, x: BuildValue, weight: Any, bias: Any, mean: Any = None, var: Any = None, *, eps: float, **given: Any
) -> Any:
    n, channels, *spatial = x.shape
    affine = _affine(w, weight, bias, channels)
    training, by_image = given.get("training"), given.get("use_input_stats")
    if not training and not by_image:
        return x.batch_norm(*affine, mean, var, eps)
    if training and mean is not None:
        raise UnsupportedError("batch normalisation in training; inference mode only")
    if by_image or (n == 1 and spatial):
        return x.instance_norm(*affine, eps)
    moved = w.swap(x, 0, 1)
    flat = w.reshape(moved, (1, channels, math.prod(x.shape) // channels))
    return w.swap(w.reshape(flat.instance_norm(*affine, eps), moved.shape), 0, 1)


def _affine(w: Writer, weight: Any, bias: Any, *shape: int) -> tuple[Any, Any]:
    """Scale and shift, 1 and 0 by default."""
    return w.full(shape, 1) if weight is None else weight, w.full(shape, 0) if bias is None else bias


@lowers("group_norm", "native_group_norm")
def _group_norm(w: Writer, x: BuildValue, weight: Any, bias: Any, eps: float, **sizes: int) -> Any:
    num_groups = sizes.get("num_groups", sizes.get("group"))
    affine = _affine(w, weight, bias, x.shape[1])
    return w.op("GroupNormalization", x, *affine, num_groups=num_groups, epsilon=eps)


@lowers("layer_norm", "native_layer_norm")
def _layer_norm(w: Writer, x: BuildValue, *affine: Any, normalized_shape: Sequence[int], eps: float, **_: Any) -> Any:
    return x.layer_norm(_affine(w, *affine, *normalized_shape)[0], affine[1], axis=-len(normalized_shape), epsilon=eps)


# Pooling.


@lowers(*(f"max_pool{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_with_indices")))
def _max_pool(w: Writer, x: BuildValue, dilation: Ints, ceil_mode: bool, **window: Ints) -> Any:
    x, *given = _windows(w, x, **window)
    attrs: dict[str, Any] = {"dilations": _each(dilation, len(x.shape) - 2), "ceil_mode": ceil_mode}
    if not w.is_read(1):
        return x.max_pool(*given, **attrs)
    y, at = x.max_pool_with_indices(*given, **attrs)
    return y, w.op("Mod", at, math.prod(x.shape[2:]))  # ONNX counts through the whole batch


def _windows(w: Writer, x: BuildValue, kernel_size: Ints, stride: Ints = 1, padding: Ints = 0) -> tuple[Any, ...]:
    """A batch of images, and the kernel, strides and pads of its pooling, which has its rank in its name."""
    rank = int(w.packet.partition("pool")[2][0])
    kernel = _each(kernel_size, rank)
    return _batched(w, x, rank), kernel, _each(stride or kernel, rank), _each(padding, rank)


@lowers(*(f"avg_pool{rank}d" for rank in (1, 2, 3)))
def _avg_pool(
    w: Writer, x: BuildValue, ceil_mode: bool, count_include_pad: bool, divisor_override: Any = None, **window: Ints
) -> Any:
    if divisor_override is not None and ceil_mode:
        raise UnsupportedError("divisor_override with ceil_mode")
    x, kernel, *given = _windows(w, x, **window)
    if divisor_override is None:
        return x.average_pool(kernel, *given, count_include_pad=count_include_pad, ceil_mode=ceil_mode)
    return x.average_pool(kernel, *given, count_include_pad=True) * (math.prod(kernel) / divisor_override)


@lowers(*(f"{name}avg_pool{rank}d" for rank in (1, 2, 3) for name in ("adaptive_", "_adaptive_")))
def _adaptive_avg_pool(w: Writer, x: BuildValue, output_size: Ints) -> BuildValue:
    x, sizes, *_ = _windows(w, x, output_size)
    cuts = [*map(divmod, x.shape[2:], sizes)]
    if set(sizes) == {1}:
        return x.global_average_pool()
    if not any(rest for _, rest in cuts):
        return x.average_pool([extent for extent, _ in cuts])
    for axis, size in enumerate(sizes, 2):
        x = w.swap(w.swap(x, axis, -1) @ w.array(_means(x.shape[axis], size), w.dtype), axis, -1)
    return x


def _means(extent: int, size: int) -> np.ndarray:
    """The matrix that takes the means of ``size`` regions, which may differ in extents by one and overlap."""
    means = np.zeros((extent, size))
    for region in range(size):
        begin, end = region * extent // size, -(-(region + 1) * extent // size)
        means[begin:end, region] = 1 / (end - begin)
    return means


# Sampling of images.

_SMOOTH = [f"upsample_{name}" for name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")]
_SMOOTH += [f"_upsample_{name}_aa" for name in ("bilinear2d", "bicubic2d")]
_PIXELS = [f"{name}{rank}d" for rank in (1, 2, 3) for name in ("upsample_nearest", "_upsample_nearest_exact")]


def _scales(sizes: dict[str, Any]) -> Any:
    """Scales that come in a list, or one by one."""
    return sizes.get("scale_factors") or [sizes[name] for name in sizes if name.startswith("scales")]


@lowers(*(f"{name}.{overload}" for name in _PIXELS for overload in ("default", "vec")))
def _nearest(w: Writer, x: BuildValue, **sizes: Any) -> Any:
    is_exact = "exact" in w.packet
    along_one = getattr(torch.ops.aten, f"{w.packet[:-2]}1d")
    for axis, scale in zip(range(2, len(x.shape)), [*_scales(sizes), None, None, None], strict=False):
        extent, n = x.shape[axis], w.shape[axis]
        places = along_one(torch.arange(float(extent))[None, None], [n], scale).numpy().reshape(n).astype(np.int64)
        usual = (2 * np.arange(n) + is_exact) * extent // (2 * n)
        if not np.array_equal(places, usual):  # by a scale that is not that of the extents, or by rounding
            x = w.op("Gather", x, places, axis=axis)
    at, nearest = ("half_pixel", "round_prefer_ceil") if is_exact else ("asymmetric", "floor")
    attrs: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": at, "nearest_mode": nearest}
    return x if x.shape == w.shape else w.op("Resize", x, None, None, w.shape, **attrs)


@lowers(*(f"{name}.{overload}" for name in _SMOOTH for overload in ("default", "vec")))
def _smooth(w: Writer, x: BuildValue, align_corners: bool, **sizes: Any) -> Any:
    is_cubic, is_antialiased, given = "cubic" in w.packet, w.packet.endswith("_aa"), _scales(sizes)
    if w.dtype not in FLOATS:
        raise UnsupportedError("interpolation of integers, which PyTorch rounds in its own way")
    if align_corners and is_antialiased:
        raise UnsupportedError("antialiasing with aligned corners")
    attrs: dict[str, Any] = {
        "mode": "cubic" if is_cubic else "linear",
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": None if not is_cubic else -0.5 if is_antialiased else -0.75,
        "antialias": 1 if is_antialiased else None,
        "exclude_outside": 1 if is_antialiased else None,
    }
    if align_corners or not any(given):  # coordinates are by the extents
        return w.op("Resize", x, None, None, w.shape, **attrs)
    if not all(given):
        raise UnsupportedError("scales for some dimensions")
    if np.allclose(np.multiply(x.shape[2:], given), w.shape[2:], rtol=1e-7, atol=0):
        return w.op("Resize", x, None, None, w.shape, **attrs)
    if any(int(extent * factor) != n for extent, factor, n in zip(x.shape[2:], given, w.shape[2:], strict=True)):
        raise UnsupportedError(f"scales {given}, which do not make {w.shape} of {x.shape}")
    return w.op("Resize", x, None, [1.0, 1.0, *given], None, **attrs)


@lowers("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sampler(
    w: Writer, x: BuildValue, grid: BuildValue, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    mode, padding = ("linear", "nearest", "cubic")[interpolation_mode], ("zeros", "border", "reflection")[padding_mode]
    if (mode, padding) == ("cubic", "border"):
        raise UnsupportedError("cubic interpolation with borders, where PyTorch repeats pixels and ONNX moves places")
    return w.op("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=int(align_corners))


@lowers("col2im")
def _col2im(w: Writer, x: BuildValue, output_size: Ints, kernel_size: Ints, padding: Any, **given: Ints) -> Any:
    attrs: dict[str, Any] = {"dilations": given["dilation"], "pads": [*padding, *padding], "strides": given["stride"]}
    return w.op("Col2Im", _batched(w, x, 1), output_size, kernel_size, **attrs)


# Products of matrices.


@lowers("mm", "bmm", "matmul", "mv", "dot")
def _matmul(w: Writer, a: BuildValue, b: BuildValue) -> Any:
    if len(a.shape) == 2 and (matrix := w.transposed.get(b.name)) is not None:
        return a.gemm(matrix, trans_b=True)
    return a @ b


@lowers("addmm", "baddbmm", "addmv")
def _addmm(w: Writer, c: BuildValue, a: BuildValue, b: BuildValue, beta: float, alpha: float) -> Any:
    if w.packet == "addmm" and w.dtype in FLOATS:
        matrix = w.transposed.get(b.name)
        factors: dict[str, Any] = {"alpha": alpha, "beta": beta or None, "trans_b": matrix is not None}
        return a.gemm(b if matrix is None else matrix, c if beta else None, **factors)
    product = times(a @ b, alpha)
    return times(c, beta) + product if beta else product


@lowers("linear")
def _linear(w: Writer, x: BuildValue, weight: BuildValue, bias: BuildValue | None) -> Any:
    if len(x.shape) == 2 and len(weight.shape) == 2:
        return x.gemm(weight, bias, trans_b=True)
    product = x @ w.swap(weight, 0, -1)
    return product if bias is None else product + bias


# Attention, in PyTorch's several forms, as products of matrices around a softmax.


@lowers("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu")
def _attention(
    w: Writer, query: BuildValue, key: BuildValue, value: BuildValue, mask: Any, scale: float | None, **given: Any
) -> Any:
    if given["dropout_p"]:
        raise UnsupportedError("attention with dropout; inference mode only")
    if given.get("enable_gqa") and query.shape[-3] != key.shape[-3]:
        key, value = (_for_each_query(w, each, query.shape[-3]) for each in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query * factor @ w.swap(key, -1, -2)
    if given["is_causal"]:
        mask = w.array(np.tril(np.ones(scores.shape[-2:], np.bool_)))
    return _weights(w, scores, mask) @ value


def _for_each_query(w: Writer, x: BuildValue, n_heads: int) -> BuildValue:
    """Heads of keys or values, each as often as heads of queries share it."""
    *outer, heads, n, width = x.shape
    shared = w.reshape(x, (*outer, heads, 1, n, width)).expand((*outer, heads, n_heads // heads, n, width))
    return w.reshape(shared, (*outer, n_heads, n, width))


def _weights(w: Writer, scores: BuildValue, mask: BuildValue | None) -> Any:
    """Softmax of scores; 0 in rows that a mask of truth leaves nothing."""
    if mask is None:
        return scores.softmax()
    if mask.dtype != "bool":
        return (scores + w.cast(mask, scores.dtype)).softmax()
    data = mask.value.data
    if data is not None and data.any(-1).all():
        return (scores + w.array(np.where(data, 0.0, -np.inf), scores.dtype)).softmax()
    is_left = w.cast(w.cast(mask, "u8").reduce_max(-1), "bool")
    return w.where(is_left, w.where(mask, scores, -np.inf).softmax(), 0)


def encoder_layer(x: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, *args: Any) -> Any:
    """``aten._transformer_encoder_layer_fwd.default`` by PyTorch's functions."""
    proj_weight, proj_bias, use_gelu, norm_first, eps, *vectors = args
    scale_1, shift_1, scale_2, shift_2, weight_1, bias_1, weight_2, bias_2, *masking = vectors
    mask, mask_type = (*masking, None, None)[:2]
    if mask is not None:
        mask = ~mask.to(torch.bool)  # there it is of what is left out
        mask = mask[:, None, None] if mask_type == 1 else mask  # of (batch, keys)

    def attended(x: Any) -> Any:
        parts = functional.linear(x, qkv_weight, qkv_bias).unflatten(-1, (3, num_heads, embed_dim // num_heads))
        heads = (each.squeeze(0) for each in parts.permute(2, 0, 3, 1, 4).split(1))
        rows = functional.scaled_dot_product_attention(*heads, mask).transpose(1, 2).flatten(2)
        return functional.linear(rows, proj_weight, proj_bias)

    def forward(x: Any) -> Any:
        hidden = functional.linear(x, weight_1, bias_1)
        return functional.linear(functional.gelu(hidden) if use_gelu else hidden.relu(), weight_2, bias_2)

    for step, scale, shift in ((attended, scale_1, shift_1), (forward, scale_2, shift_2)):
        norm = [embed_dim], scale, shift, eps
        x = x + step(functional.layer_norm(x, *norm)) if norm_first else functional.layer_norm(x + step(x), *norm)
    return x


# Recurrent layers, each a node of ONNX's.

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""PyTorch's gates, by their numbers, in ONNX's order."""


@lowers("lstm.input", "gru.input")
def _recurrent(
    w: Writer, x: BuildValue, hx: Any, params: Any, num_layers: int, batch_first: bool, **given: Any
) -> tuple[Any, ...]:
    op_type, states = w.packet.upper(), hx if isinstance(hx, list) else [hx]
    if (given["train"] and given["dropout"]) or len(x.shape) != 3:
        raise UnsupportedError("dropout in training, or a sequence that is no batch")
    n_params, n_directions = 4 if given["has_biases"] else 2, 2 if given["bidirectional"] else 1
    if len(params) != n_params * n_directions * num_layers:
        raise UnsupportedError("projections of the state")
    width = states[0].shape[-1]
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    steps, batch, _ = x.shape
    last: list[Sequence[BuildValue]] = []
    for layer in range(num_layers):
        first, end = layer * n_directions, (layer + 1) * n_directions
        each = [params[start * n_params : (start + 1) * n_params] for start in range(first, end)]
        weights = [_stacked(w, _GATES[op_type], direction) for direction in zip(*each, strict=True)]
        bias = w.concat(weights[2:], 1) if given["has_biases"] else None
        initial = [state if num_layers == 1 else state.slice([first], [end], [0]) for state in states]
        y, *ends = w.op(
            op_type,
            *(x, *weights[:2], bias, None, *initial),
            n_outputs=1 + len(states),
            hidden_size=width,
            direction="bidirectional" if given["bidirectional"] else "forward",
            linear_before_reset=1 if op_type == "GRU" else None,
        )
        x = w.reshape(w.transpose(y, (0, 2, 1, 3)), (steps, batch, n_directions * width))
        last.append(ends)
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    return x, *(ends[0] if num_layers == 1 else w.concat(ends, 0) for ends in zip(*last, strict=True))


def _stacked(w: Writer, gates: Sequence[int], params: Sequence[BuildValue]) -> BuildValue:
    """Parameters of each direction, with their gates in ONNX's order."""
    parts = [w.op("Split", each, axis=0, num_outputs=len(gates), n_outputs=len(gates)) for each in params]
    rows = [w.concat([part[gate] for gate in gates], 0).unsqueeze(0) for part in parts]
    return rows[0] if len(rows) == 1 else w.concat(rows, 0)
