"""Steps that numpy computes: what the reference evaluator does, copies, and zeros in padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import as_strided

from blocklayout.errors import PlanError
from blocklayout.layout.packing import as_elements, pack, unpack
from blocklayout.layout.padding import clear_padding

if TYPE_CHECKING:
    from blocklayout.ir import Compute, HostSpec
    from blocklayout.layout import MemoryDesc

HostFunction = Callable[[Mapping[str, "HostMemory"]], None]


class HostMemory:
    """A descriptor put to a numpy buffer, for steps that run on this side of the library."""

    __slots__ = ("buffer", "desc")

    def __init__(self, desc: MemoryDesc, buffer: np.ndarray | None = None) -> None:
        self.desc = desc
        self.buffer = buffer

    def rebind(self, buffer: np.ndarray) -> None:
        """Put it to another buffer."""
        self.buffer = buffer

    def release(self) -> None:
        """Let go of the buffer."""
        self.buffer = None

    @property
    def elements(self) -> np.ndarray:
        """The buffer as a flat array of elements, padding included."""
        if self.buffer is None:
            raise PlanError(f"a memory of {self.desc} is bound to nothing")
        if self.buffer.flags.c_contiguous:
            return as_elements(self.buffer, self.desc)
        # An array with strides of its own has its first element at the lowest address.
        return as_strided(self.buffer, (self.desc.placement.last_address() + 1,), (self.desc.itemsize,))

    @property
    def array(self) -> np.ndarray:
        """The elements of an unblocked layout in logical order; a view."""
        desc, elements = self.desc, self.elements
        if not desc.n_elements:
            return elements[:0].reshape(desc.dims)
        return as_strided(elements[desc.offset0 :], desc.dims, tuple(step * desc.itemsize for step in desc.strides))


class HostExecution:
    """A function bound to its memories."""

    def __init__(self, function: HostFunction, memories: Mapping[str, HostMemory]) -> None:
        self.memories = memories
        self._function = function

    def run(self) -> None:
        """Run it once."""
        self._function(self.memories)


def host_function(spec: HostSpec, compute: Compute | None) -> HostFunction:
    """The function of a step.

    Args:
        spec: The step.
        compute: Runs a plain step's node.

    Raises:
        PlanError: A plain step without ``compute``.
    """
    if spec.kind == "copy":
        return copy_elements
    if spec.kind == "zero_padding":
        return _zero_padding
    if compute is None:
        raise PlanError(f"the plan has a plain step of {spec.label} and nothing to run it")
    sources = [arg for arg, _ in spec.descs if arg.startswith("src")]
    results = [arg for arg, _ in spec.descs if arg.startswith("dst")]

    def run(memories: Mapping[str, HostMemory]) -> None:
        computed = compute([memories[arg].array for arg in sources])
        for arg, array in zip(results, computed, strict=True):
            memories[arg].array[...] = array.reshape(memories[arg].desc.dims)

    return run


def copy_elements(memories: Mapping[str, HostMemory]) -> None:
    """Bring ``src`` into the layout of ``dst``, of the same data type."""
    src, dst = memories["src"], memories["dst"]
    values = unpack(src.elements, src.desc) if src.desc.inner_blks else src.array
    if dst.desc.inner_blks:
        pack(values, dst.desc, dst.elements)
    else:
        dst.array[...] = values


def _zero_padding(memories: Mapping[str, HostMemory]) -> None:
    clear_padding(memories["dst"].elements, memories["dst"].desc)
