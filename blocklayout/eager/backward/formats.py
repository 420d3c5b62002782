"""Formats of a forward operator's result, and those that come next where one has no implementation."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Sequence


def format_of(desc: MemoryDesc) -> MemoryDesc:
    """What a fresh tensor in the format of this one has: itself where it is dense.

    Example:
        >>> format_of(MemoryDesc((2, 16, 4, 4), "f32", "nChw8c").submemory((2, 8, 4, 4), (0, 8, 0, 0)))
        MemoryDesc((2, 8, 4, 4), 'f32', 'aBcd8b')
    """
    is_whole = desc.is_dense and not desc.offset0 and desc.canonical_tag is not None
    return desc if is_whole else desc.resized(desc.dims)


def in_format(desc: MemoryDesc, dims: Sequence[int]) -> MemoryDesc:
    """Other extents in the format of a dense descriptor: with its blocks also where an extent is 1.

    Example:
        >>> in_format(MemoryDesc((1, 16, 8, 8), "f32", "nChw8c"), (1, 1, 8, 8)).padded_dims
        (1, 8, 8, 8)
    """
    tag = desc.canonical_tag
    return desc.resized(dims) if tag is None else MemoryDesc(dims, desc.dtype, tag).in_role("src")


def is_channels_first(desc: MemoryDesc) -> bool:
    """Whether it is plain, in logical order.

    Example:
        >>> [is_channels_first(MemoryDesc((1, 1, 1, 1), "f32", tag)) for tag in ("nchw", "nhwc", "nChw8c")]
        [True, False, False]
    """
    return desc.is_plain and desc.dim_order == tuple(range(desc.ndims))


def dominating(x: MemoryDesc, weights: MemoryDesc, dims: Sequence[int]) -> MemoryDesc:
    """The format of a convolution's result: that of ``x``, or of the weights where only these are not plain.

    Args:
        x: The source.
        weights: Without groups, or with them in front.
        dims: Extents of the result.

    Example:
        >>> x, w = MemoryDesc((1, 16, 8, 8)), MemoryDesc((32, 16, 3, 3), "f32", "OIhw8i8o")
        >>> print(dominating(x, w, (1, 32, 6, 6)))
        f32 1x32x6x6 nChw8c
    """
    if not is_channels_first(x):
        return format_of(x).resized(dims)
    block = _block(weights, x.ndims)
    letters = "abcdefghijkl"[: x.ndims]
    if block > 1:
        return MemoryDesc(dims, x.dtype, f"aB{letters[2:]}{block}b").in_role("src")
    if weights.is_plain and _is_channels_last(weights, x.ndims):
        return MemoryDesc(dims, x.dtype, "channels_last")
    return MemoryDesc(dims, x.dtype, "channels_first")


def _block(weights: MemoryDesc, ndims: int) -> int:
    """The block of the weights' destination channels, or of their source's; 1 if there is none."""
    first = weights.ndims - ndims
    for dim in (first, first + 1, 0):
        block = prod(blk for blk, idx in zip(weights.inner_blks, weights.inner_idxs, strict=True) if idx == dim)
        if block > 1:
            return block
    return 1


def _is_channels_last(weights: MemoryDesc, ndims: int) -> bool:
    first = weights.ndims - ndims
    order = tuple(dim - first for dim in weights.dim_order if dim >= first)
    return order == (0, *range(2, ndims), 1)


def other_formats(desc: MemoryDesc) -> tuple[MemoryDesc, ...]:
    """Where to compute if nothing is optimised in a format: channels last, then plain.

    Example:
        >>> [each.tag for each in other_formats(MemoryDesc((1, 17, 8, 8), "f32", "nChw16c"))]
        ['nhwc', 'nchw']
    """
    plain = MemoryDesc(desc.dims, desc.dtype, "channels_first")
    last = (MemoryDesc(desc.dims, desc.dtype, "channels_last"),) if 3 <= desc.ndims <= 5 else ()
    return tuple(each for each in (*last, plain) if each != desc)
