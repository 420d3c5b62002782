"""Elements by logical position: views where a descriptor says them, copies where not."""

from __future__ import annotations

from operator import index as as_integer
from types import EllipsisType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from blocklayout.errors import InputError, LayoutError, PositionError
from blocklayout.layout.addresses import address
from blocklayout.layout.boxes import Box, Line, copied, dims_of, offsets_in, viewed
from blocklayout.layout.packing import write
from blocklayout.layout_events import is_watched, report
from blocklayout.tensor.conversion import convert
from blocklayout.tensor.interop import as_array, plain_view
from blocklayout.tensor.tensor_class import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from blocklayout.layout import MemoryDesc

Index: TypeAlias = "SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType, ...]"
"""Types of an index."""


def get(tensor: Tensor, index: Index) -> Any:
    """See :meth:`Tensor.__getitem__`."""
    desc = tensor.desc
    box = boxed(index, desc)
    if all(line.is_dropped for line in box):
        return tensor.physical()[address(desc.placement, tuple(line.start for line in box))]
    found = viewed(desc, box)
    if found is not None:
        return _view(tensor, *found)
    target = copied(desc, box)
    made = Tensor.restored(target, target.pack(tensor.physical()[offsets_in(desc, box)]).view(np.uint8))
    if is_watched():
        reason = "no descriptor says a step back, or a part that cuts blocks"
        report("copy", "Tensor.__getitem__", (desc,), target, nbytes=2 * target.nbytes, reason=reason)
    return made


def put(tensor: Tensor, index: Index, value: ArrayLike | Tensor) -> None:
    """See :meth:`Tensor.__setitem__`."""
    desc = tensor.desc
    if desc.repeats:
        raise LayoutError(f"{desc} repeats elements (a stride of 0): it can be read, not written")
    box = boxed(index, desc)
    values = _values(value, tensor.dtype, len(dims_of(box)))
    is_element = all(line.is_dropped for line in box)
    found = None if is_element else viewed(desc, box)
    try:
        if is_element:
            tensor.physical()[address(desc.placement, tuple(line.start for line in box))] = values
        elif found is None:
            tensor.physical()[offsets_in(desc, box)] = values
        else:
            part = _view(tensor, *found)
            write(values, part.physical(), part.desc)
    except ValueError as error:  # numpy says which: shapes that do not fit, or memory that is read-only
        raise InputError(f"{desc}, {dims_of(box)} of it: {error}") from None


def boxed(index: Index, desc: MemoryDesc) -> Box:
    """An index as the parts that it takes of each dimension.

    Raises:
        PositionError: No such position, or more of them than dimensions.
        InputError: Anything but integers, slices and an Ellipsis.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    n_given = sum(part is not Ellipsis for part in parts)
    if n_given > desc.ndims:
        raise PositionError(f"{n_given} positions for the {desc.ndims} dimensions of {desc}")
    if len(parts) - n_given > 1:
        raise InputError("an index has one Ellipsis at most")
    at = parts.index(Ellipsis) if len(parts) > n_given else len(parts)
    filled = [*parts[:at], *[slice(None)] * (desc.ndims - n_given), *parts[at + 1 :]]
    return tuple(_line(part, dim, extent) for dim, (part, extent) in enumerate(zip(filled, desc.dims, strict=True)))


def _line(part: Any, dim: int, extent: int) -> Line:
    if isinstance(part, slice):
        try:
            taken = range(*part.indices(extent))
        except (TypeError, ValueError) as error:
            raise InputError(f"dimension {dim}: {error}") from None
        return Line(taken.start if taken else 0, len(taken), taken.step if len(taken) > 1 else 1, False)
    try:
        position = as_integer(part)
    except TypeError:
        position = None
    if position is None or isinstance(part, bool):
        raise InputError(f"dimension {dim}: an index is made of integers, slices and an Ellipsis, not {part!r:.60}")
    if not -extent <= position < extent:
        raise PositionError(f"position {position} of dimension {dim}, which has {extent} elements")
    return Line(position % extent, 1, 1, True)


def _view(tensor: Tensor, desc: MemoryDesc, first: int) -> Tensor:
    start = first * desc.itemsize
    return Tensor(desc, tensor.buffer[start : start + desc.nbytes])


def _values(value: ArrayLike | Tensor, dtype: str, ndim: int) -> np.ndarray:
    """Values of a data type, without the leading extents of 1 that numpy lets pass."""
    if isinstance(value, Tensor):
        array = plain_view(value) if value.desc.is_plain else value.numpy()
    else:
        array = as_array(value, "Tensor.__setitem__")
    try:
        array = convert(array, dtype)
    except LayoutError as error:
        raise InputError(str(error)) from None
    while array.ndim > ndim and array.shape[0] == 1:
        array = array[0]
    return array
