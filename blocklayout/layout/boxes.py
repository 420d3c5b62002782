"""Regular selections of a tensor's elements: which of them are descriptors over the same bytes.

A selection takes, of each dimension, ``extent`` positions from ``start`` on, ``step`` apart; a dropped
dimension takes one, and goes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from blocklayout.errors import LayoutError
from blocklayout.layout import views
from blocklayout.layout.addresses import offsets_along
from blocklayout.layout.desc import MemoryDesc, as_part
from blocklayout.layout.geometry import Layout, Placement
from blocklayout.layout.ordering import view_tag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blocklayout.layout.tag import FormatTag


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


def offsets_in(desc: MemoryDesc, box: Box) -> NDArray[np.int64]:
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
