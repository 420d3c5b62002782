"""Operators that are computed without a plan: views, and comparisons from the bytes as they lie."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import prod
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.eager.functions import computed, special
from blocklayout.eager.operands import as_tensor, refused
from blocklayout.errors import InputError, LayoutError
from blocklayout.ir.result_format import pointwise
from blocklayout.layout import MemoryDesc
from blocklayout.layout_events import report
from blocklayout.operators import Operators
from blocklayout.recording import recorded
from blocklayout.tensor import Tensor, from_array
from blocklayout.tensor.interop import plain_view
from blocklayout.tensor.moving import brought, compact

if TYPE_CHECKING:
    from blocklayout.operators import Axes


@special(Operators.identity)
@special(Operators.dropout)
def _identity(x: Tensor) -> Tensor:
    return x


_moved = computed(Operators.reshape)


@special(Operators.reshape)
def _reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    dims = _worked_out(x.shape, shape)
    view = _view(x, dims)
    return _moved(x, dims) if view is None else view


@special(Operators.flatten)
def _flatten(x: Tensor, axis: int = 1) -> Tensor:
    if not -x.desc.ndims <= axis <= x.desc.ndims:
        raise InputError(
            f"flatten: axis is {axis}; give one of {-x.desc.ndims} to {x.desc.ndims} for x of shape {x.shape}"
        )
    return _reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@special(Operators.squeeze)
def _squeeze(x: Tensor, axes: Axes | None = None) -> Tensor:
    gone = _axes(axes, x.desc.ndims, "squeeze") if axes is not None else {d for d, n in enumerate(x.shape) if n == 1}
    if any(x.shape[axis] != 1 for axis in gone):
        raise InputError(f"squeeze: axes is {axes}; give dimensions of an extent of 1 of x of shape {x.shape}")
    return _reshape(x, tuple(n for axis, n in enumerate(x.shape) if axis not in gone) or (1,))


@special(Operators.unsqueeze)
def _unsqueeze(x: Tensor, axes: Axes) -> Tensor:
    ndims = x.desc.ndims + (1 if isinstance(axes, int) else len(axes))
    new, old = _axes(axes, ndims, "unsqueeze"), iter(x.shape)
    return _reshape(x, tuple(1 if axis in new else next(old) for axis in range(ndims)))


@special(Operators.transpose)
def _transpose(x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    order = tuple(reversed(range(x.desc.ndims))) if perm is None else perm
    if sorted(axis % x.desc.ndims for axis in order) != list(range(x.desc.ndims)):
        raise InputError(f"transpose: perm is {perm}; give each dimension of x of shape {x.shape} once")
    return x.permute(order)


@recorded("view")
def _view(x: Tensor, dims: tuple[int, ...]) -> Tensor | None:
    """Other extents over the same bytes; ``None`` where these would have to move."""
    with suppress(LayoutError):
        desc = x.desc.viewed_as(dims)
        if desc.nbytes == x.desc.nbytes:
            return Tensor(desc, x.buffer)
    return None


def _worked_out(dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    if shape and min(shape) > 0 and prod(shape) == prod(dims):
        return shape
    known = tuple(dims[axis] if n == 0 and axis < len(dims) else n for axis, n in enumerate(shape))
    rest = prod(n for n in known if n != -1)
    if known.count(-1) == 1 and rest and prod(dims) % rest == 0:
        known = tuple(prod(dims) // rest if n == -1 else n for n in known)
    if any(n < 0 for n in known) or prod(known) != prod(dims):
        raise InputError(f"reshape: shape is {shape}; give one of the {prod(dims)} elements of x of shape {dims}")
    return known


def _axes(axes: Axes, ndims: int, function: str) -> set[int]:
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    found = {axis % ndims for axis in given if -ndims <= axis < ndims}
    if len(found) != len(given):
        raise InputError(f"{function}: axes is {axes}; give some of {-ndims} to {ndims - 1}, each once")
    return found


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
    special(_definition)(recorded(_definition.__name__)(partial(_compared, _definition.__name__, _compare)))
