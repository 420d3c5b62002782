"""An execution context: the memory of one run in flight, bound to a plan's primitives."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.plan import Entry, Operand, Plan, Step

MAX_ENTRY_REORDERS = 32
"""Layouts of callers' arrays for which a reorder is kept ready."""


@dataclass(frozen=True)
class Feed:
    """One input as the caller holds it."""

    desc: MemoryDesc
    buffer: np.ndarray


class Context:
    """Arena, scratchpad, memory objects and bound primitives of one plan.

    Built once; :meth:`execute` then decides nothing and allocates only what the caller keeps.
    """

    def __init__(self, plan: Plan, packed: Mapping[int, np.ndarray]) -> None:
        """Create the plan's primitives and bind them.

        Args:
            plan: What to run.
            packed: Bytes of the packed constants, by buffer.

        Raises:
            DnnlError: A primitive cannot be rebuilt as the plan describes it.
        """
        self._lock = threading.Lock()
        self._plan = plan
        self._packed = packed
        self._arena = dnnl.aligned_empty(plan.arena_nbytes)
        self._scratchpad = dnnl.aligned_empty(plan.scratchpad_nbytes)
        self._memories: dict[tuple[int, MemoryDesc], dnnl.Memory] = {}
        self._entry_reorders: dict[tuple[MemoryDesc, int], dnnl.Execution] = {}
        self._executions = [self._bind(step) for step in plan.steps]
        self._by_buffer: dict[int, list[dnnl.Memory]] = {}
        for (buffer, _), memory in self._memories.items():
            self._by_buffer.setdefault(buffer, []).append(memory)

    def execute(self, feeds: Mapping[str, Feed]) -> dict[str, np.ndarray]:
        """Run every step once.

        Args:
            feeds: One for each entry's input, of the extents and data type the plan was made for.

        Returns:
            Fresh arrays, by output; outputs that no step computes are left out.
        """
        with self._lock:
            return self._execute(feeds)

    def _execute(self, feeds: Mapping[str, Feed]) -> dict[str, np.ndarray]:
        try:
            for entry in self._plan.entries:
                self._enter(entry, feeds[entry.input])
            outputs = self._bind_outputs()
            for execution in self._executions:
                execution.run()
        finally:
            self._let_go()
        return outputs

    def _bind(self, step: Step) -> dnnl.Execution:
        memories = {arg: self._memory(operand) for arg, operand in step.operands}
        if step.scratchpad_nbytes:
            desc = MemoryDesc((step.scratchpad_nbytes,), "u8")
            memories["scratchpad"] = dnnl.Memory(desc, self._scratchpad[: step.scratchpad_nbytes])
        return dnnl.Primitive(step.spec).bind(memories)

    def _memory(self, operand: Operand) -> dnnl.Memory:
        key = (operand.buffer, operand.desc)
        if key not in self._memories:
            self._memories[key] = dnnl.Memory(operand.desc, self._bytes_of(operand))
        return self._memories[key]

    def _bytes_of(self, operand: Operand) -> np.ndarray | None:
        buffer = self._plan.buffers[operand.buffer]
        if buffer.kind == "constant":
            return self._packed[operand.buffer]
        if buffer.kind == "output":
            return None
        return self._arena[buffer.offset : buffer.offset + operand.desc.nbytes]

    def _enter(self, entry: Entry, feed: Feed) -> None:
        """Let the steps read the caller's own memory where its layout fits, else a reordered copy."""
        if feed.desc.readable_as(entry.desc):
            for memory in self._by_buffer.get(entry.buffer, ()):
                memory.rebind(feed.buffer)
            return
        self._entry_reorder(entry, feed).run()
        copy = self._bytes_of_entry(entry)
        for memory in self._by_buffer.get(entry.buffer, ()):
            memory.rebind(copy)

    def _bytes_of_entry(self, entry: Entry) -> np.ndarray:
        offset = self._plan.buffers[entry.buffer].offset
        return self._arena[offset : offset + entry.desc.nbytes]

    def _entry_reorder(self, entry: Entry, feed: Feed) -> dnnl.Execution:
        key = (feed.desc, entry.buffer)
        if key not in self._entry_reorders:
            while len(self._entry_reorders) >= MAX_ENTRY_REORDERS:
                del self._entry_reorders[next(iter(self._entry_reorders))]
            primitive = dnnl.Primitive(dnnl.reorder(feed.desc, entry.desc, n_threads=self._plan.n_threads))
            memories = {
                "src": dnnl.Memory(feed.desc, feed.buffer),
                "dst": dnnl.Memory(entry.desc, self._bytes_of_entry(entry)),
            }
            self._entry_reorders[key] = primitive.bind(memories)
        execution = self._entry_reorders[key]
        execution.memories["src"].rebind(feed.buffer)
        return execution

    def _bind_outputs(self) -> dict[str, np.ndarray]:
        outputs = {}
        for result in self._plan.results:
            if result.desc is None or result.buffer is None:
                continue
            array = np.empty(result.desc.dims, to_numpy(result.desc.dtype))
            for memory in self._by_buffer.get(result.buffer, ()):
                memory.rebind(array)
            outputs[result.name] = array
        return outputs

    def _let_go(self) -> None:
        """Drop the references to the caller's arrays."""
        buffers: Sequence[int] = [entry.buffer for entry in self._plan.entries]
        buffers = [*buffers, *(result.buffer for result in self._plan.results if result.buffer is not None)]
        for buffer in buffers:
            for memory in self._by_buffer.get(buffer, ()):
                memory.rebind_pointer(0, None)
        for execution in self._entry_reorders.values():
            execution.memories["src"].rebind_pointer(0, None)
