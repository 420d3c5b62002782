"""A plan that runs on memory whose layouts are known beforehand: what other runs decide each time is decided once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from blocklayout import dnnl
from blocklayout.runtime.context import Context
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.layout import MemoryDesc
    from blocklayout.runtime.host import HostMemory
    from blocklayout.runtime.ready import ReadyPlan

    Borrower: TypeAlias = dnnl.Memory | HostMemory


class Direct(Context):
    """The memory of one run in flight, for callers who always come with the same layouts.

    Attributes:
        reorders: The inputs that are brought to another layout first: what each comes in, and what is read.
    """

    def __init__(self, ready: ReadyPlan, descs: Mapping[str, MemoryDesc]) -> None:
        """Create the plan's primitives, and a reorder of each input that comes in another layout than is read.

        Args:
            ready: What to run.
            descs: What each input comes in; of a data type that the library knows, or in the layout that is read.

        Raises:
            DnnlError: A primitive cannot be rebuilt as the plan describes it.
        """
        super().__init__(ready)
        self.reorders: dict[str, tuple[MemoryDesc, MemoryDesc]] = {}
        readers: dict[str, list[Borrower]] = {name: [] for name in descs}
        for place, bound in enumerate(self._entries):
            name, wanted = bound.entry.input, bound.entry.desc
            if descs[name].readable_as(wanted):
                readers[name] += bound.memories
                continue
            reorder = self._entry_reorder(bound, descs[name])
            self._first.put(place, reorder)
            readers[name].append(reorder.memories["src"])
            for memory in bound.memories:
                memory.rebind(bound.copy)
            self.reorders[name] = descs[name], wanted
        self._readers = [(memory, place) for place, name in enumerate(descs) for memory in readers[name]]
        self._writers = [(result.desc, result.memories) for result in self._results]

    def run(self, buffers: Sequence[np.ndarray]) -> list[Tensor]:
        """Run every step once.

        Args:
            buffers: The bytes of each input, in the order of the descriptors. Shape (nbytes,), uint8, contiguous.

        Returns:
            Fresh Tensors, in the plan's order.
        """
        return self._in_turn(lambda: self._run_on(buffers, self._run))

    def run_timed(self, buffers: Sequence[np.ndarray]) -> tuple[list[Tensor], list[int]]:
        """Run every step once, and give the nanoseconds of each input's reorder, then of each step as well."""
        times: list[int] = []
        timed = lambda: times.extend(self._run_timed())  # noqa: E731
        return self._in_turn(lambda: self._run_on(buffers, timed)), times

    def _run_on(self, buffers: Sequence[np.ndarray], run: Callable[[], None]) -> list[Tensor]:
        try:
            for memory, place in self._readers:
                memory.rebind_bytes(buffers[place])
            results = [_fresh(desc, memories) for desc, memories in self._writers]
            run()
        finally:
            self._let_go()
        return results

    def _let_go(self) -> None:
        """Drop the references to the callers' buffers; no step runs before others are in their place."""
        for memory, _ in self._readers:
            memory.buffer = None
        for _, memories in self._writers:
            for memory in memories:
                memory.buffer = None


def _fresh(desc: MemoryDesc, memories: Sequence[Borrower]) -> Tensor:
    buffer = dnnl.aligned_empty(desc.nbytes)
    for memory in memories:
        memory.rebind_bytes(buffer)
    return Tensor.over(desc, buffer)
