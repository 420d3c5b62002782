"""Tensors and arrays of others: any holder of a tensor is read in place where strides allow, and Tensors likewise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import ExportError, InputError, LayoutError
from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.ordering import as_tag
from blocklayout.layout_events import is_watched, report
from blocklayout.tensor.tensor_class import Tensor

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def as_memory(source: ArrayLike | Tensor, operator: str = "as_memory") -> tuple[MemoryDesc, np.ndarray]:
    """The descriptor and buffer of anything that holds a tensor, without a copy where strides allow.

    Args:
        source: A numpy array, anything with ``__dlpack__`` (a torch tensor), or a Tensor.
        operator: Name of the reader, for the report of a copy.

    Raises:
        InputError: Not a tensor, or of a data type oneDNN does not have.
    """
    if isinstance(source, Tensor):
        return source.desc, source.buffer
    array = as_array(source, operator)
    array = array if array.ndim else array.reshape(1)  # a scalar is one element of rank 1
    try:
        return MemoryDesc.from_array(array), array
    except LayoutError:
        copy = np.ascontiguousarray(array)  # its strides were at fault, or nothing can help
    try:
        desc = MemoryDesc.from_array(copy)
    except LayoutError as error:
        raise InputError(str(error)) from None
    _report_copy(array, copy, operator, f"elements at strides of {array.strides} bytes overlap")
    return desc, copy


def as_array(source: Any, operator: str = "as_array") -> np.ndarray:
    """A native-endian array with strides oneDNN can read, the caller's own memory where possible; as :func:`as_memory`.

    Raises:
        InputError: Not convertible.
    """
    given = source if isinstance(source, np.ndarray) else foreign(source)
    array = given
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    fits = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    array = array if fits and array.flags.aligned else np.ascontiguousarray(array)
    if array is not given:
        _report_copy(given, array, operator, f"{given.dtype.str} at strides of {given.strides} bytes is not readable")
    return array


def as_tensor(source: ArrayLike | Tensor, operator: str = "as_tensor") -> Tensor:
    """A Tensor over the memory of any holder of one; a copy only where there are holes between elements.

    A Tensor is itself. An array is in the format that :func:`format_of` reads from its strides.

    Args:
        source: A numpy array, anything with ``__dlpack__`` (a torch tensor), or a Tensor.
        operator: Who reads it, for the report of a copy.

    Raises:
        InputError: Not a tensor, or of a data type that there is not.

    Example:
        >>> x = np.zeros((2, 4, 4, 3), np.float32).transpose(0, 3, 1, 2)
        >>> as_tensor(x).memory_format
        'channels_last'
    """
    if isinstance(source, Tensor):
        return source
    array = as_array(source, operator)
    array = array if array.ndim else array.reshape(1)
    desc = dense_desc(array)
    flat = np.ascontiguousarray(array.transpose(desc.format_tag.order))
    if not np.may_share_memory(flat, array):
        _report_copy(array, flat, operator, f"there are holes at strides of {array.strides} bytes")
    return Tensor(desc, flat)


def dense_desc(array: np.ndarray) -> MemoryDesc:
    """The descriptor of an array's elements without holes, in the format of :func:`format_of`, or an InputError."""
    try:
        return MemoryDesc(array.shape, from_numpy(array.dtype), format_of(array))
    except LayoutError as error:
        raise InputError(str(error)) from None


def format_of(array: np.ndarray) -> FormatTag:
    """The order of dimensions that an array's strides tell; extents of 1, repetition and signs of steps have no say.

    Row-major where it may be, else channels-last where it may be.

    Example:
        >>> format_of(np.zeros((2, 4, 4, 1)).transpose(0, 3, 1, 2)).text  # one channel
        'nchw'
    """
    steps = [dim for dim, extent in enumerate(array.shape) if extent > 1 and array.strides[dim]]
    steps.sort(key=lambda dim: -abs(array.strides[dim]))
    names = ("contiguous_format", *(("channels_last",) if 3 <= array.ndim <= 5 else ()))
    for tag in (as_tag(name, array.ndim) for name in names):
        if array.flags.c_contiguous or [dim for dim in tag.order if dim in steps] == steps:
            return tag
    for dim in range(array.ndim):
        if dim not in steps:
            steps.insert(steps.index(dim - 1) + 1 if dim else 0, dim)
    return FormatTag(tuple(steps))


def plain_view(tensor: Tensor) -> np.ndarray:
    """A Tensor without blocks as an array over its bytes; read-only if its buffer is, or elements repeat."""
    desc = tensor.desc
    strides = tuple(step * desc.itemsize for step in desc.strides)
    start = 0 if 0 in desc.dims else desc.offset0 * desc.itemsize
    view = np.ndarray(desc.dims, to_numpy(desc.dtype), tensor.buffer, start, strides)
    if desc.repeats:
        view.flags.writeable = False
    return view


def foreign(source: Any) -> np.ndarray:
    """An array over the memory of something else; an InputError where it cannot be one."""
    if hasattr(source, "detach"):
        source = source.detach()
    if hasattr(source, "__dlpack__") and not isinstance(source, np.ndarray | Tensor):
        try:
            return np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"cannot read {type(source).__name__} through DLPack: {error}") from None
    try:
        array = np.asarray(source)
    except ValueError as error:
        raise InputError(f"cannot read {type(source).__name__} as an array: {error}") from None
    if array.dtype == object:
        raise InputError(f"expected an array, a torch tensor or a Tensor, got {type(source).__name__}")
    return array


def _report_copy(given: np.ndarray, copy: np.ndarray, operator: str, reason: str) -> None:
    if not is_watched():
        return
    try:
        result = MemoryDesc.from_array(np.atleast_1d(copy))
    except LayoutError:
        return  # of a type that its reader refuses
    report("copy", operator, (), result, nbytes=given.nbytes + copy.nbytes, reason=reason)


def as_numpy(tensor: Tensor, dtype: Any, *, copy: bool | None) -> np.ndarray:
    """The array for numpy's ``__array__``: a view unless blocks, another type or the caller demand a copy.

    An ExportError where no copy is allowed, and none can be avoided.
    """
    desc = tensor.desc
    if desc.is_plain:
        view = plain_view(tensor)
        if dtype is None or np.dtype(dtype) == view.dtype:
            return view.copy() if copy else view
        if copy is False:
            raise ExportError(f"{desc} cannot become an array of {np.dtype(dtype)} without a copy")
        return view.astype(dtype)
    if copy is False:
        raise ExportError(f"{desc} cannot become an array without a copy: {_ways()}")
    array = tensor.numpy()
    if copy is None and is_watched():
        report("copy", "Tensor.__array__", (desc,), nbytes=2 * desc.nbytes, reason="numpy has no blocks")
    return array if dtype is None else array.astype(dtype, copy=False)


def exported(tensor: Tensor) -> np.ndarray:
    """An array over the memory, which exports itself through DLPack; an ExportError of blocks, and of bf16."""
    if not tensor.desc.is_plain:
        raise ExportError(f"DLPack knows strides but no blocks, and this is {tensor.desc}: {_ways()}")
    if tensor.dtype == "bf16":
        raise ExportError(f"numpy exports no bf16 through DLPack, and this is {tensor.desc}: .astype('f32') gets there")
    return plain_view(tensor)


def _ways() -> str:
    return ".to(memory_format=bl.contiguous_format) or .numpy() gets there"


def with_arrays(given: Any) -> Any:
    """Arguments of one of numpy's functions, with an array in the place of each Tensor."""
    if isinstance(given, Tensor):
        return np.asarray(given)
    if isinstance(given, dict):
        return {name: with_arrays(each) for name, each in given.items()}
    return type(given)(map(with_arrays, given)) if type(given) in (tuple, list) else given
