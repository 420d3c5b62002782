"""Comparisons: truth in the format of the first operand, from the bytes as they lie where both lie alike."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from blocklayout.eager.functions import special
from blocklayout.eager.operands import as_tensor, refused
from blocklayout.errors import InputError
from blocklayout.ir.result_format import pointwise
from blocklayout.layout import MemoryDesc
from blocklayout.layout_events import report
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor, from_array
from blocklayout.tensor.interop import plain_view
from blocklayout.tensor.moving import brought, compact


def _compared(name: str, compare: np.ufunc, x: Tensor, y: Any) -> Tensor:
    """By numpy, which compares numbers of different types by their values."""
    if isinstance(y, Real | np.generic):
        return x.map(lambda elements: _with_number(name, compare, elements, y))
    other = y if isinstance(y, Tensor) else as_tensor(y, f"{name}: y")
    if not isinstance(y, Tensor) and other.shape == x.shape:
        other = other.to(x.desc.format_tag)  # only Tensors are in a format on purpose
    try:
        dims = np.broadcast_shapes(x.shape, other.shape)
    except ValueError:
        raise InputError(f"{name}: y has shape {other.shape}, which does not go with {x.shape} of x") from None
    followed = pointwise((x.desc, other.desc), dims, "bool")
    if followed.reason:
        descs = (x.desc, other.desc)
        report("loss", name, descs, followed.desc, reason=followed.reason, always_warns=True)
    if x.shape != other.shape:
        return from_array(compare(_values(x), _values(other)), followed.desc.format_tag)
    target = MemoryDesc(other.shape, other.dtype, x.desc.format_tag)
    elements = compact(brought(other, target, name)).physical()
    return x.map(lambda own: compare(own, elements))


def _with_number(name: str, compare: np.ufunc, elements: np.ndarray, y: Any) -> np.ndarray:
    try:
        result: np.ndarray = compare(elements, y)
    except (OverflowError, TypeError):  # too large to become a float; no number
        raise refused(y, f"{name}: y", f"a number that can be compared with {elements.dtype}") from None
    return result


def _values(tensor: Tensor) -> np.ndarray:
    return plain_view(tensor) if tensor.desc.is_plain else tensor.numpy()


for _definition, _compare in {
    Operators.equal: np.equal,
    Operators.not_equal: np.not_equal,
    Operators.less: np.less,
    Operators.less_or_equal: np.less_equal,
    Operators.greater: np.greater,
    Operators.greater_or_equal: np.greater_equal,
}.items():
    special(_definition)(partial(_compared, _definition.__name__, _compare))
