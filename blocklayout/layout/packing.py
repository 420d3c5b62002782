"""Moving values into and out of a layout, by transposed views and never element by element."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import LayoutError
from blocklayout.layout.addresses import all_offsets
from blocklayout.resource_limits import check_affordable, check_nbytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from blocklayout.layout.desc import MemoryDesc


def pack(array: NDArray[Any], desc: MemoryDesc, into: NDArray[Any] | None = None) -> NDArray[Any]:
    """The bytes of ``array`` in the layout ``desc``, padding zero; see :meth:`MemoryDesc.pack`.

    Example:
        >>> import numpy as np
        >>> from blocklayout.layout import MemoryDesc
        >>> pack(np.arange(6, dtype="f4").reshape(1, 3, 1, 2), MemoryDesc((1, 3, 1, 2), "f32", "nChw4c"))
        array([0., 2., 4., 0., 1., 3., 5., 0.], dtype=float32)
    """
    array = np.asarray(array)
    if array.shape != desc.dims:
        raise LayoutError(f"an array of shape {array.shape} does not fill {desc}; its dims are {desc.dims}")
    if from_numpy(array.dtype) != desc.dtype:
        raise LayoutError(f"an array of {array.dtype.name} does not fill {desc}; convert with .astype first")
    if desc.repeats:
        raise LayoutError(f"{desc} repeats elements (a stride of 0): it can be read, not filled")
    if into is None:
        check_nbytes(desc.nbytes, desc)
    room = np.empty(desc.nbytes, np.uint8) if into is None else into
    buffer = as_elements(room, desc)[: desc.nbytes // desc.itemsize]
    if not desc.is_dense or desc.offset0:
        buffer[...] = 0
    if array.size == 0:
        return buffer
    if desc.ends_inside_a_block:
        buffer[all_offsets(desc.placement)] = array
        return buffer
    target = blocked_view(buffer, desc)
    for part, blocks in _parts(array, desc):
        target[blocks] = _split(part, desc)
    return buffer


def unpack(buffer: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """The values that ``buffer`` holds in the layout ``desc``: a fresh array in row-major order.

    The buffer is contiguous bytes, or elements of the descriptor's data type, at least ``desc.nbytes`` long (a strided
    one may end at its last element); a LayoutError where it is not.

    Example:
        >>> import numpy as np
        >>> from blocklayout.layout import MemoryDesc, pack, unpack
        >>> desc = MemoryDesc((1, 3, 2, 2), "f32", "nChw8c")
        >>> array = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
        >>> np.array_equal(unpack(pack(array, desc), desc), array)
        True
    """
    elements = as_elements(buffer, desc)
    if 0 in desc.dims:
        return np.empty(desc.dims, dtype=elements.dtype)
    if desc.ends_inside_a_block:
        return elements[all_offsets(desc.placement)]
    check_affordable(desc.padded_dims, desc.itemsize, desc)
    room = np.empty(desc.padded_dims, dtype=elements.dtype)
    _split(room, desc)[...] = blocked_view(elements, desc)
    return np.ascontiguousarray(room[tuple(slice(extent) for extent in desc.dims)])


def write(array: NDArray[Any], elements: NDArray[Any], desc: MemoryDesc) -> None:
    """Write values, broadcast and cast as by numpy, to the elements of a flat array in this layout, and nothing else.

    A layout that repeats elements is a LayoutError.
    """
    if desc.repeats:
        raise LayoutError(f"{desc} repeats elements (a stride of 0): it can be read, not written")
    if 0 in desc.dims:
        np.broadcast_to(array, desc.dims)  # refuses as it would
    elif desc.padded_dims != desc.dims or desc.ends_inside_a_block:
        elements[all_offsets(desc.placement)] = array
    else:
        blocked_view(elements, desc)[...] = _split(np.broadcast_to(array, desc.dims), desc)


def as_elements(buffer: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """``buffer`` as a flat array of the descriptor's elements, uncopied; a LayoutError where it does not hold them."""
    flat = np.asarray(buffer)
    dtype = to_numpy(desc.dtype)
    if not flat.flags.c_contiguous:
        raise LayoutError("a buffer must be contiguous; copy it with numpy.ascontiguousarray")
    flat = flat.reshape(-1)
    if flat.dtype != dtype and flat.dtype not in (np.dtype(np.uint8), np.dtype(np.int8)):
        raise LayoutError(f"a buffer of {flat.dtype} does not hold {desc}; give {dtype} or uint8")
    if flat.dtype != dtype:
        flat = flat[: flat.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
    needed = desc.placement.last_address() + 1
    if flat.size < needed:
        raise LayoutError(
            f"a buffer of {flat.nbytes} bytes is too short for {desc}: {needed * dtype.itemsize} are read"
        )
    return flat


def elements_of(buffer: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """As :func:`as_elements`, also of an array with strides of its own, which begins with its first element."""
    if buffer.flags.c_contiguous:
        return as_elements(buffer, desc)
    return as_strided(buffer, (desc.placement.last_address() + 1,), (desc.itemsize,))


def blocked_view(elements: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """A view of ``elements`` with one axis per outermost block count, then one per inner block."""
    size = elements.dtype.itemsize
    layout = desc.layout
    inner_steps = [prod(layout.inner_blks[axis + 1 :]) for axis in range(len(layout.inner_blks))]
    return as_strided(
        elements[desc.offset0 :],
        shape=(*desc.placement.outer_dims, *layout.inner_blks),
        strides=tuple(step * size for step in (*layout.strides, *inner_steps)),
    )


def _parts(array: NDArray[Any], desc: MemoryDesc) -> Iterator[tuple[NDArray[Any], tuple[slice, ...]]]:
    """Parts of an array in whole blocks, and which these are: a view of all that padding is not in, and copies at ends.

    So no second array of its size is made.
    """
    sizes, cuts = desc.layout.blocks, []
    for extent, end, block in zip(desc.dims, desc.padded_dims, sizes, strict=True):
        whole = extent // block * block
        cuts.append([slice(*each) for each in ((0, whole), (whole, end)) if each[0] < each[1]])
    for box in product(*cuts):
        part, shape = array[box], tuple(each.stop - each.start for each in box)
        if part.shape != shape:
            padded = np.zeros(shape, dtype=array.dtype)
            padded[tuple(map(slice, part.shape))] = part
            part = padded
        yield part, tuple(slice(at.start // size, at.stop // size) for at, size in zip(box, sizes, strict=True))


def _split(array: NDArray[Any], desc: MemoryDesc) -> NDArray[Any]:
    """Whole blocks with the axes of :func:`blocked_view`."""
    layout = desc.layout
    shape: list[int] = []
    outer: list[int] = []
    inner = [0] * len(layout.inner_blks)
    for dim, (extent, block) in enumerate(zip(array.shape, layout.blocks, strict=True)):
        outer.append(len(shape))
        shape.append(extent // block)
        for axis, (blk, idx) in enumerate(zip(layout.inner_blks, layout.inner_idxs, strict=True)):
            if idx == dim:
                inner[axis] = len(shape)
                shape.append(blk)
    return array.reshape(shape).transpose(outer + inner)
