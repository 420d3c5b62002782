"""Dense layouts as mixed-radix numbers: the digits of an address, in the order in which bytes lie.

A primitive that is fast on plain tensors runs on any dense layout, padding included, if it sees the bytes under
these extents: ``nChw8c`` of 17 channels is a plain tensor (N, 3, H, W, 8), ``nhwc`` a plain (N, H, W, C).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from math import prod

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc


class Digit(Struct, frozen=True):
    """Neighbouring steps along one dimension.

    Attributes:
        dim: The dimension; a blocked one has two digits.
        extent: How many, padding included.
        stride: Elements from one to the next.
    """

    dim: int
    extent: int
    stride: int


class Run(Struct, frozen=True):
    """Adjacent digits that are treated alike.

    Attributes:
        is_marked: How.
        extent: Elements of all of them together.
    """

    is_marked: bool
    extent: int


def digits(desc: MemoryDesc, kept: Collection[int] = ()) -> tuple[Digit, ...] | None:
    """The digits of a dense layout, outermost first; ``None`` where bytes are left out.

    Args:
        desc: The layout.
        kept: Dimensions whose digits are listed even if their extent is 1.

    Example:
        >>> [(digit.dim, digit.extent) for digit in digits(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"))]
        [(0, 2), (1, 3), (2, 5), (3, 4), (1, 8)]
    """
    if not desc.is_dense or desc.offset0 or not desc.n_elements:
        return None
    blocks, strides = desc.layout.blocks, desc.layout.strides
    outer = [Digit(dim, desc.padded_dims[dim] // blocks[dim], strides[dim]) for dim in desc.dim_order]
    inner = [
        Digit(dim, extent, prod(desc.inner_blks[index + 1 :]))
        for index, (dim, extent) in enumerate(zip(desc.inner_idxs, desc.inner_blks, strict=True))
    ]
    return tuple(digit for digit in [*outer, *inner] if digit.extent != 1 or digit.dim in kept)


def runs(parts: Sequence[Digit], marked: Collection[int]) -> tuple[Run, ...]:
    """Adjacent digits of dimensions in ``marked``, and of those that are not, put together.

    Example:
        >>> nhwc = digits(MemoryDesc((2, 17, 5, 4), "f32", "nhwc"))
        >>> [(run.is_marked, run.extent) for run in runs(nhwc, {2, 3})]
        [(False, 2), (True, 20), (False, 17)]
    """
    return tuple(
        Run(is_marked, n_elements(list(group))) for is_marked, group in groupby(parts, lambda part: part.dim in marked)
    )


def as_rows(found: Sequence[Run]) -> tuple[int, int] | None:
    """How many rows there are and how long, marked digits being a row; ``None`` where those are not the innermost.

    Example:
        >>> as_rows([Run(False, 6), Run(True, 20)]), as_rows([Run(True, 20)]), as_rows([Run(True, 20), Run(False, 6)])
        ((6, 20), (1, 20), None)
    """
    if [run.is_marked for run in found] not in ([], [False], [True], [False, True]):
        return None
    length = found[-1].extent if found and found[-1].is_marked else 1
    return prod(run.extent for run in found) // length, length


def paired(src: MemoryDesc, dst: MemoryDesc, changed: Collection[int]) -> list[tuple[Digit, Digit]] | None:
    """The digits of a source, each with the one in its place in a result; ``None`` where they are no pairs.

    Args:
        src: The source's layout.
        dst: The result's, in which the digits have to be in the same order.
        changed: Dimensions along which the extents are others; they must have no blocks.

    Example:
        >>> src, dst = (MemoryDesc((2, 16, extent, 4), "f32", "nChw8c") for extent in (5, 3))
        >>> [(given.extent, made.extent) for given, made in paired(src, dst, {2})]
        [(2, 2), (2, 2), (5, 3), (4, 4), (8, 8)]
    """
    given, made = digits(src, kept=changed), digits(dst, kept=changed)
    if given is None or made is None or any(src.layout.blocks[dim] != 1 for dim in changed):
        return None
    if [digit.dim for digit in given] != [digit.dim for digit in made]:
        return None
    return list(zip(given, made, strict=True))


def broadcast_views(
    whole: MemoryDesc, dims: Sequence[int], patterns: Mapping[tuple[bool, ...], Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The extents under which a primitive sees a dense tensor, and what is broadcast to it, as plain ones.

    Args:
        whole: The tensor's layout.
        dims: Extents of what is broadcast, with the tensor's rank; each the tensor's, or 1.
        patterns: The runs of digits that the primitive is to see (-1: an extent of 1), by whether what is broadcast
            varies along each.

    Returns:
        Both extents; ``None`` where no pattern fits.
    """
    parts = digits(whole)
    if parts is None:
        return None
    found = runs(parts, {dim for dim, (n, extent) in enumerate(zip(dims, whole.dims, strict=True)) if n == extent})
    places = patterns.get(tuple(run.is_marked for run in found))
    if places is None:
        return None
    seen = [(found[place].extent, found[place].is_marked) if place >= 0 else (1, True) for place in places]
    return tuple(extent for extent, _ in seen), tuple(extent if varies else 1 for extent, varies in seen)


def copy_spec(src: MemoryDesc, dst: MemoryDesc, backwards: tuple[int, ...], n_threads: int) -> dnnl.Spec:
    """A copy of digits, along some of them backwards."""
    if backwards:
        return dnnl.reversal(src, dst, backwards, n_threads=n_threads)
    return dnnl.reorder(src, dst, n_threads=n_threads)


def n_elements(parts: Sequence[Digit]) -> int:
    """How many elements the digits count, padding included."""
    return prod(part.extent for part in parts)


def is_padded(desc: MemoryDesc, dims: Collection[int]) -> bool:
    """Whether blocks reach past the extents of some of these dimensions.

    Example:
        >>> is_padded(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c"), {1, 2})
        True
    """
    return any(desc.padded_dims[dim] != desc.dims[dim] for dim in dims)


def seen_as(desc: MemoryDesc, dims: Sequence[int]) -> MemoryDesc | None:
    """The same bytes under other extents, elements in the same order; ``None`` if the library has no such descriptor.

    Example:
        >>> seen_as(MemoryDesc((2, 16, 1, 1), "f32", "nChw8c"), (2, 16))
        MemoryDesc((2, 16), 'f32', 'ab')
        >>> seen_as(MemoryDesc((2, 17, 1, 1), "f32", "nChw8c"), (2, 17)) is None
        True
    """
    try:
        made = desc.reshaped(dims)
    except LayoutError:
        return None
    if dnnl.is_expressible(made):
        return made
    return MemoryDesc(dims, desc.dtype) if desc.physically_equal(MemoryDesc(desc.dims, desc.dtype)) else None
