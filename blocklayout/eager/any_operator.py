"""Any of ONNX's operators, by its name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import Known, as_tensor, hashable
from blocklayout.errors import InputError
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand


def op(op_type: str, *operands: Operand | Known | None, n_outputs: int = 1, **attrs: Any) -> Any:
    """Any operator of ONNX's own operator set, on Tensors.

    What no primitive computes, ``onnx.reference`` does on row-major arrays; the result has the first operand's format
    all the same, and the caller is warned.

    Args:
        op_type: As ONNX writes it, ``Erf``.
        operands: Its inputs in ONNX order; ``None`` where an optional one is absent. Lists and tuples of integers are
            constants, such as axes.
        n_outputs: How many results to make.
        attrs: Its attributes as ONNX names them.

    Returns:
        The result, or a tuple of them where ``n_outputs`` is not 1.

    Raises:
        InputError: The first operand is no tensor.
        ModelError: No such operator or attribute, or operands against its specification.
        UnsupportedError: Nothing computes it here.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> x = bl.reorder(np.zeros((1, 16, 2, 2), np.float32), "nChw8c")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     bl.op("Erf", x).desc
        MemoryDesc((1, 16, 2, 2), 'f32', 'nChw8c')
    """
    if not operands or operands[0] is None:
        raise InputError(f"{op_type}: give a tensor or an array first")
    given = tuple(_given(each, f"input {place}") for place, each in enumerate(operands))
    results = call(_op(op_type, n_outputs), given, tuple((name, hashable(each)) for name, each in attrs.items()))
    return results[0] if n_outputs == 1 else tuple(results)


def _given(operand: Any, name: str) -> Tensor | Known | None:
    if operand is None or isinstance(operand, Known):
        return operand
    if isinstance(operand, list | tuple) and all(isinstance(each, int) for each in operand):
        return Known(tuple(operand), "int64")
    return as_tensor(operand, name)


@cache
def _op(op_type: str, n_outputs: int) -> Op:
    def build(*operands: Any, **attrs: Any) -> Any:
        return operands[0].builder.op(op_type, *operands, n_outputs=n_outputs, **attrs)

    return Op(op_type, build=build, op_type=op_type)
