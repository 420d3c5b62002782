"""Steps that numpy computes: what the reference evaluator does, copies, and zeros in padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided

from blocklayout.errors import PlanError
from blocklayout.layout.packing import elements_of, pack, unpack
from blocklayout.layout.padding import clear_padding
from blocklayout.tensor import Tensor
from blocklayout.tensor.conversion import convert

if TYPE_CHECKING:
    from blocklayout.ir import Compute, ComputeInPlace, HostSpec
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
        return elements_of(self.buffer, self.desc)

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


def host_function(spec: HostSpec, compute: Compute | ComputeInPlace | None) -> HostFunction:
    """The function of a step.

    Args:
        spec: The step.
        compute: ComputeInPlaces the node of a plain or a registered step.

    Raises:
        PlanError: Such a step without ``compute``.
    """
    if spec.kind == "copy":
        return copy_elements
    if spec.kind == "zero_padding":
        return _zero_padding
    if compute is None:
        raise PlanError(f"the plan has a {spec.kind} step of {spec.label} and nothing to run it")
    if spec.kind == "registered":
        return partial(_on_tensors, cast("ComputeInPlace", compute))
    on_arrays = cast("Compute", compute)
    sources = [arg for arg, _ in spec.descs if arg.startswith("src")]
    results = [arg for arg, _ in spec.descs if arg.startswith("dst")]

    def run(memories: Mapping[str, HostMemory]) -> None:
        computed = on_arrays([memories[arg].array for arg in sources])
        for arg, array in zip(results, computed, strict=True):
            memories[arg].array[...] = array.reshape(memories[arg].desc.dims)

    return run


def _on_tensors(compute: ComputeInPlace, memories: Mapping[str, HostMemory]) -> None:
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
