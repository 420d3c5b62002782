"""Reductions: what keeps its rank has the source's format; what does not is row-major."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor, integers

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.tensor import Tensor

_L1 = Op("ReduceL1", ("x", "axes"))
_L2 = Op("ReduceL2", ("x", "axes"))
_LOG_SUM = Op("ReduceLogSum", ("x", "axes"))
_MAX = Op("ReduceMax", ("x", "axes"))
_MEAN = Op("ReduceMean", ("x", "axes"))
_MIN = Op("ReduceMin", ("x", "axes"))
_PROD = Op("ReduceProd", ("x", "axes"))
_SUM = Op("ReduceSum", ("x", "axes"))
_SUM_SQUARE = Op("ReduceSumSquare", ("x", "axes"))


def reduce_l1(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The sum of sizes over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_L1, x, axes, keepdims=keepdims)


def reduce_l2(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The root of the sum of squares over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_L2, x, axes, keepdims=keepdims)


def reduce_log_sum(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The logarithm of the sum over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_LOG_SUM, x, axes, keepdims=keepdims)


def reduce_max(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The largest over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_MAX, x, axes, keepdims=keepdims)


def reduce_mean(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The mean over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_MEAN, x, axes, keepdims=keepdims)


def reduce_min(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The smallest over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_MIN, x, axes, keepdims=keepdims)


def reduce_prod(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The product over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_PROD, x, axes, keepdims=keepdims)


def reduce_sum(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The sum over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_SUM, x, axes, keepdims=keepdims)


def reduce_sum_square(x: Operand, axes: int | Sequence[int] | None = None, *, keepdims: bool = True) -> Tensor:
    """The sum of squares over ``axes``, or all; they stay with extent 1 if ``keepdims``."""
    return _reduced(_SUM_SQUARE, x, axes, keepdims=keepdims)


def _reduced(op: Op, x: Operand, axes: int | Sequence[int] | None, *, keepdims: bool) -> Tensor:
    known = None if axes is None else integers(axes)
    return call(op, (as_tensor(x, "x"), known), (("keepdims", int(keepdims)),))[0]
