"""How contiguous a reorder reads and writes, by the lengths of its runs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.errors import LayoutError
from blocklayout.layout.addresses import all_offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blocklayout.layout.desc import MemoryDesc

MAX_FOLLOWED = 1 << 18
"""Elements up to which a whole reorder is followed."""

_MAX_LENGTHS = 8  # lengths told one by one


class Runs(Struct, frozen=True):
    """Runs of neighbouring elements, of the longest share first.

    Attributes:
        n: How many.
        shortest: In elements.
        longest: In elements.
        lengths: Length and number of the runs that hold most elements.
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
        copies: Runs that are both: what one plain copy can move.
    """

    read_nbytes: int
    written_nbytes: int
    n_followed: int
    reads: Runs
    writes: Runs
    copies: Runs


def follow_reorder(src: MemoryDesc, dst: MemoryDesc) -> ReorderRuns:
    """Count the runs of a reorder.

    Args:
        src: The source, of at least one element.
        dst: The destination, of the same extents.

    Raises:
        LayoutError: The extents differ, or several elements of the destination share an address.

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


def _runs(continues: NDArray[Any]) -> Runs:
    lengths = np.diff(np.flatnonzero(np.concatenate(([True], ~continues, [True]))))
    values, counts = np.unique(lengths, return_counts=True)
    most = np.argsort(-values * counts, kind="stable")[:_MAX_LENGTHS]
    told = tuple((int(values[each]), int(counts[each])) for each in most)
    return Runs(len(lengths), int(values[0]), int(values[-1]), told)
