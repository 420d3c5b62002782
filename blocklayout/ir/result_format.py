"""Which format the result of an operator has: the rules by which layouts propagate.

A rule looks at the operands' own formats, not at those that their strides would allow: with one channel, or one pixel,
those cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from msgspec import Struct

from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.ordering import allows


class Followed(Struct, frozen=True):
    """The format of an operator's result, and why an operand's layout is given up for it; empty where none is."""

    desc: MemoryDesc
    reason: str = ""


Rule = Callable[[Sequence[MemoryDesc], tuple[int, ...], str], Followed]
"""Takes the operands' descriptors, and the extents and data type of the result."""


def is_plain(desc: MemoryDesc) -> bool:
    """Whether a descriptor was given as row-major."""
    return desc.format_tag == FormatTag(tuple(range(desc.ndims)))


def keep(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The first operand's format; row-major where the result has another rank."""
    return _like(operands[0], dims, dtype) if operands else row_major(operands, dims, dtype)


def row_major(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """Row-major for all operands."""
    del operands
    return Followed(MemoryDesc(dims, dtype))


def pointwise(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The format of the first operand that is not broadcast: scalars and vectors have no say."""
    whole = [desc for desc in operands if desc.dims == dims]
    return concatenated(whole or [max(operands, key=lambda desc: desc.ndims)], dims, dtype)


def concatenated(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The first operand's format, and the reason if another differs."""
    first, *rest = operands
    other = next((desc for desc in rest if not agree(first, desc)), None)
    reason = "" if other is None else f"operands differ in layout, and {other.tag} gives way to {first.tag}"
    return Followed(_like(first, dims, dtype).desc, reason)


def dominating(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """That of a convolution's source; the one that goes with the weights', where only these are not row-major.

    Example:
        >>> x, w = MemoryDesc((1, 16, 8, 8), "f32", "nchw"), MemoryDesc((32, 16, 3, 3), "f32", "OIhw8i8o")
        >>> print(dominating([x, w], (1, 32, 6, 6), "f32").desc)
        f32 1x32x6x6 nChw8c
    """
    source, weights = operands[:2]
    if not is_plain(source):
        return _like(source, dims, dtype)
    ndims = len(dims)
    block = _block(weights, ndims)
    if block > 1:
        tag = FormatTag((0, 1, *range(2, ndims)), (block,), (1,)).named("src")
        return Followed(MemoryDesc(dims, dtype, tag))
    if not weights.inner_blks and _is_channels_last(weights, ndims):
        return Followed(MemoryDesc(dims, dtype, "channels_last"))
    return _like(source, dims, dtype)


def _like(desc: MemoryDesc, dims: tuple[int, ...], dtype: str) -> Followed:
    if desc.ndims != len(dims):
        return Followed(MemoryDesc(dims, dtype))
    return Followed(MemoryDesc(dims, dtype, desc.format_tag))


def agree(one: MemoryDesc, other: MemoryDesc) -> bool:
    """Whether two layouts are one: by name, or since the other's elements lie as the first one's name says.

    Extents may differ; holes and data types have no say.

    Example:
        >>> image = MemoryDesc((2, 3, 5, 1), "f32", "channels_last")
        >>> agree(image, MemoryDesc((2, 8, 5, 1), "f32", "acbd")), agree(image, MemoryDesc((2, 3, 5, 4), "f32", "acbd"))
        (True, False)
    """
    if one.format_tag == other.format_tag or one.with_dtype(other.dtype).physically_equal(other):
        return True
    return one.ndims == other.ndims and allows(other.placement, one.format_tag)


def _block(weights: MemoryDesc, ndims: int) -> int:
    """The block of the weights' destination channels, or of their source's, or of groups; 1 if there is none."""
    first = weights.ndims - ndims
    for dim in (first, first + 1, 0):
        block = prod(blk for blk, idx in zip(weights.inner_blks, weights.inner_idxs, strict=True) if idx == dim)
        if block > 1:
            return block
    return 1


def _is_channels_last(weights: MemoryDesc, ndims: int) -> bool:
    first = weights.ndims - ndims
    order = tuple(dim - first for dim in weights.format_tag.order if dim >= first)
    return order == (0, *range(2, ndims), 1)
