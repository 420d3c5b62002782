"""Tensors of other extents: views where the bytes may stay as they are, else what is computed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING

from blocklayout.eager.functions import computed, special
from blocklayout.errors import InputError, LayoutError
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from blocklayout.operators import Extents


@special(Operators.identity)
@special(Operators.dropout)
def _identity(x: Tensor) -> Tensor:
    return x


_moved = computed(Operators.reshape)


@special(Operators.reshape)
def _reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    dims = _worked_out(x.shape, tuple(shape))
    view = _view(x, dims)
    return _moved(x, dims) if view is None else view


@special(Operators.flatten)
def _flatten(x: Tensor, axis: int = 1) -> Tensor:
    if not -x.desc.ndims <= axis <= x.desc.ndims:
        raise InputError(f"flatten: axis {axis} of {x.desc.ndims} dimensions")
    return _reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


@special(Operators.squeeze)
def _squeeze(x: Tensor, axes: Extents | None = None) -> Tensor:
    gone = _axes(axes, x.desc.ndims) if axes is not None else {d for d, n in enumerate(x.shape) if n == 1}
    if any(x.shape[axis] != 1 for axis in gone):
        raise InputError(f"squeeze: axes {sorted(gone)} of {x.shape} must have an extent of 1")
    return _reshape(x, tuple(n for axis, n in enumerate(x.shape) if axis not in gone) or (1,))


@special(Operators.unsqueeze)
def _unsqueeze(x: Tensor, axes: Extents) -> Tensor:
    ndims = x.desc.ndims + (1 if isinstance(axes, int) else len(axes))
    new, old = _axes(axes, ndims), iter(x.shape)
    return _reshape(x, tuple(1 if axis in new else next(old) for axis in range(ndims)))


@special(Operators.transpose)
def _transpose(x: Tensor, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(*(reversed(range(x.desc.ndims)) if perm is None else perm))


def _view(x: Tensor, dims: tuple[int, ...]) -> Tensor | None:
    """Other extents over the same bytes; ``None`` where these would have to move."""
    with suppress(LayoutError):
        desc = x.desc.reshaped(dims)
        if desc.nbytes == x.desc.nbytes:
            return Tensor(desc, x.buffer)
    return None


def _worked_out(dims: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    known = tuple(dims[axis] if n == 0 and axis < len(dims) else n for axis, n in enumerate(shape))
    rest = prod(n for n in known if n != -1)
    if known.count(-1) == 1 and rest and prod(dims) % rest == 0:
        known = tuple(prod(dims) // rest if n == -1 else n for n in known)
    if any(n < 0 for n in known) or prod(known) != prod(dims):
        raise InputError(f"reshape: {dims} has {prod(dims)} elements, which is not what {shape} has")
    return known


def _axes(axes: Extents, ndims: int) -> set[int]:
    given = (axes,) if isinstance(axes, int) else tuple(axes)
    if any(not -ndims <= axis < ndims for axis in given):
        raise InputError(f"axes {given} of {ndims} dimensions; they are {-ndims} to {ndims - 1}")
    return {axis % ndims for axis in given}
