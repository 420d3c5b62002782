"""Tensor: a descriptor with its memory, and the reorder between two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import has_reorder
from blocklayout.errors import InputError, LayoutError
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Tensor:
    """A tensor in a layout of its own; shape and index are logical whatever the bytes' order.

    Attributes:
        desc: Extents, data type and layout.
        buffer: The raw bytes, padding included. Shape (``desc.nbytes``,), uint8.
    """

    __slots__ = ("buffer", "desc")

    def __init__(self, desc: MemoryDesc, buffer: np.ndarray) -> None:
        """Wrap a raw buffer without copying it.

        Args:
            desc: What the bytes mean.
            buffer: Contiguous bytes, ``desc.nbytes`` of them, padding included; primitives
                rely on zeros in the padding.

        Raises:
            LayoutError: The buffer's size is not the descriptor's.
        """
        if buffer.nbytes != desc.nbytes or not buffer.flags.c_contiguous:
            raise LayoutError(f"{desc} takes {desc.nbytes} contiguous bytes, the buffer has {buffer.nbytes}")
        self.desc = desc
        self.buffer = buffer.reshape(-1).view(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical extents: N, C, H, W for an image in every layout."""
        return self.desc.dims

    @property
    def dtype(self) -> str:
        """Name of the data type, as oneDNN calls it."""
        return self.desc.dtype

    def physical(self) -> np.ndarray:
        """The raw buffer in its data type, padding included: a view, shape (elements,)."""
        from blocklayout.dtypes import to_numpy

        return self.buffer.view(to_numpy(self.desc.dtype))

    def numpy(self) -> np.ndarray:
        """The elements as a row-major array in logical order."""
        return self.desc.unpack(self.physical())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:  # noqa: FBT001 - numpy's protocol
        if copy is False:
            raise ValueError(f"{self.desc} cannot become an array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"Tensor({self.desc})"

    def _repr_html_(self) -> str:
        return self.desc._repr_html_()


def reorder(source: ArrayLike | Tensor, layout: str | MemoryDesc, *, threads: int | None = None) -> Tensor:
    """Bring a tensor into another layout: bytes move, values stay.

    Args:
        source: A numpy array, anything with ``__dlpack__`` (a torch tensor), or a Tensor.
        layout: A oneDNN tag or ``channels_last`` / ``channels_first`` of the source's rank, or a
            descriptor; a descriptor of another data type converts.
        threads: Threads to use; by default what this process may use.

    Raises:
        LayoutError: No such layout for these extents.
        UnsupportedError: oneDNN is not available here.

    Example:
        >>> x = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
        >>> t = reorder(x, "nChw8c")
        >>> t.shape, t.desc.nbytes, bool((t.numpy() == x).all())
        ((2, 17, 5, 4), 3840, True)
    """
    from blocklayout import dnnl

    src, buffer = as_memory(source)
    dst = layout if isinstance(layout, MemoryDesc) else MemoryDesc(src.dims, src.dtype, layout)
    if not has_reorder(src.dtype) and src.dtype == dst.dtype:
        values = source.numpy() if isinstance(source, Tensor) else as_array(source)
        return Tensor(dst, dst.pack(values.reshape(dst.dims)).view(np.uint8))
    made = dnnl.aligned_empty(dst.nbytes)
    n_threads = threads or dnnl.default_threads()

    def run() -> None:
        primitive = dnnl.Primitive(dnnl.reorder(src, dst, n_threads=n_threads))
        primitive.bind({"src": dnnl.Memory(src, buffer), "dst": dnnl.Memory(dst, made)}).run()

    if dst.n_elements:
        dnnl.run_parallel(run, n_threads)
    return Tensor(dst, made)


def as_memory(source: ArrayLike | Tensor) -> tuple[MemoryDesc, np.ndarray]:
    """The descriptor and buffer of whatever holds a tensor, without a copy where strides allow.

    Raises:
        InputError: Not a tensor, or of a data type oneDNN does not have.
    """
    if isinstance(source, Tensor):
        return source.desc, source.buffer
    array = as_array(source)
    if not array.ndim:
        array = array.reshape(1)  # a scalar is one element of rank 1
    try:
        return MemoryDesc.from_array(array), array
    except LayoutError:
        array = np.ascontiguousarray(array)  # its strides were at fault, or nothing can help
    try:
        return MemoryDesc.from_array(array), array
    except LayoutError as error:
        raise InputError(str(error)) from None


def as_array(source: Any) -> np.ndarray:
    """A native-endian array with strides oneDNN can read, the caller's own memory where possible.

    Raises:
        InputError: Not convertible.
    """
    array = source if isinstance(source, np.ndarray) else _foreign(source)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    fits = all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)
    return array if fits and array.flags.aligned else np.ascontiguousarray(array)


def _foreign(source: Any) -> np.ndarray:
    if hasattr(source, "detach"):
        source = source.detach()
    if hasattr(source, "__dlpack__"):
        try:
            return np.from_dlpack(source)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"cannot read {type(source).__name__} through DLPack: {error}") from None
    array = np.asarray(source)
    if array.dtype == object:
        raise InputError(f"expected an array, a torch tensor or a Tensor, got {type(source).__name__}")
    return array
