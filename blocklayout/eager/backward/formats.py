"""Formats of a forward operator's result, and those that come next where one has no implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from collections.abc import Sequence


def format_of(desc: MemoryDesc) -> MemoryDesc:
    """What a fresh tensor in the format of this one has: itself where it is dense.

    Example:
        >>> format_of(MemoryDesc((2, 16, 4, 4), "f32", "nChw8c").submemory((2, 8, 4, 4), (0, 8, 0, 0)))
        MemoryDesc((2, 8, 4, 4), 'f32', 'nChw8c')
    """
    is_whole = desc.is_dense and not desc.offset0 and desc.canonical_tag is not None
    return desc if is_whole else MemoryDesc(desc.dims, desc.dtype, desc.format_tag)


def in_format(desc: MemoryDesc, dims: Sequence[int]) -> MemoryDesc:
    """Other extents in the format of a dense descriptor: with its blocks also where an extent is 1.

    Example:
        >>> in_format(MemoryDesc((1, 16, 8, 8), "f32", "nChw8c"), (1, 1, 8, 8)).padded_dims
        (1, 8, 8, 8)
    """
    tag = desc.canonical_tag
    return desc.resized(dims) if tag is None else MemoryDesc(dims, desc.dtype, tag).in_role("src")


def other_formats(desc: MemoryDesc) -> tuple[MemoryDesc, ...]:
    """Where to compute if nothing is optimised in a format: channels last, then plain.

    Example:
        >>> [each.tag for each in other_formats(MemoryDesc((1, 17, 8, 8), "f32", "nChw16c"))]
        ['nhwc', 'nchw']
    """
    plain = MemoryDesc(desc.dims, desc.dtype, "contiguous_format")
    last = (MemoryDesc(desc.dims, desc.dtype, "channels_last"),) if 3 <= desc.ndims <= 5 else ()
    return tuple(each for each in (*last, plain) if each != desc)
