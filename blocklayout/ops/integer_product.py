"""Products of matrices of integers, exact."""

from __future__ import annotations

import numpy as np

from blocklayout.ir import Lowered, NodeInfo, NumpyFunction, Refusal
from blocklayout.ir.result_format import row_major
from blocklayout.ops._zero_points import ByteProduct, exact_floats, have_one_number, is_exact, of_signed
from blocklayout.ops.matmul import MatMul


def _has_signed_weights(node: NodeInfo) -> Refusal | None:
    """Constants are made so, and so is their zero point."""
    weights = node.required(1, "B")
    if weights.dtype == "s8" or (weights.data is not None and of_signed(weights, node.input(3)) is not None):
        return None
    what = f"B ({weights.name}) is u8, and it or its zero point computed at run time"
    return node.refused(what, "its primitive takes s8")


class IntegerProduct(ByteProduct, frozen=True):
    """A product of matrices of bytes."""

    op_types = ("MatMulInteger",)
    needs = (is_exact, have_one_number, _has_signed_weights)

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        product = MatMul.from_onnx(node)
        return product if isinstance(product, Refusal) else cls.with_zeros(product, node)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        del node
        return _product

    result_format = staticmethod(row_major)


def _product(
    a: np.ndarray,
    b: np.ndarray,
    a_zero: np.ndarray | None = None,
    b_zero: np.ndarray | None = None,
    *,
    out: np.ndarray,
) -> None:
    np.copyto(out, exact_product(a, b, a_zero, b_zero), casting="unsafe")


def exact_product(a: np.ndarray, b: np.ndarray, a_zero: np.ndarray | None, b_zero: np.ndarray | None) -> np.ndarray:
    """By floats, which the library behind numpy multiplies fast, wide enough for every sum."""
    wide = exact_floats(a.shape[-1])
    first, second = a.astype(wide), b.astype(wide)
    if a_zero is not None:
        first -= a_zero[..., None] if a_zero.ndim == a.ndim - 1 and a_zero.size > 1 else a_zero
    if b_zero is not None:
        second -= b_zero
    product: np.ndarray = np.matmul(first, second)
    return product
