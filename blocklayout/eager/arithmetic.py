"""Functions of several tensors, element by element, with numpy's broadcasting; numbers are welcome too.

The result has the format of the first operand that is not broadcast; where another one differs, the caller is warned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor, as_tensor_like
from blocklayout.errors import InputError
from blocklayout.tensor import Tensor as _Tensor

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.tensor import Tensor

_ADD = Op("add", ("x", "y"), op_type="Add")
_SUB = Op("sub", ("x", "y"), op_type="Sub")
_MUL = Op("mul", ("x", "y"), op_type="Mul")
_DIV = Op("div", ("x", "y"), op_type="Div")
_MAX = Op("max", ("x",), op_type="Max")
_MIN = Op("min", ("x",), op_type="Min")
_SUM = Op("sum", ("x",), op_type="Sum")
_POW = Op("pow", ("x", "exponent"), op_type="Pow")
_PRELU = Op("prelu", ("x", "slope"), op_type="PRelu")


def add(x: Operand | float, y: Operand | float) -> Tensor:
    """The sum of two."""
    return call(_ADD, _pair(x, y))[0]


def sub(x: Operand | float, y: Operand | float) -> Tensor:
    """The difference of two."""
    return call(_SUB, _pair(x, y))[0]


def mul(x: Operand | float, y: Operand | float) -> Tensor:
    """The product of two, element by element."""
    return call(_MUL, _pair(x, y))[0]


def div(x: Operand | float, y: Operand | float) -> Tensor:
    """The quotient of two."""
    return call(_DIV, _pair(x, y))[0]


def max(*tensors: Operand | float) -> Tensor:
    """The largest, element by element."""
    return call(_MAX, _row(tensors))[0]


def min(*tensors: Operand | float) -> Tensor:
    """The smallest, element by element."""
    return call(_MIN, _row(tensors))[0]


def sum(*tensors: Operand | float) -> Tensor:
    """The sum, element by element."""
    return call(_SUM, _row(tensors))[0]


def pow(x: Operand, exponent: Operand | float) -> Tensor:
    """``x`` to the power of ``exponent``; fast for one number, which is part of the plan."""
    if isinstance(exponent, int | float):
        return call(_POW, (as_tensor(x, "x"), float(exponent)))[0]
    return call(_POW, _pair(x, exponent))[0]


def prelu(x: Operand, slope: Operand) -> Tensor:
    """``slope * x`` below 0, ``x`` from there on; one slope, or one for each channel in an array of shape (C, 1, 1)."""
    return call(_PRELU, (as_tensor(x, "x"), as_tensor(slope, "slope")))[0]


def _pair(x: Operand | float, y: Operand | float) -> tuple[Tensor, Tensor]:
    if type(x) is _Tensor:
        return x, as_tensor_like(y, "y", x)
    if type(y) is _Tensor:
        return as_tensor_like(x, "x", y), y
    first, second = _row((x, y))
    return first, second


def _row(tensors: tuple[Operand | float, ...]) -> tuple[Tensor, ...]:
    """Tensors of all, numbers like the first that is none."""
    for each in tensors:
        if not isinstance(each, int | float):
            like = as_tensor(each, "x")
            return tuple(like if other is each else as_tensor_like(other, "x", like) for other in tensors)
    raise InputError("give at least one tensor or array; numbers alone have no layout")
