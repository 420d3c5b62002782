"""The arithmetic of a layout: padded extents, dense strides, spans, and refusals of layouts that cannot exist.

Source: ``memory_desc_wrapper``, ``memory_desc_strides_check`` and ``fill_blocked``, oneDNN v3.2.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from msgspec import Struct

from blocklayout.errors import LayoutError
from blocklayout.layout.tag import MAX_NDIMS, FormatTag, check_blocks

MAX_COUNT = 2**63 - 1
"""Sizes and offsets are signed 64-bit numbers in oneDNN."""


class Extra(Struct, frozen=True):
    """Data that packed 8-bit weights carry behind their elements, and changes of these: only the library writes it.

    Attributes:
        flags: Names of the data: ``conv_s8s8`` (sums of weights, for sources moved to u8), ``scale_adjust``,
            ``conv_asymmetric_src`` (sums for a source with a zero point), ``rnn_u8s8``, ``rnn_s8s8``.
        compensation_mask: The dimensions that sums are kept along, a bit for each.
        scale_adjust: The factor that the weights were multiplied by.
        asymm_compensation_mask: As ``compensation_mask``, of the sums for a zero point.
        nbytes: Bytes behind the elements.

    Example:
        >>> from blocklayout.layout import Extra
        >>> extra = Extra(("conv_s8s8",), compensation_mask=1, scale_adjust=1.0, asymm_compensation_mask=0, nbytes=128)
        >>> str(extra), extra.nbytes
        ('conv_s8s8', 128)
    """

    flags: tuple[str, ...]
    compensation_mask: int
    scale_adjust: float
    asymm_compensation_mask: int
    nbytes: int

    def __str__(self) -> str:
        scale = f" x{self.scale_adjust:g}" if "scale_adjust" in self.flags else ""
        return f"{'+'.join(name for name in self.flags if name != 'scale_adjust') or 'scaled'}{scale}"


class Layout(Struct, frozen=True, repr_omit_defaults=True):
    """Where elements lie: steps between outermost blocks, and the blocks inside.

    Attributes:
        strides: Elements between neighbouring outermost blocks of each logical dimension.
        inner_blks: Sizes of the blocks from the outermost to the innermost, in elements.
        inner_idxs: The dimension that each block was cut out of.
        extra: Data behind the elements of the library's packed weights, if any.

    Example:
        >>> from blocklayout.layout import Layout
        >>> Layout((480, 160, 32, 8), inner_blks=(8,), inner_idxs=(1,)).blocks
        (1, 8, 1, 1)
    """

    strides: tuple[int, ...]
    inner_blks: tuple[int, ...] = ()
    inner_idxs: tuple[int, ...] = ()
    extra: Extra | None = None

    @property
    def blocks(self) -> tuple[int, ...]:
        """Elements of each dimension inside one block; 1 where it has none."""
        return _block_sizes(self.inner_blks, self.inner_idxs, len(self.strides))


@lru_cache(maxsize=4096)
def _block_sizes(inner_blks: tuple[int, ...], inner_idxs: tuple[int, ...], ndims: int) -> tuple[int, ...]:
    """Elements that one step of each outer dimension spans: the product of its blocks, else 1."""
    sizes = [1] * ndims
    for blk, idx in zip(inner_blks, inner_idxs, strict=True):
        sizes[idx] *= blk
    return tuple(sizes)


class Placement(Struct, frozen=True):
    """A layout put to extents: all of a descriptor but its data type and its name.

    Attributes:
        padded_dims: Extents with padding; those of a sub-memory may end inside a block.
        offset: Elements before the first one.
    """

    dims: tuple[int, ...]
    padded_dims: tuple[int, ...]
    layout: Layout
    offset: int = 0

    @property
    def outer_dims(self) -> tuple[int, ...]:
        """Outermost blocks of each dimension."""
        if not self.layout.inner_blks:
            return self.padded_dims
        return tuple([-(-extent // block) for extent, block in zip(self.padded_dims, self.layout.blocks, strict=True)])

    def last_address(self) -> int:
        """The largest offset that an element or its padding has; -1 without elements."""
        if 0 in self.dims:
            return -1
        steps = sum((n - 1) * stride for n, stride in zip(self.outer_dims, self.layout.strides, strict=True))
        return self.offset + steps + prod(self.layout.inner_blks) - 1

    def n_stored(self) -> int:
        """Elements that a buffer must hold: oneDNN's count at offset 0, else up to the last address."""
        if 0 in self.dims:
            return 0
        if self.offset:
            return self.last_address() + 1
        steps = zip(self.outer_dims, self.layout.strides, strict=True)
        span = max(1 if n == 1 else n * stride for n, stride in steps)
        return span if span > 1 else prod(self.layout.inner_blks)


def check_dims(dims: tuple[int, ...]) -> None:
    """Refuse no dimension, more than 12, and a negative extent, by a LayoutError."""
    if not 1 <= len(dims) <= MAX_NDIMS:
        raise LayoutError(
            f"dims {dims} has {len(dims)} dimensions; a descriptor has 1 to {MAX_NDIMS} (a scalar is (1,))"
        )
    if min(dims) < 0:
        raise LayoutError(f"dims {dims} has a negative extent; extents are 0 or more")


def padded(dims: tuple[int, ...], blocks: tuple[int, ...]) -> tuple[int, ...]:
    """Extents rounded up to whole blocks: (2, 24, 5, 4) of (2, 17, 5, 4) in blocks of (1, 8, 1, 1)."""
    return tuple([-(-extent // block) * block for extent, block in zip(dims, blocks, strict=True)])


def place_dense(dims: tuple[int, ...], tag: FormatTag) -> Placement:
    """The densest placement of ``dims`` in the order and blocks of ``tag``; a LayoutError where their ranks differ."""
    if len(dims) != tag.ndims:
        raise LayoutError(f"tag {tag} lays out {tag.ndims} dimensions, dims {dims} has {len(dims)}")
    blocks = _block_sizes(tag.inner_blks, tag.inner_idxs, tag.ndims)
    padded_dims = padded(dims, blocks) if tag.inner_blks else dims
    strides = [0] * tag.ndims
    step = prod(tag.inner_blks)
    for dim in reversed(tag.order):
        strides[dim] = step
        step *= padded_dims[dim] // blocks[dim] or 1
    return Placement(dims, padded_dims, Layout(tuple(strides), tag.inner_blks, tag.inner_idxs))


def place_strided(dims: tuple[int, ...], layout: Layout, offset: int) -> Placement:
    """``dims`` laid out with explicit strides.

    A LayoutError of another rank, a negative stride or offset, a block on a missing dimension, or overlapping elements.
    """
    strides = layout.strides
    if len(strides) != len(dims):
        raise LayoutError(f"strides {strides} has {len(strides)} dimensions, dims {dims} has {len(dims)}")
    if min(strides) < 0:
        raise LayoutError(f"strides {strides} has a negative step; copy the array first, with numpy.ascontiguousarray")
    if offset < 0:
        raise LayoutError(f"offset {offset} is negative; it counts the elements before the first one")
    check_blocks(layout.inner_blks, layout.inner_idxs, len(dims))
    placement = Placement(dims, padded(dims, layout.blocks), layout, offset)
    _check_overlap(placement)
    return placement


def _check_overlap(placement: Placement) -> None:
    """The library's rule: sorted by stride, each step clears all that lies inside it; stride 0 repeats."""
    if 0 in placement.dims:
        return
    least = prod(placement.layout.inner_blks)
    steps = sorted(
        (s, n, d) for d, (s, n) in enumerate(zip(placement.layout.strides, placement.outer_dims, strict=True))
    )
    for stride, extent, dim in steps:
        if stride == 0 or extent == 1:
            continue
        if stride < least:
            raise LayoutError(
                f"strides {placement.layout.strides} let elements of dims {placement.dims} overlap: "
                f"dimension {dim} steps by {stride}, which must be at least {least} (or 0, to repeat a source)"
            )
        least = stride * extent
