"""Which of the library's format tags gives a blocked layout, whole or as the corner of a larger tensor."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from math import prod

from msgspec import Struct

from blocklayout.dnnl import library
from blocklayout.errors import UnsupportedError
from blocklayout.layout import FormatTag, Layout
from blocklayout.layout.names import LETTERS

_FIRST_TAG = 2  # after undef and any


class Corner(Struct, frozen=True):
    """The tensor at whose corner a layout lies.

    Attributes:
        dims: Its extents; those of the layout itself if that is dense.
        tag: Value of its format tag in the loaded library.
    """

    dims: tuple[int, ...]
    tag: int


def find_corner(dims: tuple[int, ...], padded_dims: tuple[int, ...], layout: Layout, *, is_strict: bool) -> Corner:
    """The dense tensor that has a format tag and, from its first element on, the strides of a blocked layout.

    Args:
        dims: Extents.
        padded_dims: A part that ends inside a block has no padding there: what follows belongs to its neighbour.
        layout: Strides and inner blocks, at least one.
        is_strict: Whether the strides of dimensions of one outer block, which take no step, have a say.

    Raises:
        UnsupportedError: There is no such tensor.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> part = MemoryDesc((2, 32, 4, 4), "f32", "nChw8c").submemory((2, 16, 2, 4), (0, 0, 0, 0))
        >>> corner = find_corner(part.dims, part.padded_dims, part.layout, is_strict=True)
        >>> corner.dims, library.fmt_tag_names()[corner.tag]
        ((2, 32, 4, 4), 'aBcd8b')
    """
    tags = _tags_with(len(dims), layout.inner_blks, layout.inner_idxs)
    if not tags:
        raise UnsupportedError(
            f"oneDNN has no format tag of {len(dims)} dimensions with inner blocks of {layout.inner_blks} elements "
            f"along dimensions {layout.inner_idxs}"
        )
    unpadded = zip(dims, padded_dims, layout.blocks, strict=True)
    least_dims = tuple(extent if padded % block == 0 else block for extent, padded, block in unpadded)
    counting = [dim for dim in range(len(dims)) if is_strict or dims[dim] > layout.blocks[dim]]
    for order, number in tags:
        parent_dims = _parent_dims(least_dims, layout, [dim for dim in order if dim in counting], order[-1])
        if parent_dims is not None:
            return Corner(parent_dims, number)
    raise UnsupportedError(
        f"oneDNN can describe {dims} with strides {layout.strides} and inner blocks {layout.inner_blks} neither by a "
        f"format tag nor as a part of a tensor that has one; copy it into a dense layout first"
    )


def _parent_dims(dims: tuple[int, ...], layout: Layout, order: Iterable[int], innermost: int) -> tuple[int, ...] | None:
    """Extents of the dense tensor with the strides of ``layout`` along ``order``; None if there is none."""
    blocks = layout.blocks
    parent = list(dims)
    step = prod(layout.inner_blks)  # of one outer block of ``last``
    last = innermost
    for dim in reversed(tuple(order)):
        n_last, rest = divmod(layout.strides[dim], step)
        least = 1 if dim == last else max(1, -(-dims[last] // blocks[last]))
        if rest or n_last < least:
            return None
        if n_last > least:
            if dim == last or dims[last] % blocks[last]:
                return None  # nothing steps inside of a block, and a part that ends inside one ends its parent
            parent[last] = n_last * blocks[last]
        step, last = layout.strides[dim], dim
    return tuple(parent)


_Order = tuple[int, ...]


@cache
def _tags_with(ndims: int, inner_blks: tuple[int, ...], inner_idxs: tuple[int, ...]) -> tuple[tuple[_Order, int], ...]:
    """The library's tags of a rank with these inner blocks: orders of dimensions and values."""
    blocks = "".join(f"{blk}{LETTERS[idx]}" for blk, idx in zip(inner_blks, inner_idxs, strict=True))
    named = _names_by_blocks().get((ndims, blocks), ())
    return tuple((FormatTag.parse(name).order, number) for name, number in named)


@cache
def _names_by_blocks() -> dict[tuple[int, str], list[tuple[str, int]]]:
    """Names and values of the library's blocked tags by rank and inner blocks; parsing them all takes 50 ms."""
    found: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for number, name in enumerate(library.fmt_tag_names()):
        if number < _FIRST_TAG or name.islower():
            continue
        ndims = next(place for place, character in enumerate(name) if character.isdigit())
        found.setdefault((ndims, name[ndims:]), []).append((name, number))
    return found
