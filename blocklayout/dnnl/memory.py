"""Memory: a descriptor with the bytes it describes; the bytes are numpy's, and never copied here."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklayout.dnnl import c_desc, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.handles import cpu_engine, create
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc
from blocklayout.resource_limits import check_nbytes

ALIGNMENT = 64
"""A cache line, and the widest vector register."""


def aligned_empty(nbytes: int) -> np.ndarray:
    """``nbytes`` uninitialised bytes whose address is a multiple of 64.

    Raises:
        InvalidArgumentsError: ``nbytes`` is negative.
        LimitError: It is more than is allowed, or left.

    Example:
        >>> buffer = aligned_empty(100)
        >>> buffer.nbytes, buffer.ctypes.data % 64
        (100, 0)
    """
    if nbytes < 0:
        raise InvalidArgumentsError(f"nbytes is {nbytes}; a buffer has 0 bytes or more")
    check_nbytes(nbytes, "a buffer")
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -int(ffi.cast("uintptr_t", ffi.from_buffer(raw))) % ALIGNMENT
    return raw[start : start + nbytes]


class Memory:
    """A descriptor put to a numpy buffer, as primitives take it.

    It owns a reference to its buffer, and the buffer's bytes are used in place. The descriptor's offset is
    counted from the array's first element.

    Attributes:
        desc: The descriptor.
        buffer: The array of the bytes; ``None`` while it is bound to nothing.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> memory = Memory(MemoryDesc((2, 3), "f32"), np.arange(6, dtype=np.float32))
        >>> memory.nbytes
        24
    """

    __slots__ = ("_handle", "_needed", "buffer", "desc")

    def __init__(self, desc: MemoryDesc, buffer: np.ndarray | None = None) -> None:
        self.desc = desc
        self.buffer: object = None
        self._needed = (desc.placement.last_address() + 1) * desc.itemsize  # nbytes counts a last hole too
        c_descriptor = c_desc.to_c(desc)
        self._handle = create("memory", "dnnl_memory_create", c_descriptor.c, cpu_engine().c, ffi.NULL, subject=desc)
        if buffer is not None:
            self.rebind(buffer)

    @classmethod
    def empty(cls, desc: MemoryDesc) -> Memory:
        """A Memory with a new, uninitialised, aligned buffer."""
        return cls(desc, aligned_empty(desc.nbytes))

    @property
    def nbytes(self) -> int:
        """Bytes its descriptor reaches over, padding included."""
        return self.desc.nbytes

    @property
    def c(self) -> Any:
        """The C object, valid as long as this Memory."""
        return self._handle.c

    @property
    def address(self) -> int:
        """Where the first element is; 0 while it is bound to nothing."""
        c_place = ffi.new("void **")
        status.call("dnnl_memory_get_data_handle", self._handle.c, c_place)
        return int(ffi.cast("uintptr_t", c_place[0]))

    def rebind(self, buffer: np.ndarray) -> None:
        """Put the descriptor to another buffer; the old one is let go.

        Args:
            buffer: Any array whose bytes, from its first element on, reach as far as the descriptor does; its
                own type and shape do not matter.

        Raises:
            InvalidArgumentsError: The buffer is too small.
        """
        self.check(buffer)
        self.rebind_pointer(buffer.__array_interface__["data"][0], buffer)

    def check(self, buffer: np.ndarray) -> None:
        """Refuse a buffer that the descriptor reaches beyond, by an InvalidArgumentsError."""
        available = _reach_nbytes(buffer)
        if available < self._needed:
            raise InvalidArgumentsError(
                f"buffer holds {available} bytes from its first element on, and {self.desc} needs {self._needed}"
            )

    def rebind_pointer(self, address: int, owner: object) -> None:
        """Put the descriptor to a buffer's address, unchecked; ``owner``, kept until the next binding, holds it."""
        place = address + self.desc.offset0 * self.desc.itemsize
        c_status = library.load().dnnl_memory_set_data_handle(self._handle.c, ffi.cast("void *", place))
        status.check(c_status, "dnnl_memory_set_data_handle", self.desc)
        self.buffer = owner

    def release(self) -> None:
        """Put the descriptor to nothing; the buffer is let go."""
        self.rebind_pointer(0, None)

    def destroy(self) -> None:
        """Destroys the C object and lets the buffer go; a second call does nothing."""
        self._handle.destroy()
        self.buffer = None

    def __repr__(self) -> str:
        return f"Memory({self.desc})"


def _reach_nbytes(array: np.ndarray) -> int:
    """Bytes from the first element of ``array`` to the end of its last-addressed one."""
    if array.size == 0:
        return 0
    if array.flags.c_contiguous:
        return array.nbytes
    steps = zip(array.shape, array.strides, strict=True)
    last = sum((extent - 1) * max(stride, 0) for extent, stride in steps)
    return int(last) + array.itemsize
