"""New tensors of a tensor's elements: in another layout or type, in the same bytes where that is safe, or mapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import from_numpy
from blocklayout.errors import InputError, LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.desc import integers
from blocklayout.layout.padding import clear_padding
from blocklayout.layout_events import report
from blocklayout.recording import recorded
from blocklayout.tensor.formats import contiguous_format
from blocklayout.tensor.reordering import bytes_in, moved
from blocklayout.tensor.tensor_class import Tensor


@recorded("to")
def brought(tensor: Tensor, target: MemoryDesc, operator: str) -> Tensor:
    """A tensor under another, dense descriptor: itself, its memory, or a reorder, reported as ``operator``'s."""
    desc = tensor.desc
    if desc == target and desc.format_tag == target.format_tag:
        return tensor
    if may_share(desc, target):
        return Tensor(target, tensor.buffer[: target.nbytes])
    return _moved(tensor, target, operator)


def may_share(desc: MemoryDesc, target: MemoryDesc) -> bool:
    """Whether two tensors may have the same bytes and both be written to, which keeps each one's padding zero.

    So padding of either must lie outside of the other, or be the other's padding as well.
    """
    if not desc.readable_as(target):
        return False
    if target.n_padding == 0:
        return target.is_dense  # so its bytes are all elements
    return target.readable_as(desc) and target.padded_dims == desc.padded_dims


@recorded("view")
def viewed(tensor: Tensor, shape: Iterable[int]) -> Tensor:
    """See :meth:`Tensor.view`."""
    desc, given = tensor.desc, tuple(shape)
    extents = integers("view: shape", given)
    if extents.count(-1) == 1:
        rest = prod(extent for extent in extents if extent != -1)
        extents = tuple(desc.n_elements // rest if extent == -1 and rest else extent for extent in extents)
    if min(extents, default=0) < 0 or prod(extents) != desc.n_elements:
        raise InputError(
            f"view: {desc} has {desc.n_elements} elements, which {given} cannot have; one extent may be -1"
        )
    try:
        return Tensor(desc.reshaped(extents), tensor.buffer)
    except LayoutError as error:
        raise LayoutError(f"view: {error}; .reshape(...) copies there") from None


@recorded("clone")
def cloned(tensor: Tensor, target: MemoryDesc) -> Tensor:
    """A copy under a dense descriptor; reported as a reorder where that is another layout."""
    if tensor.desc == target:
        return Tensor.restored(target, tensor.buffer)
    if tensor.desc.format_tag == target.format_tag:
        return Tensor(target, bytes_in(tensor.desc, tensor.buffer, target))
    return _moved(tensor, target, "Tensor.clone")


def _moved(tensor: Tensor, target: MemoryDesc, operator: str) -> Tensor:
    """A reorder, which is a loss too where it drops a layout to row-major."""
    desc = tensor.desc
    result = moved(desc, tensor.buffer, target, operator=operator)
    if target.memory_format == contiguous_format != desc.memory_format and not desc.is_contiguous():
        report("loss", operator, (desc,), target, reason=f"{desc.memory_format} is given up for {contiguous_format}")
    return result


@recorded("astype")
def converted(tensor: Tensor, dtype: str) -> Tensor:
    """The values in another data type, in the same format; the tensor itself where it has that one."""
    desc = tensor.desc
    if dtype == desc.dtype:
        return tensor
    target = MemoryDesc(desc.dims, dtype, desc.format_tag)
    return Tensor(target, bytes_in(desc, tensor.buffer, target))


def compact(tensor: Tensor) -> Tensor:
    """The tensor with no bytes but its own elements and padding: itself, or a copy."""
    if tensor.desc.is_dense and not tensor.desc.offset0:
        return tensor
    return cloned(tensor, MemoryDesc(tensor.shape, tensor.dtype, tensor.desc.format_tag))


@recorded("map")
def mapped(tensor: Tensor, f: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """See :meth:`Tensor.map`."""
    if not callable(f):
        raise InputError(f"map: f is {f!r:.80}; give a function of an array")
    own = compact(tensor)
    elements = own.physical()
    if own.desc.n_padding and own.desc.n_elements:
        # Of zeros the function might warn, or raise, where of no element it does.
        elements = elements.copy()
        clear_padding(elements, own.desc, elements[own.desc.offset(*(0,) * own.ndim)])
    given = elements.view()
    given.flags.writeable = False
    result = f(given)
    if not isinstance(result, np.ndarray):
        raise InputError(f"map: the function gave {type(result).__name__}; it must give an array")
    if result.shape != given.shape:
        raise InputError(f"map: the function gave shape {result.shape} for {given.shape}; it must be elementwise")
    desc = own.desc.with_dtype(from_numpy(result.dtype))
    made = Tensor(desc, dnnl.aligned_empty(desc.nbytes))
    target = made.physical()
    target[:] = result
    clear_padding(target, desc)
    return made
