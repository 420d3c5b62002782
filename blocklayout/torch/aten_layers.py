"""Layers: convolutions, pooling, normalisations, products of matrices, recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, extents, lowers

Ints = int | Sequence[int]


# Convolutions.


@lowers("convolution")
def _convolution(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: BuildValue | None, *args: Any) -> BuildValue:
    stride, padding, dilation, transposed, output_padding, groups = args
    rank = len(weight.shape) - 2
    attrs: dict[str, Any] = {
        "strides": extents(stride, rank),
        "dilations": extents(dilation, rank),
        "group": groups,
        "output_padding": extents(output_padding, rank) if transposed else None,
    }
    if isinstance(padding, str):
        attrs["auto_pad"] = "SAME_UPPER" if padding == "same" else "VALID"
    else:
        attrs["pads"] = extents(padding, rank) * 2
    op_type = "ConvTranspose" if transposed else "Conv"
    return w.reshape(w.op(op_type, _batched(w, x, rank), weight, bias, **attrs), w.shape)


@lowers(*(f"conv{rank}d.{how}" for rank in (1, 2, 3) for how in ("default", "padding")))
def _conv(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: Any, *args: Any) -> Any:
    *window, groups = args
    return _convolution(w, x, weight, bias, *window, False, 0, groups)


@lowers("conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input")
def _conv_transpose(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: Any, *args: Any) -> Any:
    stride, padding, output_padding, groups, dilation = args
    return _convolution(w, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# Normalisations.


@lowers("_native_batch_norm_legit", "native_batch_norm", "batch_norm")
@lowers("_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training")
def _batch_norm(w: NodeWriter, x: BuildValue, weight: Any, bias: Any, *args: Any) -> Any:
    if w.overload.endswith("no_stats"):
        args = (None, None, *args)
    elif w.name.endswith("no_training"):
        args = (*args[:2], False, *args[2:])
    mean, var, training, _momentum, eps, *_ = args
    if not training:
        return w.op("BatchNormalization", x, *_affine(w, weight, bias, mean.shape), mean, var, epsilon=eps)
    if mean is not None:
        raise w.refuse("batch normalisation in training; inference mode only")
    n, channels, *spatial = x.shape
    scale, shift = _affine(w, weight, bias, (channels,))
    if n == 1 and spatial:
        return w.op("InstanceNormalization", x, scale, shift, epsilon=eps)
    perm = [1, 0, *range(2, len(x.shape))]
    moved = w.transpose(x, perm)
    flat = w.reshape(moved, (1, channels, math.prod(x.shape) // channels))
    y = w.op("InstanceNormalization", flat, scale, shift, epsilon=eps)
    return w.transpose(w.reshape(y, moved.shape), perm)


def _affine(w: NodeWriter, weight: Any, bias: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Scale and shift, 1 and 0 by default."""
    scale = w.constant(np.ones(shape), w.dtype) if weight is None else weight
    return scale, w.constant(np.zeros(shape), w.dtype) if bias is None else bias


@lowers("instance_norm")
def _instance_norm(w: NodeWriter, x: BuildValue, weight: Any, bias: Any, *args: Any) -> Any:
    _mean, _var, use_input_stats, _momentum, eps, _ = args
    if not use_input_stats:
        return _batch_norm(w, x, weight, bias, *args)
    return w.op("InstanceNormalization", x, *_affine(w, weight, bias, (x.shape[1],)), epsilon=eps)


@lowers("group_norm", "native_group_norm")
def _group_norm(w: NodeWriter, x: BuildValue, *args: Any) -> Any:
    if w.name == "group_norm":
        num_groups, weight, bias, eps, _ = args
    else:
        weight, bias, *_, num_groups, eps = args
    return w.op("GroupNormalization", x, *_affine(w, weight, bias, (x.shape[1],)), num_groups=num_groups, epsilon=eps)


@lowers("layer_norm", "native_layer_norm")
def _layer_norm(w: NodeWriter, x: BuildValue, shape: Sequence[int], weight: Any, bias: Any, eps: float, *_: Any) -> Any:
    scale, _ = _affine(w, weight, bias, shape)
    return w.op("LayerNormalization", x, scale, bias, axis=-len(shape), epsilon=eps)


# Pooling.


@lowers(*(f"max_pool{rank}d{kind}" for rank in (1, 2, 3) for kind in ("", "_with_indices")))
def _max_pool(w: NodeWriter, x: BuildValue, kernel_size: Ints, *args: Any) -> Any:
    stride, padding, dilation, ceil_mode = args
    attrs = _window(w, kernel_size, stride, padding, ceil_mode) | {"dilations": extents(dilation, _rank(w))}
    x = _batched(w, x, _rank(w))
    if not w.is_read(1):
        return w.reshape(w.op("MaxPool", x, **attrs), w.shape)
    y, at = w.op("MaxPool", x, n_outputs=2, **attrs)
    at = w.op("Mod", at, math.prod(x.shape[2:]))  # ONNX counts through the whole batch
    return w.reshape(y, w.shape), w.reshape(at, w.shape)


def _window(w: NodeWriter, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool) -> dict[str, Any]:
    """The attributes of a pooling."""
    rank = _rank(w)
    kernel = extents(kernel_size, rank)
    pads, strides = extents(padding, rank) * 2, extents(stride or kernel, rank)
    return {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": int(ceil_mode)}


@lowers(*(f"avg_pool{rank}d" for rank in (1, 2, 3)))
def _avg_pool(w: NodeWriter, x: BuildValue, kernel_size: Ints, *args: Any) -> BuildValue:
    stride, padding, ceil_mode, counts_pads, divisor = args if len(args) == 5 else (*args, None)
    if divisor is not None and ceil_mode:
        raise w.refuse("divisor_override with ceil_mode")
    attrs = _window(w, kernel_size, stride, padding, ceil_mode)
    counts = int(counts_pads or divisor is not None)
    y: BuildValue = w.op("AveragePool", _batched(w, x, _rank(w)), count_include_pad=counts, **attrs)
    if divisor is not None:
        y = w.op("Mul", y, math.prod(attrs["kernel_shape"]) / divisor)
    return w.reshape(y, w.shape)


@lowers(*(f"{name}avg_pool{rank}d" for rank in (1, 2, 3) for name in ("adaptive_", "_adaptive_")))
def _adaptive_avg_pool(w: NodeWriter, x: BuildValue, output_size: Ints) -> BuildValue:
    rank = _rank(w)
    batched, sizes = _batched(w, x, rank), extents(output_size, rank)
    if set(sizes) == {1}:
        return w.reshape(w.op("GlobalAveragePool", batched), w.shape)
    cuts = [*map(divmod, x.shape[-rank:], sizes)]
    if not any(rest for _, rest in cuts):
        kernel = [extent for extent, _ in cuts]
        return w.reshape(w.op("AveragePool", batched, kernel_shape=kernel, strides=kernel), w.shape)
    for axis, size in enumerate(sizes, 2):
        last = [*(each for each in range(rank + 2) if each != axis), axis]
        means = w.constant(_means(batched.shape[axis], size), w.dtype)
        back = [last.index(each) for each in range(rank + 2)]
        batched = w.transpose(w.op("MatMul", w.transpose(batched, last), means), back)
    return w.reshape(batched, w.shape)


def _means(extent: int, size: int) -> np.ndarray:
    """The matrix that takes the means of ``size`` regions, which may differ in extents by one and overlap."""
    means = np.zeros((extent, size))
    for region in range(size):
        begin, end = region * extent // size, -(-(region + 1) * extent // size)
        means[begin:end, region] = 1 / (end - begin)
    return means


def _rank(w: NodeWriter) -> int:
    """Spatial dimensions, by the name of a pooling."""
    return int(w.name.partition("pool")[2][0])


def _batched(w: NodeWriter, x: BuildValue, rank: int) -> BuildValue:
    """A batch of one, of a single image."""
    return x if len(x.shape) == rank + 2 else w.reshape(x, (1, *x.shape))


# Products of matrices.


@lowers("mm", "bmm", "matmul", "mv", "dot")
def _matmul(w: NodeWriter, a: BuildValue, b: BuildValue) -> Any:
    if len(a.shape) == 2 and (matrix := _was_constant(w, b)) is not None:
        return w.op("Gemm", a, matrix, transB=1)
    return w.op("MatMul", a, b)


def _was_constant(w: NodeWriter, b: BuildValue) -> BuildValue | None:
    """The constant that a matrix is the transpose of."""
    matrix = w.transposed.get(b.name)
    return matrix if matrix is not None and matrix.value.data is not None else None


@lowers("addmm", "baddbmm", "addmv")
def _addmm(w: NodeWriter, c: BuildValue, a: BuildValue, b: BuildValue, *, beta: float = 1, alpha: float = 1) -> Any:
    if w.name == "addmm" and w.dtype in FLOATS:
        matrix = _was_constant(w, b)
        factors: dict[str, Any] = {"alpha": alpha, "beta": beta or None}
        operands = a, b if matrix is None else matrix, c if beta else None
        return w.op("Gemm", *operands, transB=int(matrix is not None), **factors)
    product = w.op("MatMul", a, b)
    if alpha != 1:
        product = w.op("Mul", product, alpha)
    if not beta:
        return product
    return w.op("Add", c if beta == 1 else w.op("Mul", c, beta), product)


@lowers("linear")
def _linear(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: BuildValue | None) -> Any:
    if len(x.shape) == 2 and len(weight.shape) == 2:
        return w.op("Gemm", x, weight, bias, transB=1)
    product = w.op("MatMul", x, w.transpose(weight, range(len(weight.shape))[::-1]))
    return product if bias is None else w.op("Add", product, bias)


# Recurrent layers, each a node of ONNX's.

_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2)}
"""PyTorch's gates, by their numbers, in ONNX's order."""


@lowers("lstm.input", "gru.input")
def _recurrent(w: NodeWriter, x: BuildValue, hx: Any, params: Sequence[BuildValue], *args: Any) -> tuple[Any, ...]:
    has_biases, num_layers, dropout, train, bidirectional, batch_first = args
    op_type, states = w.name.upper(), hx if isinstance(hx, list) else [hx]
    if (train and dropout) or len(x.shape) != 3:
        raise w.refuse("dropout in training, or a sequence that is no batch")
    n_params, n_directions = 4 if has_biases else 2, 2 if bidirectional else 1
    if len(params) != n_params * n_directions * num_layers:
        raise w.refuse("projections of the state")
    width = states[0].shape[-1]
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    steps, batch, _ = x.shape
    last: list[list[BuildValue]] = [[] for _ in states]
    for layer in range(num_layers):
        first, end = layer * n_directions, (layer + 1) * n_directions
        each = [params[start * n_params : (start + 1) * n_params] for start in range(first, end)]
        weights = [_stacked(w, _GATES[op_type], direction) for direction in zip(*each, strict=True)]
        bias = w.op("Concat", *weights[2:], axis=1) if has_biases else None
        initial = [state if num_layers == 1 else w.op("Slice", state, [first], [end], [0]) for state in states]
        y, *ends = w.op(
            op_type,
            *(x, *weights[:2], bias, None, *initial),
            n_outputs=1 + len(states),
            hidden_size=width,
            direction="bidirectional" if bidirectional else "forward",
            linear_before_reset=1 if op_type == "GRU" else None,
        )
        x = w.reshape(w.transpose(y, (0, 2, 1, 3)), (steps, batch, n_directions * width))
        for ended, state in zip(last, ends, strict=True):
            ended.append(state)
    x = w.transpose(x, (1, 0, 2)) if batch_first else x
    return x, *(ended[0] if num_layers == 1 else w.op("Concat", *ended, axis=0) for ended in last)


def _stacked(w: NodeWriter, gates: Sequence[int], params: Sequence[BuildValue]) -> Any:
    """Parameters of each direction, with their gates in ONNX's order."""
    parts = [w.op("Split", each, axis=0, num_outputs=len(gates), n_outputs=len(gates)) for each in params]
    rows = [w.op("Unsqueeze", w.op("Concat", *(part[gate] for gate in gates), axis=0), [0]) for part in parts]
    return rows[0] if len(rows) == 1 else w.op("Concat", *rows, axis=0)
