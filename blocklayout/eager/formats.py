"""Which format the result of an operator has: the rules by which layouts propagate.

A rule looks at what the operands were given as, not at what their strides would allow: with one channel, or one pixel,
those cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from blocklayout.layout import FormatTag, MemoryDesc


@dataclass(frozen=True)
class Followed:
    """What an operator's result is to be like.

    Attributes:
        desc: The result's descriptor.
        reason: Why an operand's layout is given up; empty where none is.
    """

    desc: MemoryDesc
    reason: str = ""


Rule = Callable[[Sequence[MemoryDesc], tuple[int, ...], str], Followed]
"""Takes the operands' descriptors, and the extents and data type of the result."""


def rule_of(name: str) -> Rule:
    """The rule of an operator, by the name it is called by."""
    return _RULES.get(name, keep)


def is_plain(desc: MemoryDesc) -> bool:
    """Whether a descriptor was given as row-major."""
    return desc.format_tag == FormatTag(tuple(range(desc.ndims)))


def keep(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The first operand's format; row-major where the result has another rank."""
    return _like(operands[0], dims, dtype) if operands else row_major(operands, dims, dtype)


def row_major(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """Row-major, whatever the operands are like."""
    del operands
    return Followed(MemoryDesc(dims, dtype))


def pointwise(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The format of the first operand that is not broadcast: scalars and vectors have no say."""
    whole = [desc for desc in operands if desc.dims == dims]
    first = whole[0] if whole else max(operands, key=lambda desc: desc.ndims)
    other = next((desc for desc in whole if not _agree(first, desc)), None)
    reason = "" if other is None else f"operands differ in layout, and {other.tag} gives way to {first.tag}"
    return Followed(_like(first, dims, dtype).desc, reason)


def concatenated(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The first operand's format."""
    first = operands[0]
    other = next((desc for desc in operands[1:] if desc.format_tag != first.format_tag), None)
    reason = "" if other is None else f"operands differ in layout, and {other.tag} gives way to {first.tag}"
    return Followed(_like(first, dims, dtype).desc, reason)


def dominating(operands: Sequence[MemoryDesc], dims: tuple[int, ...], dtype: str) -> Followed:
    """The source's format if it is not row-major, else what goes with that of the weights."""
    source, weights = operands[:2]
    if not is_plain(source):
        return _like(source, dims, dtype)
    tag = _activations_of(weights, len(dims))
    return Followed(MemoryDesc(dims, dtype, tag)) if tag else _like(source, dims, dtype)


def _like(desc: MemoryDesc, dims: tuple[int, ...], dtype: str) -> Followed:
    if desc.ndims != len(dims):
        return Followed(MemoryDesc(dims, dtype))
    return Followed(MemoryDesc(desc.dims, dtype, desc.format_tag).resized(dims))


def _agree(one: MemoryDesc, other: MemoryDesc) -> bool:
    """Whether two layouts are one, by name or by address."""
    return one.format_tag == other.format_tag or one.with_dtype(other.dtype).physically_equal(other)


def _activations_of(weights: MemoryDesc, ndims: int) -> FormatTag | None:
    """The format of activations that goes with the weights of a convolution; ``None`` if those are in no other."""
    tag = weights.format_tag
    channels = weights.ndims - ndims + 2  # groups if there are any, those of the result, those of the source
    blocks = [blk for blk, idx in zip(tag.inner_blks, tag.inner_idxs, strict=True) if idx < channels - 1]
    spatial = tuple(range(2, ndims))
    if blocks:
        return FormatTag.parse(FormatTag((0, 1, *spatial), (max(blocks),), (1,)).named("src"))
    if tag.order[-1] < channels:
        return FormatTag.parse(FormatTag((0, *spatial, 1)).named("src"))
    return None


_RULES: Mapping[str, Rule] = {
    "conv": dominating,
    "conv_transpose": dominating,
    "matmul": row_major,
    "gemm": row_major,
    "reshape": row_major,
    "flatten": row_major,
    "concat": concatenated,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow", "PRelu"), pointwise),
}
