"""Integers that stand for real numbers by a scale and a zero point."""

from __future__ import annotations

from functools import partial

import numpy as np

from blocklayout.ir import Facts, NodeInfo, NumpyFunction

_EXACT_IN_F32 = 1 << 24


class Quantized(Facts, frozen=True):
    """To integers and back, by numbers for the whole tensor, for each index along a dimension, or for each block."""

    op_types = ("DequantizeLinear", "QuantizeLinear")
    is_elementwise = True

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
    wide = np.float32 if a.shape[-1] << 16 < _EXACT_IN_F32 else np.float64
    first, second = a.astype(wide), b.astype(wide)
    if a_zero is not None:
        first -= a_zero[..., None] if a_zero.ndim == a.ndim - 1 and a_zero.size > 1 else a_zero
    if b_zero is not None:
        second -= b_zero
    return np.matmul(first, second)


def _quantized_product(
    a: np.ndarray,
    a_scale: np.ndarray,
    a_zero: np.ndarray,
    b: np.ndarray,
    b_scale: np.ndarray,
    b_zero: np.ndarray,
    y_scale: np.ndarray,
    y_zero: np.ndarray,
    out: np.ndarray,
) -> None:
    factor = a_scale.astype(np.float32) * b_scale.astype(np.float32) / y_scale.astype(np.float32)
    write_rounded(_exact(a, b, a_zero, b_zero) * factor, y_zero, out)
