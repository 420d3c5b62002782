"""Layers: convolutions, pooling, normalisations, products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from blocklayout.model import BuildValue
from blocklayout.torch.aten_writer import NodeWriter, extents, lowers

Ints = int | Sequence[int]


@lowers("aten.convolution.default")
def _convolution(
    w: NodeWriter,
    x: BuildValue,
    weights: BuildValue,
    bias: BuildValue | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> BuildValue:
    rank = len(weights.shape) - 2
    batched = x if len(x.shape) == rank + 2 else w.reshape(x, (1, *x.shape))
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


@lowers("aten._native_batch_norm_legit_no_training.default")
def _batch_norm(
    w: NodeWriter,
    x: BuildValue,
    weight: BuildValue | None,
    bias: BuildValue | None,
    mean: BuildValue,
    var: BuildValue,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    del momentum
    scale = np.ones(mean.shape, np.float32) if weight is None else weight
    shift = np.zeros(mean.shape, np.float32) if bias is None else bias
    return w.op("BatchNormalization", x, scale, shift, mean, var, epsilon=eps), None, None


@lowers("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def _max_pool(
    w: NodeWriter,
    x: BuildValue,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> tuple[Any, ...]:
    rank = 3 if "3d" in w.overload else 2
    kernel = extents(kernel_size, rank)
    y = w.op(
        "MaxPool",
        _batched(w, x, rank),
        kernel_shape=kernel,
        strides=extents(stride or kernel, rank),
        pads=extents(padding, rank) * 2,
        dilations=extents(dilation, rank),
        ceil_mode=int(ceil_mode),
    )
    return w.reshape(y, w.shape), None


@lowers("aten.avg_pool1d.default", "aten.avg_pool2d.default", "aten.avg_pool3d.default")
def _avg_pool(
    w: NodeWriter,
    x: BuildValue,
    kernel_size: Ints,
    stride: Ints = (),
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> BuildValue:
    rank = int(w.overload[len("aten.avg_pool")])
    kernel = extents(kernel_size, rank)
    y: BuildValue = w.op(
        "AveragePool",
        _batched(w, x, rank),
        kernel_shape=kernel,
        strides=extents(stride or kernel, rank),
        pads=extents(padding, rank) * 2,
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )
    if divisor_override is not None:
        raise w.refuse("divisor_override")
    return w.reshape(y, w.shape)


@lowers("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def _adaptive_avg_pool(w: NodeWriter, x: BuildValue, output_size: Ints) -> BuildValue:
    rank = 3 if "3d" in w.overload else 2
    batched = _batched(w, x, rank)
    sizes = extents(output_size, rank)
    if set(sizes) == {1}:
        return w.reshape(w.op("GlobalAveragePool", batched), w.shape)
    spatial = batched.shape[2:]
    if any(extent % size for extent, size in zip(spatial, sizes, strict=True)):
        raise w.refuse(f"regions of {spatial} that differ in extents, for {sizes} results")
    kernel = tuple(extent // size for extent, size in zip(spatial, sizes, strict=True))
    y: BuildValue = w.op("AveragePool", batched, kernel_shape=kernel, strides=kernel)
    return w.reshape(y, w.shape)


def _batched(w: NodeWriter, x: BuildValue, rank: int) -> BuildValue:
    """A batch of one, of a single image."""
    return x if len(x.shape) == rank + 2 else w.reshape(x, (1, *x.shape))


@lowers("aten.mm.default", "aten.bmm.default")
def _matmul(w: NodeWriter, a: BuildValue, b: BuildValue) -> Any:
    if b.name in w.transposed and w.transposed[b.name].value.data is not None:
        return w.op("Gemm", a, w.transposed[b.name], transB=1)
    return w.op("MatMul", a, b)


@lowers("aten.addmm.default")
def _addmm(w: NodeWriter, c: BuildValue, a: BuildValue, b: BuildValue, beta: float = 1, alpha: float = 1) -> Any:
    matrix = w.transposed.get(b.name)
    known = matrix is not None and matrix.value.data is not None
    return w.op(
        "Gemm",
        a,
        matrix if known else b,
        c,
        transB=1 if known else None,
        alpha=None if alpha == 1 else alpha,
        beta=None if beta == 1 else beta,
    )
