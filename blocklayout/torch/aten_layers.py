"""Layers: convolutions, pooling, normalisations, products of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import FLOATS
from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, extents, filled, lowers

Ints = int | Sequence[int]


# Convolutions.


@lowers("aten.convolution.default")
def _convolution(w: NodeWriter, x: BuildValue, weights: BuildValue, bias: BuildValue | None, *args: Any) -> BuildValue:
    stride, padding, dilation, transposed, output_padding, groups = args
    rank = len(weights.shape) - 2
    batched = _batched(w, x, rank)
    attrs: dict[str, Any] = {
        "strides": extents(stride, rank),
        "pads": extents(padding, rank) * 2,
        "dilations": extents(dilation, rank),
        "group": groups,
    }
    if transposed:
        attrs["output_padding"] = extents(output_padding, rank)
    y: BuildValue = w.op("ConvTranspose" if transposed else "Conv", batched, weights, bias, **attrs)
    return w.reshape(y, w.shape)


@lowers(*(f"aten.conv{rank}d.{how}" for rank in (1, 2, 3) for how in ("default", "padding")))
def _conv(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: BuildValue | None = None, *args: Any) -> Any:
    stride, padding, dilation, groups = filled(args, 1, 0, 1, 1)
    rank = len(weight.shape) - 2
    if not isinstance(padding, str):
        return _convolution(w, x, weight, bias, stride, padding, dilation, False, 0, groups)
    batched = _batched(w, x, rank)
    same = "SAME_UPPER" if padding == "same" else "VALID"
    attrs: dict[str, Any] = {"strides": extents(stride, rank), "dilations": extents(dilation, rank), "group": groups}
    return w.reshape(w.op("Conv", batched, weight, bias, auto_pad=same, **attrs), w.shape)


@lowers("aten.conv_transpose1d.default", "aten.conv_transpose2d.input", "aten.conv_transpose3d.input")
def _conv_transpose(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: Any = None, *args: Any) -> Any:
    stride, padding, output_padding, groups, dilation = filled(args, 1, 0, 0, 1, 1)
    return _convolution(w, x, weight, bias, stride, padding, dilation, True, output_padding, groups)


# Normalisations.


@lowers("aten._native_batch_norm_legit_no_training.default")
def _batch_norm_legit(w: NodeWriter, x: BuildValue, *args: Any) -> Any:
    weight, bias, mean, var, _momentum, eps = args
    return _normalized(w, x, weight, bias, mean, var, eps)


@lowers("aten._native_batch_norm_legit.default", "aten.native_batch_norm.default", "aten.batch_norm.default")
def _batch_norm(w: NodeWriter, x: BuildValue, *args: Any) -> Any:
    weight, bias, mean, var, training, _momentum, eps, *_ = args
    if training and mean is None:
        return _batch_norm_by_own_statistics(w, x, weight, bias, training, 0, eps)
    if training:
        raise w.refuse("batch normalisation in training; inference mode only")
    return _normalized(w, x, weight, bias, mean, var, eps)


def _normalized(w: NodeWriter, x: BuildValue, weight: Any, bias: Any, mean: Any, var: Any, eps: float) -> Any:
    weight, bias = _affine(w, weight, bias, mean.shape)
    return w.op("BatchNormalization", x, weight, bias, mean, var, epsilon=eps)


def _affine(w: NodeWriter, weight: Any, bias: Any, shape: Sequence[int]) -> tuple[Any, Any]:
    """Scale and shift, 1 and 0 by default."""
    scale = w.constant(np.ones(shape), w.dtype) if weight is None else weight
    return scale, w.constant(np.zeros(shape), w.dtype) if bias is None else bias


@lowers("aten._native_batch_norm_legit.no_stats")
def _batch_norm_by_own_statistics(
    w: NodeWriter, x: BuildValue, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    del training, momentum
    n, channels, *spatial = x.shape
    scale, shift = _affine(w, weight, bias, (channels,))
    if n == 1 and spatial:
        return w.op("InstanceNormalization", x, scale, shift, epsilon=eps)
    perm = [1, 0, *range(2, len(x.shape))]
    moved = w.transpose(x, perm)
    flat = w.reshape(moved, (1, channels, math.prod(x.shape) // channels))
    y = w.op("InstanceNormalization", flat, scale, shift, epsilon=eps)
    return w.transpose(w.reshape(y, moved.shape), perm)


@lowers("aten.instance_norm.default")
def _instance_norm(w: NodeWriter, x: BuildValue, *args: Any) -> Any:
    weight, bias, mean, var, use_input_stats, _momentum, eps, _ = args
    if not use_input_stats:
        return _normalized(w, x, weight, bias, mean, var, eps)
    return w.op("InstanceNormalization", x, *_affine(w, weight, bias, (x.shape[1],)), epsilon=eps)


@lowers("aten.native_group_norm.default")
def _native_group_norm(w: NodeWriter, x: BuildValue, weight: Any, bias: Any, *args: Any) -> Any:
    *_, group, eps = args
    return _group_norm(w, x, group, weight, bias, eps)


@lowers("aten.group_norm.default")
def _group_norm(w: NodeWriter, x: BuildValue, num_groups: int, *args: Any) -> Any:
    weight, bias, eps, *_ = filled(args, None, None, 1e-5)
    return w.op("GroupNormalization", x, *_affine(w, weight, bias, (x.shape[1],)), num_groups=num_groups, epsilon=eps)


@lowers("aten.layer_norm.default", "aten.native_layer_norm.default")
def _layer_norm(w: NodeWriter, x: BuildValue, normalized_shape: Sequence[int], *args: Any) -> Any:
    weight, bias, eps, *_ = filled(args, None, None, 1e-5)
    scale, _ = _affine(w, weight, bias, normalized_shape)
    return w.op("LayerNormalization", x, scale, bias, axis=-len(normalized_shape), epsilon=eps)


# Pooling.


@lowers(*(f"aten.max_pool{rank}d{kind}.default" for rank in (1, 2, 3) for kind in ("", "_with_indices")))
def _max_pool(w: NodeWriter, x: BuildValue, kernel_size: Ints, *args: Any) -> Any:
    stride, padding, dilation, ceil_mode = filled(args, (), 0, 1, False)
    rank = _rank(w)
    kernel = extents(kernel_size, rank)
    batched = _batched(w, x, rank)
    attrs: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": extents(stride or kernel, rank),
        "pads": extents(padding, rank) * 2,
        "dilations": extents(dilation, rank),
        "ceil_mode": int(ceil_mode),
    }
    return _largest(w, batched, attrs)


def _largest(w: NodeWriter, x: BuildValue, attrs: dict[str, Any]) -> Any:
    """The largest of each window, and where in its image it is, if that is read."""
    if 1 not in w.read:
        return w.reshape(w.op("MaxPool", x, **attrs), w.shape)
    y, at = w.op("MaxPool", x, n_outputs=2, **attrs)
    at = w.op("Mod", at, w.constant(math.prod(x.shape[2:]), "s64"))  # ONNX counts through the whole batch
    return w.reshape(y, w.shape), w.reshape(at, w.shape)


@lowers("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def _adaptive_max_pool(w: NodeWriter, x: BuildValue, output_size: Ints) -> Any:
    rank = _rank(w)
    batched = _batched(w, x, rank)
    sizes, spatial = extents(output_size, rank), batched.shape[2:]
    if any(extent % size for extent, size in zip(spatial, sizes, strict=True)):
        raise w.refuse("regions that differ in extents")
    kernel = tuple(extent // size for extent, size in zip(spatial, sizes, strict=True))
    return _largest(w, batched, {"kernel_shape": kernel, "strides": kernel})


@lowers(*(f"aten.avg_pool{rank}d.default" for rank in (1, 2, 3)))
def _avg_pool(w: NodeWriter, x: BuildValue, kernel_size: Ints, *args: Any) -> BuildValue:
    stride, padding, ceil_mode, count_include_pad, divisor_override = filled(args, (), 0, False, True, None)
    rank = _rank(w)
    kernel = extents(kernel_size, rank)
    if divisor_override is not None and ceil_mode:
        raise w.refuse("divisor_override with ceil_mode")
    y: BuildValue = w.op(
        "AveragePool",
        _batched(w, x, rank),
        kernel_shape=kernel,
        strides=extents(stride or kernel, rank),
        pads=extents(padding, rank) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad or divisor_override is not None),
    )
    if divisor_override is not None:
        y = w.op("Mul", y, w.constant(math.prod(kernel) / divisor_override, w.dtype))
    return w.reshape(y, w.shape)


@lowers(*(f"aten.{name}avg_pool{rank}d.default" for rank in (1, 2, 3) for name in ("adaptive_", "_adaptive_")))
def _adaptive_avg_pool(w: NodeWriter, x: BuildValue, output_size: Ints) -> BuildValue:
    rank = _rank(w)
    batched = _batched(w, x, rank)
    sizes, spatial = extents(output_size, rank), batched.shape[2:]
    if set(sizes) == {1}:
        return w.reshape(w.op("GlobalAveragePool", batched), w.shape)
    if not any(extent % size for extent, size in zip(spatial, sizes, strict=True)):
        kernel = tuple(extent // size for extent, size in zip(spatial, sizes, strict=True))
        return w.reshape(w.op("AveragePool", batched, kernel_shape=kernel, strides=kernel), w.shape)
    for axis, (extent, size) in enumerate(zip(spatial, sizes, strict=True), 2):
        last = [*(each for each in range(rank + 2) if each != axis), axis]
        back = [last.index(each) for each in range(rank + 2)]
        means = w.op("MatMul", w.transpose(batched, last), w.constant(_means(extent, size), w.dtype))
        batched = w.transpose(means, back)
    return w.reshape(batched, w.shape)


def _means(extent: int, size: int) -> np.ndarray:
    """The matrix that takes the means of ``size`` regions, which may differ in extents by one and overlap."""
    means = np.zeros((extent, size))
    for region in range(size):
        begin, end = region * extent // size, -(-(region + 1) * extent // size)
        means[begin:end, region] = 1 / (end - begin)
    return means


def _rank(w: NodeWriter) -> int:
    """Spatial dimensions, by the overload's name."""
    return int(w.overload[w.overload.index("d", w.overload.index("pool")) - 1])


def _batched(w: NodeWriter, x: BuildValue, rank: int) -> BuildValue:
    """A batch of one, of a single image."""
    return x if len(x.shape) == rank + 2 else w.reshape(x, (1, *x.shape))


# Products of matrices.


@lowers("aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default")
def _matmul(w: NodeWriter, a: BuildValue, b: BuildValue) -> Any:
    if len(a.shape) == 2 and (matrix := _was_constant(w, b)) is not None:
        return w.op("Gemm", a, matrix, transB=1)
    return w.op("MatMul", a, b)


def _was_constant(w: NodeWriter, b: BuildValue) -> BuildValue | None:
    """The constant that a matrix is the transpose of."""
    matrix = w.transposed.get(b.name)
    return matrix if matrix is not None and matrix.value.data is not None else None


@lowers("aten.addmm.default")
def _addmm(w: NodeWriter, c: BuildValue, a: BuildValue, b: BuildValue, *, beta: float = 1, alpha: float = 1) -> Any:
    if w.dtype not in FLOATS:
        return _baddbmm(w, c, a, b, beta=beta, alpha=alpha)
    matrix = _was_constant(w, b)
    attrs: dict[str, Any] = {"transB": None if matrix is None else 1, "alpha": None if alpha == 1 else alpha}
    added = c if beta else None
    return w.op("Gemm", a, b if matrix is None else matrix, added, beta=None if beta == 1 else beta, **attrs)


@lowers("aten.baddbmm.default", "aten.addmv.default")
def _baddbmm(w: NodeWriter, c: BuildValue, a: BuildValue, b: BuildValue, *, beta: float = 1, alpha: float = 1) -> Any:
    product = w.op("MatMul", a, b)
    if alpha != 1:
        product = w.op("Mul", product, w.constant(alpha, w.dtype))
    if not beta:
        return product
    return w.op("Add", c if beta == 1 else w.op("Mul", c, w.constant(beta, w.dtype)), product)


@lowers("aten.linear.default")
def _linear(w: NodeWriter, x: BuildValue, weight: BuildValue, bias: BuildValue | None = None) -> Any:
    if len(x.shape) == 2 and len(weight.shape) == 2:
        return w.op("Gemm", x, weight, bias, transB=1)
    product = w.op("MatMul", x, w.transpose(weight, range(len(weight.shape))[::-1]))
    return product if bias is None else w.op("Add", product, bias)
