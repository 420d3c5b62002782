"""Products of matrices: the result is row-major."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.tensor import Tensor

_MATMUL = Op("matmul", ("x", "y"), lambda x, y: x.matmul(y), op_type="MatMul")
_GEMM = Op("gemm", ("x", "y", "c"), lambda x, y, c=None, **attrs: x.gemm(y, c, **attrs), op_type="Gemm")


def matmul(x: Operand, y: Operand) -> Tensor:
    """Matrix product over the last two dimensions; those before are broadcast."""
    return call(_MATMUL, (as_tensor(x, "x"), as_tensor(y, "y")))[0]


def gemm(
    x: Operand,
    y: Operand,
    c: Operand | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Tensor:
    """The matrix alpha * x @ y + beta * c, ``x`` and ``y`` transposed where asked for; ``c`` is broadcast."""
    operands = (as_tensor(x, "x"), as_tensor(y, "y"), None if c is None else as_tensor(c, "c"))
    attrs = (("alpha", float(alpha)), ("beta", float(beta)), ("trans_a", trans_a), ("trans_b", trans_b))
    return call(_GEMM, operands, attrs)[0]
