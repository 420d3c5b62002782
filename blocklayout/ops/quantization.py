"""Integers that stand for real numbers by a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from blocklayout.ir import Facts, NodeInfo, NumpyFunction, Window
from blocklayout.ops._rows import beside_axis
from blocklayout.ops._window import read_window

_EXACT_IN_F32 = 1 << 24


class Quantized(Facts, frozen=True):
    """To integers and back, by numbers for the whole tensor, for each index along a dimension, or for each block."""

    op_types = ("DequantizeLinear", "QuantizeLinear")
    is_elementwise = True

    @classmethod
    def keeps_rows(cls, node: NodeInfo, rows: frozenset[int]) -> bool:
        is_for_all = all(prod(node.shape(index)) == 1 for index in range(1, len(node.inputs)))
        return rows == {0} and (is_for_all or (beside_axis(node, rows, 1) and not node.attrs.get("block_size", 0)))

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        function = _quantize if node.op_type == "QuantizeLinear" else _dequantize
        return partial(function, axis=node.int_attr("axis", 1), block=node.int_attr("block_size", 0))


def _quantize(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, *, out: np.ndarray, axis: int, block: int
) -> None:
    write_rounded(np.divide(x, _spread(scale, x, axis, block)), _spread(zero, x, axis, block), out)


def write_rounded(numbers: np.ndarray, zero: np.ndarray | None, out: np.ndarray) -> None:
    """Write the nearest integers of the result's type, ``zero`` added; ``numbers`` are lost."""
    numbers = np.rint(numbers)
    if zero is not None:
        numbers = numbers + zero
    limits = np.iinfo(out.dtype)
    np.copyto(out, np.clip(numbers, limits.min, limits.max), casting="unsafe")


def _dequantize(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None, *, out: np.ndarray, axis: int, block: int
) -> None:
    wide = x.astype(np.float32)
    if zero is not None:
        wide -= _spread(zero, x, axis, block).astype(np.float32)
    np.multiply(wide, _spread(scale, x, axis, block), out=out, casting="unsafe")


def _spread(given: np.ndarray | None, x: np.ndarray, axis: int, block: int) -> np.ndarray:
    """Scales or zero points in a shape that broadcasts to ``x``."""
    if given is None or given.size == 1:
        return given if given is None else given.reshape(())  # type: ignore[return-value]
    if given.ndim == 1:
        extents = [1] * x.ndim
        extents[axis] = given.size
        return given.reshape(extents)
    whole = np.repeat(given, block, axis)
    return np.take(whole, range(x.shape[axis]), axis)


class IntegerProduct(Facts, frozen=True):
    """Products of matrices of integers, exact."""

    op_types = ("MatMulInteger", "QLinearMatMul")

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        return _product if node.op_type == "MatMulInteger" else _quantized_product


def _product(
    a: np.ndarray,
    b: np.ndarray,
    a_zero: np.ndarray | None = None,
    b_zero: np.ndarray | None = None,
    *,
    out: np.ndarray,
) -> None:
    np.copyto(out, _exact(a, b, a_zero, b_zero), casting="unsafe")


def _exact(a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None, b_zero: np.ndarray | None) -> np.ndarray:
    """By floats, which the library behind numpy multiplies fast, wide enough for every sum."""
    wide: Any = np.float32 if a.shape[-1] << 16 < _EXACT_IN_F32 else np.float64
    first, second = a.astype(wide), b.astype(wide)
    if a_zero is not None:
        first -= a_zero[..., None] if a_zero.ndim == a.ndim - 1 and a_zero.size > 1 else a_zero
    if b_zero is not None:
        second -= b_zero
    product: np.ndarray = np.matmul(first, second)
    return product


def _quantized_product(*operands: np.ndarray, out: np.ndarray) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    factor = a_scale.astype(np.float32) * b_scale.astype(np.float32) / y_scale.astype(np.float32)
    write_rounded(_exact(a, b, a_zero, b_zero) * factor, y_zero, out)


class IntegerConvolution(Facts, frozen=True):
    """Convolutions of integers, exact."""

    op_types = ("ConvInteger", "QLinearConv")

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        is_scaled = node.op_type == "QLinearConv"
        window = read_window(node, node.shape(3 if is_scaled else 1)[2:], node.shape(0)[2:])
        groups = node.int_attr("group", 1)

        def convolve(x: np.ndarray, w: np.ndarray, zeros: Sequence[np.ndarray | None]) -> np.ndarray:
            wide: Any = np.float32 if prod(w.shape[1:]) << 16 < _EXACT_IN_F32 else np.float64
            x, w = x.astype(wide), w.astype(wide)
            if zeros[0] is not None:
                x -= zeros[0]
            if zeros[1] is not None:
                w -= zeros[1].reshape(-1, *(1,) * (w.ndim - 1))
            return _convolved(x, w, window, groups)

        def plain(
            x: np.ndarray,
            w: np.ndarray,
            x_zero: np.ndarray | None = None,
            w_zero: np.ndarray | None = None,
            *,
            out: np.ndarray,
        ) -> None:
            np.copyto(out, convolve(x, w, (x_zero, w_zero)), casting="unsafe")

        def scaled(*operands: Any, out: np.ndarray) -> None:
            x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*operands, None)[:9]
            found = convolve(x, w, (x_zero, w_zero))
            of_channels = (-1, *(1,) * (found.ndim - 2))
            if bias is not None:
                found += bias.reshape(of_channels)
            write_rounded(found * (x_scale * w_scale / y_scale).reshape(of_channels), y_zero, out)

        return scaled if is_scaled else plain


def _convolved(x: np.ndarray, w: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """As one product of matrices for each group, of windows side by side."""
    n_spatial = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(window.pads_begin, window.pads_end, strict=True)])
    seen = sliding_window_view(padded, window.reach, tuple(range(2, x.ndim)))
    steps: Any = (slice(None, None, step) for step in window.strides + window.dilations)
    seen = seen[(..., *steps)]
    parts = zip(np.split(seen, groups, 1), np.split(w, groups), strict=True)
    summed = (1, *range(2 + n_spatial, 2 + 2 * n_spatial))
    found = [np.tensordot(part, weights, (summed, range(1, w.ndim))) for part, weights in parts]
    return np.moveaxis(np.concatenate(found, -1), -1, 1)
