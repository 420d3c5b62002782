"""Elements by logical position: views where a descriptor says them, copies where not.

A selection, a box, takes of each dimension ``extent`` positions from ``start`` on, ``step`` apart; a dropped dimension
takes one, and goes.
"""

from __future__ import annotations

from functools import lru_cache
from operator import index as as_integer
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from blocklayout.errors import InputError, LayoutError, PositionError
from blocklayout.layout import MemoryDesc, views
from blocklayout.layout.addresses import address, offsets_along
from blocklayout.layout.desc import as_part
from blocklayout.layout.geometry import Layout, Placement
from blocklayout.layout.ordering import view_tag
from blocklayout.layout.packing import write
from blocklayout.layout.tag import FormatTag
from blocklayout.layout_events import is_watched, report
from blocklayout.recording import Entry, recorded, recorders_around, tell
from blocklayout.tensor.conversion import convert
from blocklayout.tensor.interop import as_array, plain_view
from blocklayout.tensor.tensor_class import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Index: TypeAlias = "SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType, ...]"
"""Types of an index."""


@recorded("getitem")
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
    if recorders_around():
        tell(Entry("setitem", (tensor, index, value)))
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

    A PositionError where there is no such position, or there are more of them than dimensions; an InputError of
    anything but integers, slices and an Ellipsis.
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


class Line(NamedTuple):
    """The part taken of one dimension."""

    start: int
    extent: int
    step: int
    is_dropped: bool


Box = tuple[Line, ...]


def dims_of(box: Box) -> tuple[int, ...]:
    """Extents of a selection."""
    return tuple(line.extent for line in box if not line.is_dropped)


def copied(desc: MemoryDesc, box: Box) -> MemoryDesc:
    """The dense descriptor that a selection has once it is copied: its whole's order and blocks."""
    return MemoryDesc(dims_of(box), desc.dtype, _left_of(desc.format_tag, box))


def viewed(desc: MemoryDesc, box: Box) -> tuple[MemoryDesc, int] | None:
    """A descriptor of a selection's elements where they are, and the element that its buffer begins at.

    Its offset is 0. ``None`` where no descriptor says it: a step back, or a selection that begins, ends, steps or
    drops its dimension inside of blocks.

    Example:
        >>> md = MemoryDesc((4, 16, 8, 8), "f32", "nChw8c")
        >>> whole = [Line(0, extent, 1, False) for extent in md.dims]
        >>> viewed(md, (Line(2, 2, 1, False), *whole[1:]))
        (MemoryDesc((2, 16, 8, 8), 'f32', 'nChw8c'), 2048)
        >>> viewed(md, (whole[0], Line(4, 8, 1, False), *whole[2:])) is None
        True
    """
    # Descriptors are equal under every name, so the cache key includes the name.
    tag = None if desc.memory_format.startswith("strided") else desc.format_tag
    return _viewed(desc.placement, desc.dtype, tag, tag.given if tag else "", box)


@lru_cache(maxsize=2048)
def _viewed(
    placement: Placement, dtype: str, tag: FormatTag | None, spelling: str, box: Box
) -> tuple[MemoryDesc, int] | None:
    del spelling
    left = None if tag is None else _left_of(tag, box)
    if 0 in dims_of(box):
        return MemoryDesc(dims_of(box), dtype, left), 0
    blocks = placement.layout.blocks
    if any(not _keeps_whole(line, block) for line, block in zip(box, blocks, strict=True)):
        return None
    reach = tuple((line.extent - 1) * line.step + 1 if line.extent > 1 else 1 for line in box)
    try:
        part = views.submemory(placement, reach, tuple(line.start for line in box))
    except LayoutError:
        return None  # inside of a block
    taken = _stepped(part, box)
    if left is not None and len(taken.dims) < len(placement.dims):
        left = view_tag(taken, left)
    found = as_part(taken, dtype, left)
    if left is not None and found.is_dense:
        found = MemoryDesc(found.dims, dtype, left)  # strides that are never used are as if it were no part
    return found, part.offset


def offsets_in(desc: MemoryDesc, box: Box) -> np.ndarray:
    """Offsets of a selection's elements. Shape :func:`dims_of` the box."""
    kept = [dim for dim, line in enumerate(box) if not line.is_dropped]
    total = np.full(dims_of(box), desc.offset0, dtype=np.int64)
    for dim, line in enumerate(box):
        steps = offsets_along(desc.layout, dim, desc.dims[dim])
        taken = steps[line.start + line.step * np.arange(line.extent)]
        shape = [1] * len(kept)
        if not line.is_dropped:
            shape[kept.index(dim)] = line.extent
        total += taken.reshape(shape) if kept else taken[0]
    return total


def _keeps_whole(line: Line, block: int) -> bool:
    if block == 1:
        return line.step > 0 or line.extent == 1
    return not line.is_dropped and (line.step == 1 or line.extent == 1)


def _left_of(tag: FormatTag, box: Box) -> FormatTag:
    return tag.without(frozenset(dim for dim, line in enumerate(box) if line.is_dropped))


def _stepped(part: Placement, box: Box) -> Placement:
    """The part with its steps taken and its dropped dimensions gone, from its first element on."""
    kept = [dim for dim, line in enumerate(box) if not line.is_dropped]
    strides = [part.layout.strides[dim] * (box[dim].step if box[dim].extent > 1 else 1) for dim in kept]
    padded_dims = [box[dim].extent if part.layout.blocks[dim] == 1 else part.padded_dims[dim] for dim in kept]
    layout = Layout(tuple(strides), part.layout.inner_blks, tuple(kept.index(idx) for idx in part.layout.inner_idxs))
    return Placement(dims_of(box), tuple(padded_dims), layout)
