"""Maps of layouts: where each place of a tensor lies, and the gaps between places; and the runs of a reorder.

A *place* is an index within the padded extents: an element, or padding. A map lists all places of a small tensor, and
of a large one those of its first blocks.
"""

from __future__ import annotations

from itertools import pairwise
from math import lcm, prod

import numpy as np
from msgspec import Struct

from blocklayout.errors import LayoutError
from blocklayout.layout.addresses import all_offsets, digits, locate
from blocklayout.layout.desc import MemoryDesc
from blocklayout.layout.geometry import Placement

MAX_PLACES = 4096
"""Places up to which a map lists all."""

HOLE = "hole"
LEFT_OUT = "left out"


class WalkStep(Struct, frozen=True):
    """One loop of the walk through memory; an offset is the sum of all loops' positions times their steps.

    Attributes:
        dim: The dimension it runs through.
        below: How many indices of the dimension one position holds: the position is ``index // below % count``.
        count: Positions, those of padding included.
        step: Elements from one position to the next; 0 where a source is repeated.
        is_outer: Whether it goes from block to block, not within one.
    """

    dim: int
    below: int
    count: int
    step: int
    is_outer: bool


class LayoutMap(Struct, frozen=True):
    """Where places lie, counted in elements from the start of the buffer.

    Attributes:
        extents: The places listed are those of the indices below these. Shape (ndims,).
        n_left_out: Places of the tensor that are not listed.
        offsets: Offset of each place listed, in row-major order; ``None`` where this layout has no such place,
            because another one that is listed beside it has more padding.
        padding: Which of ``offsets`` are padding, as positions in it.
        steps: Loops of the walk, innermost first.
        gaps: Stretches of the buffer between the places listed: first offset, elements, and ``hole`` for nothing of
            this tensor, ``left out`` for places that are not listed.
    """

    extents: tuple[int, ...]
    n_left_out: int
    offsets: tuple[int | None, ...]
    padding: tuple[int, ...]
    steps: tuple[WalkStep, ...]
    gaps: tuple[tuple[int, int, str], ...]


def map_layout(desc: MemoryDesc, extents: tuple[int, ...] | None = None) -> LayoutMap:
    """The map of a descriptor of at least one element: of :func:`listed_extents`, or of the indices below ``extents``.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> found = map_layout(MemoryDesc((1, 3, 1, 2), "f32", "nChw2c"))
        >>> found.extents, found.offsets, found.padding
        ((1, 4, 1, 2), (0, 2, 1, 3, 4, 6, 5, 7), (6, 7))
    """
    extents = listed_extents(desc) if extents is None else extents
    held = tuple(map(min, extents, desc.padded_dims))
    offsets = np.full(extents, -1, dtype=np.int64)
    offsets[tuple(map(slice, held))] = all_offsets(desc.placement, held)
    is_element = np.zeros(extents, dtype=bool)
    is_element[tuple(map(slice, desc.dims))] = True
    return LayoutMap(
        extents,
        prod(desc.padded_dims) - prod(held),
        tuple(offset if offset >= 0 else None for offset in offsets.ravel().tolist()),
        tuple(np.flatnonzero(~is_element & (offsets >= 0)).tolist()),
        tuple(walk_steps(desc)),
        tuple(_gaps(desc, np.unique(offsets[offsets >= 0]).tolist(), is_whole=held == desc.padded_dims)),
    )


def listed_extents(*descs: MemoryDesc) -> tuple[int, ...]:
    """The indices that maps of these descriptors list: all, or as many blocks of each dimension as there is room for.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> listed_extents(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))
        (2, 24, 5, 4)
        >>> listed_extents(MemoryDesc((64, 512, 56, 56), "f32", "nChw16c"))
        (4, 64, 4, 4)
    """
    whole = tuple(map(max, *(desc.padded_dims for desc in descs), (0,) * descs[0].ndims))
    if prod(whole) <= MAX_PLACES:
        return whole
    blocks = zip(*(desc.layout.blocks for desc in descs), strict=True)
    unit = tuple(min(lcm(*each), extent) for each, extent in zip(blocks, whole, strict=True))
    if prod(unit) > MAX_PLACES:
        unit = (1,) * len(whole)
    listed = list(unit)
    while True:
        longer = [min(extent + more, end) for extent, more, end in zip(listed, unit, whole, strict=True)]
        growing = [
            dim
            for dim, extent in enumerate(listed)
            if extent < longer[dim] and prod(listed) // extent * longer[dim] <= MAX_PLACES
        ]
        if not growing:
            return tuple(listed)
        fewest = min(growing, key=lambda dim: (listed[dim] // unit[dim], -dim))
        listed[fewest] = longer[fewest]


def walk_steps(desc: MemoryDesc) -> list[WalkStep]:
    """The loops in which memory runs through a tensor, innermost first.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> [(loop.dim, loop.below, loop.count, loop.step) for loop in walk_steps(MemoryDesc((1, 6, 2), "s8", "aBc4b"))]
        [(1, 1, 4, 1), (2, 1, 2, 4), (1, 4, 2, 8), (0, 1, 1, 16)]
    """
    taken = [0] * desc.ndims
    steps = []
    for dim in reversed(desc.inner_idxs):
        own = digits(desc.layout, dim)
        size, step = own[taken[dim]]
        steps.append(WalkStep(dim, prod(n for n, _ in own[: taken[dim]]), size, step, is_outer=False))
        taken[dim] += 1
    outer = desc.placement.outer_dims
    blocks, strides = desc.layout.blocks, desc.strides
    outermost = reversed(desc.dim_order)
    return [*steps, *(WalkStep(dim, blocks[dim], outer[dim], strides[dim], is_outer=True) for dim in outermost)]


MAX_FOLLOWED = 1 << 18
"""Elements up to which a whole reorder is followed."""

_MAX_LENGTHS = 8  # lengths listed one by one


class Runs(Struct, frozen=True):
    """How many runs of neighbouring elements there are, and their extents in elements.

    Attributes:
        lengths: Length and number of the runs that hold most elements, those first.
    """

    n: int
    shortest: int
    longest: int
    lengths: tuple[tuple[int, int], ...]


class ReorderRuns(Struct, frozen=True):
    """A reorder in the order of its destination.

    Attributes:
        read_nbytes: Bytes of the source, padding included.
        written_nbytes: Bytes of the destination, padding included.
        n_followed: Elements that runs are counted over: the first ones, in the order of the destination.
        reads: Runs of elements that follow each other in the source as in the walk.
        writes: Runs of elements between which the destination has neither padding nor holes.
        copies: Runs that are both, which one plain copy can move.
    """

    read_nbytes: int
    written_nbytes: int
    n_followed: int
    reads: Runs
    writes: Runs
    copies: Runs


def follow_reorder(src: MemoryDesc, dst: MemoryDesc) -> ReorderRuns:
    """Count the runs of a reorder of at least one element.

    A LayoutError where the extents differ, or several elements of the destination share an address.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> found = follow_reorder(MemoryDesc((1, 16, 5, 4)), MemoryDesc((1, 16, 5, 4), "f32", "nChw8c"))
        >>> found.reads.n, found.reads.longest, found.writes.lengths
        (319, 2, ((320, 1),))
    """
    if src.dims != dst.dims:
        raise LayoutError(f"{src} cannot be reordered to {dst}: both must have the same dims")
    if dst.repeats:
        raise LayoutError(f"{dst} cannot be reordered to: several of its elements share an address")
    followed = _first_extents(dst)
    written = all_offsets(dst.placement, followed).ravel()
    order = np.argsort(written, kind="stable")
    written, read = written[order], all_offsets(src.placement, followed).ravel()[order]
    reads, writes = np.diff(read) == 1, np.diff(written) == 1
    return ReorderRuns(src.nbytes, dst.nbytes, len(order), _runs(reads), _runs(writes), _runs(reads & writes))


def _first_extents(dst: MemoryDesc) -> tuple[int, ...]:
    """Extents of the part that lies first in the destination, as long as there is room."""
    extents = list(dst.dims)
    for dim in dst.dim_order:
        others = prod(extents) // extents[dim]
        if others * extents[dim] > MAX_FOLLOWED:
            block = min(dst.layout.blocks[dim], extents[dim])
            extents[dim] = max(block, MAX_FOLLOWED // others // block * block)
    return tuple(extents)


def _runs(continues: np.ndarray) -> Runs:
    lengths = np.diff(np.flatnonzero(np.concatenate(([True], ~continues, [True]))))
    values, counts = np.unique(lengths, return_counts=True)
    most = np.argsort(-values * counts, kind="stable")[:_MAX_LENGTHS]
    listed = tuple((int(values[each]), int(counts[each])) for each in most)
    return Runs(len(lengths), int(values[0]), int(values[-1]), listed)


def place_at(desc: MemoryDesc, offset: int) -> tuple[int, ...] | None:
    """The index at ``offset``, which may lie in the padding; ``None`` outside of the tensor.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> place_at(MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"), 7)
        (0, 3, 0, 1)
    """
    return locate(Placement(desc.padded_dims, desc.padded_dims, desc.layout, desc.offset0), offset)


def _gaps(desc: MemoryDesc, listed: list[int], *, is_whole: bool) -> list[tuple[int, int, str]]:
    extra = desc.extra.nbytes if desc.extra else 0
    borders = [-1, *listed, (desc.nbytes - extra) // desc.itemsize]
    found = []
    for before, after in pairwise(borders):
        if after - before > 1:
            first, end = before + 1 - desc.offset0, after - desc.offset0
            is_hole = is_whole or _next_place(walk_steps(desc), first) >= end
            found.append((before + 1, after - before - 1, HOLE if is_hole else LEFT_OUT))
    return found


def _next_place(steps: list[WalkStep], least: int) -> int:
    """The first offset of a place from ``least`` on, both from the first element; beyond all where there is none."""
    place, rest = 0, least
    after = sum(loop.step * (loop.count - 1) for loop in steps) + least + 1
    for loop in sorted(steps, key=lambda loop: -loop.step):
        at = min(max(rest, 0) // loop.step, loop.count - 1) if loop.step else 0
        place, rest = place + at * loop.step, rest - at * loop.step
        if at + 1 < loop.count and loop.step:
            after = place + loop.step
    return place if rest <= 0 else after
