"""Zeros to the padded lanes of a buffer that something has filled whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.layout.addresses import all_offsets
from blocklayout.layout.packing import blocked_view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blocklayout.layout.desc import MemoryDesc


def clear_padding(elements: NDArray[Any], desc: MemoryDesc, value: Any = 0) -> None:
    """Write zeros, or another value, to every element of padding, and to nothing else that belongs to the descriptor.

    ``elements`` is a flat array of the descriptor's data type that reaches as far as the descriptor does.

    Example:
        >>> import numpy as np
        >>> from blocklayout.layout import MemoryDesc
        >>> elements = np.ones(8, np.float32)
        >>> clear_padding(elements, MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"))
        >>> elements
        array([1., 1., 1., 0., 1., 1., 1., 0.], dtype=float32)
    """
    if desc.ends_inside_a_block and desc.n_padding:
        kept = elements[desc.offsets()]
        elements[all_offsets(desc.placement, desc.padded_dims)] = value
        elements[desc.offsets()] = kept
        return
    for lane in _padded_lanes(elements, desc):
        lane[...] = value


def padding_is_zero(elements: NDArray[Any], desc: MemoryDesc) -> bool:
    """Whether every element of padding is zero; see :func:`clear_padding`."""
    if desc.ends_inside_a_block:
        return not _padding_of(elements, desc).any()
    return not any(lane.any() for lane in _padded_lanes(elements, desc))


def first_dirty_lane(elements: NDArray[Any], desc: MemoryDesc) -> tuple[tuple[int, ...], float] | None:
    """The first index at which padding is not zero, and its value; ``None`` where all is; see :func:`clear_padding`.

    Example:
        >>> import numpy as np
        >>> from blocklayout.layout import MemoryDesc
        >>> first_dirty_lane(np.ones(8, np.float32), MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"))
        ((0, 3, 0, 0), 1.0)
    """
    if padding_is_zero(elements, desc):
        return None
    padding = _padding_of(elements, desc)
    index = tuple(map(int, np.argwhere(padding)[0]))
    return index, float(padding[index])


def _padding_of(elements: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """A copy of all elements, padding included, in logical order; zero where they are none of padding."""
    padded = elements[all_offsets(desc.placement, desc.padded_dims)]
    padded[tuple(slice(extent) for extent in desc.dims)] = 0
    return padded


def _padded_lanes(elements: NDArray[Any], desc: MemoryDesc) -> Iterator[NDArray[Any]]:
    """Views of all padding, which is lanes of the last block of dimensions; of a descriptor of whole blocks."""
    if not desc.n_padding:
        return
    view = blocked_view(elements, desc)
    for dim, (extent, padded, block) in enumerate(zip(desc.dims, desc.padded_dims, desc.layout.blocks, strict=True)):
        if padded == extent:
            continue
        n_used = extent - (padded - block)
        axes = [axis for axis, idx in enumerate(desc.inner_idxs) if idx == dim]
        lanes: Iterable[tuple[int | slice, ...]] = [(slice(n_used, None),)]
        if len(axes) > 1:
            lanes = islice(product(*(range(desc.inner_blks[axis]) for axis in axes)), n_used, None)
        for lane in lanes:
            index: list[int | slice] = [slice(None)] * view.ndim
            index[dim] = -1
            for axis, position in zip(axes, lane, strict=True):
                index[desc.ndims + axis] = position
            yield view[*index, ...]
