"""New metadata over the same bytes: permuted, reshaped, cut out, and put to other extents.

Source: ``memory_desc_permute_axes``, ``memory_desc_reshape`` and ``memory_desc_init_submemory``, oneDNN v3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from blocklayout.errors import LayoutError
from blocklayout.layout.geometry import Layout, Placement, check_dims, place_dense
from blocklayout.layout.tag import LETTERS, FormatTag


def permuted(placement: Placement, perm: tuple[int, ...]) -> Placement:
    """New axis ``i`` is old axis ``perm[i]``, as numpy transposes; a LayoutError for no permutation."""
    ndims = len(placement.dims)
    if sorted(perm) != list(range(ndims)):
        raise LayoutError(f"perm {perm} must name each of the dimensions 0 to {ndims - 1} once")
    layout = placement.layout
    new_axis = {old: new for new, old in enumerate(perm)}
    return Placement(
        dims=tuple(placement.dims[old] for old in perm),
        padded_dims=tuple(placement.padded_dims[old] for old in perm),
        layout=Layout(
            tuple(layout.strides[old] for old in perm),
            layout.inner_blks,
            tuple(new_axis[old] for old in layout.inner_idxs),
        ),
        offset=placement.offset,
    )


def submemory(placement: Placement, dims: tuple[int, ...], offsets: tuple[int, ...]) -> Placement:
    """The box of ``dims`` elements that starts at ``offsets``.

    A LayoutError where it leaves the tensor, or cuts blocks where its padding would lie over neighbours.
    """
    check_dims(dims)
    if not len(dims) == len(offsets) == len(placement.dims):
        raise LayoutError(f"dims {dims} and offsets {offsets} must have the rank of {placement.dims}")
    blocks = placement.layout.blocks
    padded_dims = tuple(_cut(placement, dim, dims[dim], offsets[dim]) for dim in range(len(dims)))
    skipped = sum(
        start // block * stride for start, block, stride in zip(offsets, blocks, placement.layout.strides, strict=True)
    )
    return Placement(dims, padded_dims, placement.layout, placement.offset + skipped)


def _cut(placement: Placement, dim: int, extent: int, start: int) -> int:
    """Padded extent of a slice of one dimension."""
    whole = placement.dims[dim]
    block = placement.layout.blocks[dim]
    if start < 0 or start + extent > whole:
        raise LayoutError(f"slice {start}:{start + extent} leaves dimension {dim}, which has {whole} elements")
    if start % block:
        raise LayoutError(
            f"slice {start}:{start + extent} of dimension {dim} starts inside a block; start at a multiple of {block}"
        )
    if extent == 0:
        return 0
    if start + extent == whole:
        return placement.padded_dims[dim] - start
    if extent % block and extent > block:
        raise LayoutError(
            f"slice {start}:{start + extent} of dimension {dim} ends inside a block; "
            f"end at a multiple of {block} or at {whole}"
        )
    return extent


def resized(tag: FormatTag, old_dims: tuple[int, ...], dims: tuple[int, ...]) -> tuple[Placement, FormatTag]:
    """Other extents of one rank in the same order and blocks, dense; a broadcast extent of 1 loses its block."""
    check_dims(dims)
    if len(dims) != len(old_dims):
        raise LayoutError(f"dims {dims} has {len(dims)} dimensions, the layout {tag} has {len(old_dims)}")
    broadcast = frozenset(dim for dim in tag.inner_idxs if dims[dim] == 1 and old_dims[dim] != 1)
    if broadcast:
        tag = tag.without_blocks(broadcast)
    return place_dense(dims, tag), tag


def reshaped(placement: Placement, dims: tuple[int, ...]) -> Placement:
    """The same elements in row-major order of other extents; a LayoutError where bytes would have to move.

    Extents of 1 come and go, blocked dimensions stay as they are, and neighbours that step through each other join and
    split.
    """
    check_dims(dims)
    if prod(dims) != prod(placement.dims):
        raise LayoutError(f"dims {placement.dims} and {dims} differ in their number of elements")
    if 0 in dims:
        plain = FormatTag(tuple(range(len(dims))), given=LETTERS[: len(dims)])
        return place_dense(dims, plain)
    return _Reshape(placement, dims).run()


class _Reshape:
    """Walks both shapes from the right, group by group of equal volume."""

    def __init__(self, placement: Placement, dims: tuple[int, ...]) -> None:
        self.source = placement
        self.dims = dims
        self.padded = [0] * len(dims)
        self.strides = [0] * len(dims)
        self.new_dim: dict[int, int] = {}
        # Where a stride is needed but no step is ever taken: that of the neighbour on the right.
        self.idle_stride = prod(placement.layout.inner_blks)

    def run(self) -> Placement:
        i, o = len(self.source.dims), len(self.dims)
        while i or o:
            i, o = self._step(i, o)
        layout = self.source.layout
        idxs = tuple(self.new_dim[idx] for idx in layout.inner_idxs)
        placed = Layout(tuple(self.strides), layout.inner_blks, idxs)
        return Placement(self.dims, tuple(self.padded), placed, self.source.offset)

    def _step(self, i: int, o: int) -> tuple[int, int]:
        if i and self.source.dims[i - 1] == 1:
            if self.source.layout.blocks[i - 1] == 1:
                return i - 1, o
            if o and self.dims[o - 1] == 1:
                self._keep(i - 1, o - 1)
                return i - 1, o - 1
            raise self._moves(f"dimension {i - 1} has an extent of 1 in a block")
        if o and self.dims[o - 1] == 1:
            self._fill(o - 1, 1, self.idle_stride)
            return i, o - 1
        return self._match(i, o)

    def _match(self, i_end: int, o_end: int) -> tuple[int, int]:
        i, o = i_end - 1, o_end - 1
        i_volume, o_volume = self.source.dims[i], self.dims[o]
        while i_volume != o_volume:
            if i_volume < o_volume:
                i -= 1
                i_volume *= self.source.dims[i]
            else:
                o -= 1
                o_volume *= self.dims[o]
        if i + 1 == i_end and o + 1 == o_end:
            self._keep(i, o)
        else:
            self._rearrange(range(i, i_end), range(o, o_end))
        return i, o

    def _keep(self, i: int, o: int) -> None:
        self.new_dim[i] = o
        self._fill(o, self.source.padded_dims[i], self.source.layout.strides[i])
        self.idle_stride = self.source.layout.strides[i] * self.source.outer_dims[i]

    def _rearrange(self, group: range, new_group: Sequence[int]) -> None:
        strides = self.source.layout.strides
        for dim in group:
            if self.source.layout.blocks[dim] != 1:
                raise self._moves(f"dimension {dim} is blocked")
        steps = [dim for dim in group if self.source.dims[dim] != 1]
        for left, right in pairwise(steps):
            if strides[left] != strides[right] * self.source.dims[right]:
                raise self._moves(f"dimension {left} does not step through dimension {right}")
        stride = strides[steps[-1]]
        for dim in reversed(new_group):
            self._fill(dim, self.dims[dim], stride)
            stride *= self.dims[dim]
        self.idle_stride = stride

    def _fill(self, o: int, padded_extent: int, stride: int) -> None:
        self.padded[o] = padded_extent
        self.strides[o] = stride

    def _moves(self, why: str) -> LayoutError:
        return LayoutError(
            f"reshaping {self.source.dims} to {self.dims} would move bytes: {why}; reorder to a plain layout first"
        )
