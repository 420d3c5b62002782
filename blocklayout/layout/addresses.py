"""Offsets of elements, the way back, and when two layouts address alike.

An offset is a sum with one term per dimension, so everything here goes dimension by dimension.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.errors import LayoutError
from blocklayout.resource_limits import check_affordable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blocklayout.layout.geometry import Layout, Placement

Digits = tuple[tuple[int, int], ...]
"""An index of one dimension in mixed radix, innermost first: (how many steps, elements per step)."""


@lru_cache(maxsize=2048)
def digits(layout: Layout, dim: int) -> Digits:
    """The steps that dimension ``dim`` takes; the last pair is the outermost, unbounded (0) one.

    Example:
        >>> from blocklayout.layout import Layout
        >>> digits(Layout((64, 64, 1), (4, 8, 4), (1, 0, 1)), 1)
        ((4, 1), (4, 32), (0, 64))
    """
    steps: list[tuple[int, int]] = []
    step = 1
    for blk, idx in zip(reversed(layout.inner_blks), reversed(layout.inner_idxs), strict=True):
        if idx == dim:
            steps.append((blk, step))
        step *= blk
    return (*steps, (0, layout.strides[dim]))


def address(placement: Placement, index: tuple[int, ...]) -> int:
    """Offset of ``index``, which may lie in the padding."""
    total = placement.offset
    for dim, position in enumerate(index):
        rest = position
        for size, step in digits(placement.layout, dim)[:-1]:
            rest, digit = divmod(rest, size)
            total += digit * step
        total += rest * placement.layout.strides[dim]
    return total


def locate(placement: Placement, offset: int) -> tuple[int, ...] | None:
    """The element at ``offset``; ``None`` for padding and for holes between elements."""
    rest = offset - placement.offset
    if rest < 0 or 0 in placement.dims:
        return None
    layout = placement.layout
    index = [0] * len(placement.dims)
    outer = sorted(((s, n, d) for d, (s, n) in enumerate(zip(layout.strides, placement.outer_dims, strict=True))))
    for stride, extent, dim in reversed(outer):
        if stride == 0 or extent == 1:
            continue
        index[dim], rest = divmod(rest, stride)
    scale = [1] * len(index)
    inner = [0] * len(index)
    for blk, idx in zip(reversed(layout.inner_blks), reversed(layout.inner_idxs), strict=True):
        rest, digit = divmod(rest, blk)
        inner[idx] += digit * scale[idx]
        scale[idx] *= blk
    found = tuple(position * size + low for position, size, low in zip(index, scale, inner, strict=True))
    if rest or any(position >= extent for position, extent in zip(found, placement.dims, strict=True)):
        return None
    return found


def check_index(index: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """Refuse an index of another rank or outside of ``dims``, by a LayoutError."""
    if len(index) != len(dims):
        raise LayoutError(f"index {index} has {len(index)} positions, dims {dims} has {len(dims)} dimensions")
    for dim, (position, extent) in enumerate(zip(index, dims, strict=True)):
        if not 0 <= position < extent:
            raise LayoutError(f"index {index} lies outside of dims {dims}: dimension {dim} runs from 0 to {extent - 1}")


def all_offsets(placement: Placement, extents: tuple[int, ...] | None = None) -> NDArray[np.int64]:
    """Offsets of every index of ``extents``, the logical ones by default."""
    extents = placement.dims if extents is None else extents
    check_affordable(extents, 8, "an array of offsets")
    if 0 in extents:  # the others may be beyond memory, each for itself
        return np.empty(extents, dtype=np.int64)
    total = np.full(extents, placement.offset, dtype=np.int64)
    for dim, extent in enumerate(extents):
        shape = [1] * len(extents)
        shape[dim] = extent
        total += offsets_along(placement.layout, dim, extent).reshape(shape)
    return total


def offsets_along(layout: Layout, dim: int, extent: int) -> NDArray[np.int64]:
    """Offset that each index of one dimension adds to an element's. Shape (extent,)."""
    rest = np.arange(extent, dtype=np.int64)
    total = np.zeros(extent, dtype=np.int64)
    for size, step in digits(layout, dim)[:-1]:
        total += rest % size * step
        rest //= size
    return total + rest * layout.strides[dim]


@lru_cache(maxsize=2048)
def addressing(layout: Layout, extents: tuple[int, ...]) -> tuple[Digits, ...]:
    """A normal form: equal for two layouts exactly if they give every index the same offset.

    Steps that continue each other are merged, and those that the extent never takes are dropped.
    """
    return tuple(_normal_digits(digits(layout, dim), extent) for dim, extent in enumerate(extents))


def _normal_digits(steps: Digits, extent: int) -> Digits:
    normal: list[tuple[int, int]] = []
    covered = 1
    for size, step in steps:
        if covered >= extent:
            break
        left = -(-extent // covered)
        n_steps = min(size or left, left)
        if normal and normal[-1][0] * normal[-1][1] == step:
            normal[-1] = (normal[-1][0] * n_steps, normal[-1][1])
        else:
            normal.append((n_steps, step))
        covered *= n_steps
    if normal:  # the outermost step is bounded by the extent, not by its own size
        inner = covered // normal[-1][0]
        normal[-1] = (-(-extent // inner), normal[-1][1])
    return tuple(normal)
