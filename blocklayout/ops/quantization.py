"""Integers that stand for real numbers by a scale and a zero point."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from blocklayout.ir import Facts, NodeInfo, NumpyFunction
from blocklayout.ops._rows import beside_axis
from blocklayout.ops.integer_convolution import exact_convolution
from blocklayout.ops.integer_product import exact_product


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


class QuantizedProduct(Facts, frozen=True):
    """Products of matrices of integers, brought to another scale."""

    op_types = ("QLinearMatMul",)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        del node
        return _quantized_product


def _quantized_product(*operands: np.ndarray, out: np.ndarray) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    factor = a_scale.astype(np.float32) * b_scale.astype(np.float32) / y_scale.astype(np.float32)
    write_rounded(exact_product(a, b, a_zero, b_zero) * factor, y_zero, out)


class QuantizedConvolution(Facts, frozen=True):
    """Convolutions of integers, brought to another scale."""

    op_types = ("QLinearConv",)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        convolve = exact_convolution(node, node.shape(3))

        def compute(*operands: Any, out: np.ndarray) -> None:
            x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*operands, None)[:9]
            found = convolve(x, w, x_zero, w_zero)
            of_channels = (-1, *(1,) * (found.ndim - 2))
            if bias is not None:
                found += bias.reshape(of_channels)
            write_rounded(found * (x_scale * w_scale / y_scale).reshape(of_channels), y_zero, out)

        return compute
