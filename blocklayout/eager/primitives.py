"""Primitives run on Tensors' bytes: compiled and bound once, and put to other buffers at each call."""

from __future__ import annotations

import threading
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.dnnl import arguments
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SPECS = 512
_MAX_IDLE = 4
"""Threads that may run the same Spec at the same time without compiling it again."""


def execute(spec: dnnl.Spec, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The results of a primitive, each a fresh Tensor in the layout that the Spec says.

    Args:
        spec: Resolved.
        inputs: By argument, bytes in the Spec's layout: an array that reaches as far as that does.

    Raises:
        DnnlError: The library refused.
    """
    idle = _idle(spec)
    try:
        bound = idle.pop()  # one call of the interpreter: no other thread gets the same
    except IndexError:
        bound = _Bound(spec)
    results = bound.run(inputs)
    idle.append(bound)
    return results


@lru_cache(maxsize=_MAX_SPECS)
def _idle(spec: dnnl.Spec) -> deque[_Bound]:
    """Those of a Spec that no thread is running."""
    del spec
    return deque(maxlen=_MAX_IDLE)


class _Scratch(threading.local):
    """A thread's scratchpad, as large as the largest it has needed."""

    def __init__(self) -> None:
        self.buffer = np.empty(0, np.uint8)

    def of(self, nbytes: int) -> np.ndarray:
        if self.buffer.nbytes < nbytes:
            self.buffer = dnnl.aligned_empty(nbytes)
        return self.buffer


_scratch = _Scratch()


class _Bound:
    """A primitive with its memories, which hold no buffers between two runs."""

    def __init__(self, spec: dnnl.Spec) -> None:
        primitive = dnnl.Primitive(spec)
        self._n_threads = spec.n_threads
        self._scratchpad_nbytes = primitive.scratchpad_nbytes
        self._results = {name: spec.memory_desc(name) for name in arguments.results(spec)}
        self._memories = {name: dnnl.Memory(spec.memory_desc(name)) for name, _ in spec.descs}
        if self._scratchpad_nbytes:
            self._memories["scratchpad"] = dnnl.Memory(MemoryDesc((self._scratchpad_nbytes,), "u8"))
        self._execution = dnnl.ExecutionList([primitive.bind(self._memories)], spec.n_threads)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
        made = {name: dnnl.aligned_empty(desc.nbytes) for name, desc in self._results.items()}
        scratch = {"scratchpad": _scratch.of(self._scratchpad_nbytes)} if self._scratchpad_nbytes else {}
        for name, buffer in (*inputs.items(), *made.items(), *scratch.items()):
            self._memories[name].rebind(buffer)
        dnnl.run_parallel(self._execution.run, self._n_threads)
        for memory in self._memories.values():
            memory.buffer = None  # let go: each is put to another before the next run
        return {name: Tensor(self._results[name], buffer) for name, buffer in made.items()}
