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


@lowers("convolution")
def _convolution(w: Writer, x: BuildValue, weight: BuildValue, bias: BuildValue | None, *args: Any) -> BuildValue:
    stride, padding, dilation, transposed, output_padding, groups = args
    rank = len(weight.shape) - 2
    attrs: dict[str, Any] = {"strides": _each(stride, rank), "dilations": _each(dilation, rank), "group": groups}
    if isinstance(padding, str):
        attrs["auto_pad"] = "SAME_UPPER" if padding == "same" else "VALID"
    else:
        attrs["pads"] = _each(padding, rank) * 2
    if transposed:
        attrs["output_padding"] = _each(output_padding, rank)
    op_type = "ConvTranspose" if transposed else "Conv"
    return w.reshape(w.op(op_type, _batched(w, x, rank), weight, bias, **attrs), w.shape)


@lowers(*(f"conv{rank}d.{how}" for rank in (1, 2, 3) for how in ("default", "padding")))
@lowers("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv(w: Writer, x: BuildValue, weight: BuildValue, bias: Any, *args: Any) -> Any:
    transposed = "transpose" in w.packet
    stride, padding, output_padding, groups, dilation = args if transposed else (*args[:2], 0, args[3], args[2])
    return _convolution(w, x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


# Normalisations.


@lowers("_native_batch_norm_legit", "native_batch_norm", "batch_norm")
@lowers("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training")
def _batch_norm(w: Writer, x: BuildValue, weight: Any, bias: Any, *args: Any) -> Any:
    if w.overload.endswith("no_stats"):
        args = (None, None, *args)
    elif w.packet.endswith("no_training"):
        args = (*args[:2], False, *args[2:])
    mean, var, training, _momentum, eps, *_ = args
    if not training:
        return x.batch_norm(*_affine(w, weight, bias, mean.shape), mean, var, eps)
    if mean is not None:
        raise UnsupportedError("batch normalisation in training; inference mode only")
    n, channels, *spatial = x.shape
    affine = *_affine(w, weight, bias, (channels,)), eps
    if n == 1 and spatial:
        return x.instance_norm(*affine)
    perm = [1, 0, *range(2, len(x.shape))]
    moved = w.transpose(x, perm)
    flat = w.reshape(moved, (1, channels, math.prod(x.shape) // channels))
    return w.transpose(w.reshape(flat.instance_norm(*affine), moved.shape), perm)


def _affine(w: Writer, weight: Any, bias: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Scale and shift, 1 and 0 by default."""
    return w.full(shape, 1) if weight is None else weight, w.full(shape, 0) if bias is None else bias


@lowers("instance_norm")
def _instance_norm(w: Writer, x: BuildValue, weight: Any, bias: Any, *args: Any) -> Any:
    _mean, _var, use_input_stats, _momentum, eps, _ = args
    if not use_input_stats:
        return _batch_norm(w, x, weight, bias, *args)
    return x.instance_norm(*_affine(w, weight, bias, (x.shape[1],)), eps)


@lowers("group_norm", "native_group_norm")
def _group_norm(w: Writer, x: BuildValue, *args: Any) -> Any:
    if w.packet == "group_norm":
        num_groups, weight, bias, eps, _ = args
    else:
        weight, bias, *_, num_groups, eps = args
    return w.op("GroupNormalization", x, *_affine(w, weight, bias, (x.shape[1],)), num_groups=num_groups, epsilon=eps)


@lowers("layer_norm", "native_layer_norm")
def _layer_norm(w: Writer, x: BuildValue, shape: Sequence[int], weight: Any, bias: Any, eps: float, *_: Any) -> Any:
    return x.layer_norm(_affine(w, weight, bias, shape)[0], bias, axis=-len(shape), epsilon=eps)


# Pooling.


@lowers(*(f"max_pool{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_with_indices")))
def _max_pool(w: Writer, x: BuildValue, *args: Any) -> Any:
    *window, dilation, ceil_mode = args
    x, *given = _windows(w, x, *window)
    attrs: dict[str, Any] = {"dilations": _each(dilation, len(x.shape) - 2), "ceil_mode": ceil_mode}
    if not w.is_read(1):
        return w.reshape(x.max_pool(*given, **attrs), w.shape)
    y, at = x.max_pool_with_indices(*given, **attrs)
    at = w.op("Mod", at, math.prod(x.shape[2:]))  # ONNX counts through the whole batch
    return w.reshape(y, w.shape), w.reshape(at, w.shape)


def _windows(w: Writer, x: BuildValue, kernel_size: Ints, stride: Ints, padding: Ints) -> tuple[Any, ...]:
    """A batch of images, and the kernel, strides and pads of its pooling, which has its rank in its name."""
    rank = int(w.packet.partition("pool")[2][0])
    kernel = _each(kernel_size, rank)
    return _batched(w, x, rank), kernel, _each(stride or kernel, rank), _each(padding, rank)


@lowers(*(f"avg_pool{rank}d" for rank in (1, 2, 3)))
def _avg_pool(w: Writer, x: BuildValue, *args: Any) -> BuildValue:
    *window, ceil_mode, counts_pads, divisor = args if len(args) == 6 else (*args, None)
    if divisor is not None and ceil_mode:
        raise UnsupportedError("divisor_override with ceil_mode")
    x, kernel, *given = _windows(w, x, *window)
    y: BuildValue = x.average_pool(
        kernel, *given, count_include_pad=counts_pads or divisor is not None, ceil_mode=ceil_mode
    )
    return w.reshape(y if divisor is None else y * (math.prod(kernel) / divisor), w.shape)


@lowers(*(f"{name}avg_pool{rank}d" for rank in (1, 2, 3) for name in ("adaptive_", "_adaptive_")))
def _adaptive_avg_pool(w: Writer, x: BuildValue, output_size: Ints) -> BuildValue:
    x, sizes, *_ = _windows(w, x, output_size, 1, 0)
    cuts = [*map(divmod, x.shape[2:], sizes)]
    if set(sizes) == {1}:
        x = x.global_average_pool()
    elif not any(rest for _, rest in cuts):
        x = x.average_pool([extent for extent, _ in cuts])
    else:
        for axis, size in enumerate(sizes, 2):
            last = [*(each for each in range(len(x.shape)) if each != axis), axis]
            means = w.array(_means(x.shape[axis], size), w.dtype)
            x = w.transpose(w.transpose(x, last) @ means, np.argsort(last).tolist())
    return w.reshape(x, w.shape)


def _means(extent: int, size: int) -> np.ndarray:
    """The matrix that takes the means of ``size`` regions, which may differ in extents by one and overlap."""
    means = np.zeros((extent, size))
    for region in range(size):
        begin, end = region * extent // size, -(-(region + 1) * extent // size)
        means[begin:end, region] = 1 / (end - begin)
    return means


# Sampling of images.

_SMOOTH = {"upsample_linear1d": "linear", "upsample_bilinear2d": "linear", "upsample_trilinear3d": "linear"}
_SMOOTH |= {"upsample_bicubic2d": "cubic", "_upsample_bilinear2d_aa": "linear", "_upsample_bicubic2d_aa": "cubic"}
_PIXELS = [f"{name}{rank}d" for rank in (1, 2, 3) for name in ("upsample_nearest", "_upsample_nearest_exact")]


def _listed(scales: tuple[Any, ...]) -> Sequence[float | None]:
    """Scales that come in a list, or one by one."""
    return scales[0] if isinstance(scales[0], list) else scales


@lowers(*(f"{name}.{overload}" for name in _PIXELS for overload in ("default", "vec")))
def _nearest(w: Writer, x: BuildValue, _: Sequence[int] | None, *scales: Any) -> Any:
    is_exact = "exact" in w.packet
    factors = [*_listed(scales), None, None]
    for axis in range(2, len(x.shape)):
        extent, n = x.shape[axis], w.shape[axis]
        places = _places(extent, n, factors[axis - 2], is_exact=is_exact)
        usual = (2 * np.arange(n) + is_exact) * extent // (2 * n)
        if not np.array_equal(places, usual):  # by a scale that is not that of the extents, or by rounding
            x = w.op("Gather", x, places, axis=axis)
    at, nearest = ("half_pixel", "round_prefer_ceil") if is_exact else ("asymmetric", "floor")
    attrs: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": at, "nearest_mode": nearest}
    return x if x.shape == w.shape else w.op("Resize", x, None, None, w.shape, **attrs)


def _places(extent: int, n: int, scale: float | None, *, is_exact: bool) -> np.ndarray:
    """Where PyTorch takes each of ``n`` pixels from."""
    overload = torch.ops.aten._upsample_nearest_exact1d if is_exact else torch.ops.aten.upsample_nearest1d  # noqa: SLF001
    places: np.ndarray = overload(torch.arange(extent, dtype=torch.float32)[None, None], [n], scale).numpy()
    return places.reshape(n).astype(np.int64)


@lowers(*(f"{name}.{overload}" for name in _SMOOTH for overload in ("default", "vec")))
def _smooth(w: Writer, x: BuildValue, _: Sequence[int] | None, align_corners: bool, *scales: Any) -> Any:
    mode, is_antialiased, given = _SMOOTH[w.packet], w.packet.endswith("_aa"), _listed(scales)
    if w.dtype not in FLOATS:
        raise UnsupportedError("interpolation of integers, which PyTorch rounds in its own way")
    if align_corners and is_antialiased:
        raise UnsupportedError("antialiasing with aligned corners")
    attrs: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": "align_corners" if align_corners else "half_pixel",
        "cubic_coeff_a": None if mode != "cubic" else -0.5 if is_antialiased else -0.75,
        "antialias": 1 if is_antialiased else None,
        "exclude_outside": 1 if is_antialiased else None,
    }
    if not align_corners and any(given):  # coordinates are by these, not by the extents
        if not all(given):
            raise UnsupportedError("scales for some dimensions")
        factors = [1.0, 1.0, *(float(each or 1) for each in given)]
        pairs = [*zip(x.shape, w.shape, factors, strict=True)]
        if any(abs(factor * extent / result - 1) > 1e-7 for extent, result, factor in pairs):
            if any(int(extent * factor) != result for extent, result, factor in pairs):
                raise UnsupportedError(f"scales {given}, which do not make {w.shape} of {x.shape}")
            return w.op("Resize", x, None, factors, None, **attrs)
    return w.op("Resize", x, None, None, w.shape, **attrs)


@lowers("grid_sampler_2d", "grid_sampler_3d", "grid_sampler")
def _grid_sampler(w: Writer, x: BuildValue, grid: BuildValue, mode: int, padding_mode: int, align_corners: bool) -> Any:
    if (mode, padding_mode) == (2, 1):
        raise UnsupportedError("cubic interpolation with borders, where PyTorch repeats pixels and ONNX moves places")
    attrs: dict[str, Any] = {
        "mode": ("linear", "nearest", "cubic")[mode],
        "padding_mode": ("zeros", "border", "reflection")[padding_mode],
        "align_corners": int(align_corners),
    }
    return w.op("GridSample", x, grid, **attrs)


@lowers("col2im")
def _col2im(w: Writer, x: BuildValue, *args: Sequence[int]) -> Any:
    output_size, kernel_size, dilation, padding, stride = args
    attrs: dict[str, Any] = {"dilations": dilation, "pads": [*padding, *padding], "strides": stride}
    return w.reshape(w.op("Col2Im", _batched(w, x, 1), output_size, kernel_size, **attrs), w.shape)


# Products of matrices.


@lowers("mm", "bmm", "matmul", "mv", "dot")
def _matmul(w: Writer, a: BuildValue, b: BuildValue) -> Any:
    if len(a.shape) == 2 and (matrix := _was_constant(w, b)) is not None:
        return a.gemm(matrix, trans_b=True)
    return a @ b


def _was_constant(w: Writer, b: BuildValue) -> BuildValue | None:
    """The constant that a matrix is the transpose of."""
    matrix = w.transposed.get(b.name)
    return matrix if matrix is not None and matrix.value.data is not None else None


@lowers("addmm", "baddbmm", "addmv")
def _addmm(w: Writer, c: BuildValue, a: BuildValue, b: BuildValue, *, beta: float = 1, alpha: float = 1) -> Any:
    if w.packet == "addmm" and w.dtype in FLOATS:
        matrix = _was_constant(w, b)
        given: Any = (b, c if beta else None) if matrix is None else (matrix, c if beta else None)
        return a.gemm(*given, alpha=alpha, beta=beta or None, trans_b=matrix is not None)
    product = times(a @ b, alpha)
    return times(c, beta) + product if beta else product


@lowers("linear")
def _linear(w: Writer, x: BuildValue, weight: BuildValue, bias: BuildValue | None) -> Any:
    if len(x.shape) == 2 and len(weight.shape) == 2:
        return x.gemm(weight, bias, trans_b=True)
    product = x @ w.transpose(weight, range(len(weight.shape))[::-1])
    return product if bias is None else product + bias


# Attention, in PyTorch's several forms, as products of matrices around a softmax.


@lowers("scaled_dot_product_attention")
def _attention(
    w: Writer,
    query: BuildValue,
    key: BuildValue,
    value: BuildValue,
    mask: BuildValue | None = None,
    dropout_p: float = 0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if dropout_p:
        raise UnsupportedError("attention with dropout; inference mode only")
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        key, value = (_for_each_query(w, each, query.shape[-3]) for each in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    rank = len(key.shape)
    scores = query * factor @ w.transpose(key, [*range(rank - 2), rank - 1, rank - 2])
    if is_causal:
        mask = w.array(np.tril(np.ones(scores.shape[-2:], np.bool_)))
    return _weights(w, scores, mask) @ value


def _for_each_query(w: Writer, x: BuildValue, n_heads: int) -> BuildValue:
    """Heads of keys or values, each as often as heads of queries share it."""
    *outer, heads, n, width = x.shape
    shared = w.reshape(x, (*outer, heads, 1, n, width)).expand((*outer, heads, n_heads // heads, n, width))
    return w.reshape(shared, (*outer, n_heads, n, width))


def _weights(w: Writer, scores: BuildValue, mask: BuildValue | None) -> BuildValue:
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


lowers("_scaled_dot_product_flash_attention_for_cpu")(
    lambda w, query, key, value, *args, attn_mask=None, scale=None: _attention(
        w, query, key, value, attn_mask, *args, scale=scale
    )
)


_OF_KEYS = 1
"""Type of a mask of (batch, keys)."""


def encoder_layer(x: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, *args: Any) -> Any:
    """``aten._transformer_encoder_layer_fwd.default`` by PyTorch's functions."""
    proj_weight, proj_bias, use_gelu, norm_first, eps, *vectors = args
    scale_1, shift_1, scale_2, shift_2, weight_1, bias_1, weight_2, bias_2, *masking = vectors
    mask, mask_type = (*masking, None, None)[:2]
    if mask is not None:
        mask = ~mask.to(torch.bool)  # there it is of what is left out
        mask = mask[:, None, None] if mask_type == _OF_KEYS else mask

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
def _recurrent(w: Writer, x: BuildValue, hx: Any, params: Sequence[BuildValue], *args: Any) -> tuple[Any, ...]:
    has_biases, num_layers, dropout, train, bidirectional, batch_first = args
    op_type, states = w.packet.upper(), hx if isinstance(hx, list) else [hx]
    if (train and dropout) or len(x.shape) != 3:
        raise UnsupportedError("dropout in training, or a sequence that is no batch")
    n_params, n_directions = 4 if has_biases else 2, 2 if bidirectional else 1
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
        bias = w.concat(weights[2:], 1) if has_biases else None
        initial = [state if num_layers == 1 else state.slice([first], [end], [0]) for state in states]
        y, *ends = w.op(
            op_type,
            *(x, *weights[:2], bias, None, *initial),
            n_outputs=1 + len(states),
            hidden_size=width,
            direction="bidirectional" if bidirectional else "forward",
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
