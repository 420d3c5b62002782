"""Reductions: what keeps its rank has the source's format; what does not is row-major."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor, integers

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.tensor import Tensor

_L1 = Op("reduce_l1", ("x", "axes"), op_type="ReduceL1")
_L2 = Op("reduce_l2", ("x", "axes"), op_type="ReduceL2")
_LOG_SUM = Op("reduce_log_sum", ("x", "axes"), op_type="ReduceLogSum")
_MAX = Op("reduce_max", ("x", "axes"), op_type="ReduceMax")
_MEAN = Op("reduce_mean", ("x", "axes"), op_type="ReduceMean")
_MIN = Op("reduce_min", ("x", "axes"), op_type="ReduceMin")
_PROD = Op("reduce_prod", ("x", "axes"), op_type="ReduceProd")
_SUM = Op("reduce_sum", ("x", "axes"), op_type="ReduceSum")
_SUM_SQUARE = Op("reduce_sum_square", ("x", "axes"), op_type="ReduceSumSquare")


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
