"""Steps that numpy computes: nodes that no primitive does, copies, and zeros in padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.errors import PlanError
from blocklayout.layout.packing import elements_of, pack, unpack
from blocklayout.layout.padding import clear_padding
from blocklayout.resource_limits import interrupted, is_timeless
from blocklayout.tensor import Tensor
from blocklayout.tensor.conversion import convert

if TYPE_CHECKING:
    from blocklayout.ir import Compute, HostSpec
    from blocklayout.layout import MemoryDesc

HostFunction = Callable[[Mapping[str, "HostMemory"]], None]


class HostMemory:
    """A descriptor put to a numpy buffer, for steps that run on this side of the library."""

    __slots__ = ("_array", "buffer", "desc", "is_lent")

    def __init__(self, desc: MemoryDesc, buffer: np.ndarray | None = None) -> None:
        self.desc = desc
        self.buffer = buffer
        self.is_lent = False  # by the caller of a run, who may write to it meanwhile
        self._array: np.ndarray | None = None

    def rebind(self, buffer: np.ndarray) -> None:
        """Put it to a caller's buffer."""
        self.buffer = buffer
        self.is_lent = True
        self._array = None

    def release(self) -> None:
        """Let go of the buffer."""
        self.buffer = self._array = None

    @property
    def elements(self) -> np.ndarray:
        """The buffer as a flat array of elements, padding included."""
        if self.buffer is None:
            raise PlanError(f"a memory of {self.desc} is bound to nothing")
        return elements_of(self.buffer, self.desc)

    @property
    def array(self) -> np.ndarray:
        """A view: the elements of an unblocked layout in logical order, those in blocks as :attr:`elements`."""
        if self._array is None:
            desc, elements = self.desc, self.elements
            if desc.inner_blks:
                self._array = elements
            elif not desc.n_elements:
                self._array = elements[:0].reshape(desc.dims)
            else:
                strides = tuple(step * desc.itemsize for step in desc.strides)
                self._array = np.ndarray(desc.dims, elements.dtype, elements, desc.offset0 * desc.itemsize, strides)
        return self._array


class HostExecution:
    """A function bound to its memories, by argument; ``name`` is for the message of an error."""

    def __init__(self, function: HostFunction, memories: Mapping[str, HostMemory], name: str = "") -> None:
        self.memories = memories
        self._function = function
        self._name = name or "a step in Python"

    def run(self) -> None:
        """Run it once; a ``LimitError`` where the time of a block of limits is over before it is."""
        if is_timeless():
            self._function(self.memories)
            return
        with interrupted(self._name):
            self._function(self.memories)


def host_function(spec: HostSpec, compute: Compute | None) -> HostFunction:
    """The function of a step; ``compute`` computes the node of one that is a node."""
    if spec.kind == "copy":
        return copy_elements
    if spec.kind == "zero_padding":
        return _zero_padding
    if compute is None:
        raise PlanError(f"the plan has a {spec.kind} step of {spec.label} and nothing to run it")
    return partial(_on_tensors if spec.kind == "registered" else _on_arrays, compute)


def _on_arrays(compute: Compute, memories: Mapping[str, HostMemory]) -> None:
    compute({arg: _steady(arg, memory) for arg, memory in memories.items()})


def _steady(arg: str, memory: HostMemory) -> np.ndarray:
    """The array of a memory, and of integers of a caller's a copy: numpy checks indices first, and then follows them.

    Another thread that changes them in between would have it read and write beyond the ends of arrays.
    """
    array = memory.array
    return array.copy() if memory.is_lent and arg.startswith("src") and array.dtype.kind in "iu" else array


def _on_tensors(compute: Compute, memories: Mapping[str, HostMemory]) -> None:
    """Run a registered step's node: its sources cannot be written to."""
    tensors = {arg: Tensor(m.desc.in_role("src"), m.elements.view(np.uint8)) for arg, m in memories.items()}
    for arg, tensor in tensors.items():
        tensor.buffer.flags.writeable = arg == "dst"
    compute(tensors)


def copy_elements(memories: Mapping[str, HostMemory]) -> None:
    """Bring ``src`` into the layout and the data type of ``dst``."""
    src, dst = memories["src"], memories["dst"]
    values = convert(src.array if src.desc.is_plain else unpack(src.elements, src.desc), dst.desc.dtype)
    if dst.desc.is_plain:
        dst.array[...] = values
    else:
        pack(values, dst.desc, dst.elements)


def _zero_padding(memories: Mapping[str, HostMemory]) -> None:
    clear_padding(memories["dst"].elements, memories["dst"].desc)
