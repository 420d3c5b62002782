"""An execution context: the memory of one run in flight, bound to a plan's primitives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder, to_numpy
from blocklayout.errors import RefusedError
from blocklayout.kernels import HostSpec
from blocklayout.layout import MemoryDesc
from blocklayout.plan.plan import FREE
from blocklayout.runtime.forking import Lock
from blocklayout.runtime.host import HostExecution, HostMemory, copy_elements, host_function
from blocklayout.side_by_side import side_by_side
from blocklayout.tensor import Tensor

if TYPE_CHECKING:
    from blocklayout.plan import Entry, Operand, Plan, Step
    from blocklayout.runtime.ready import ReadyPlan

    _Enter = Callable[[int, "_BoundEntry", "Feed"], list[dnnl.Memory]]

_Result = TypeVar("_Result")

MAX_ENTRY_REORDERS = 32
"""Layouts of callers' arrays for which a reorder is kept ready."""


class Feed(Struct, frozen=True):
    """One input as the caller holds it."""

    desc: MemoryDesc
    buffer: np.ndarray


class Context:
    """Arena, scratchpad, memory objects and bound primitives of one plan.

    Built once; :meth:`execute` then decides nothing and allocates only what the caller keeps.
    """

    def __init__(self, ready: ReadyPlan) -> None:
        """Create the plan's primitives and bind them.

        Args:
            ready: What to run.

        Raises:
            RefusedError: A primitive cannot be rebuilt as the plan describes it.
        """
        plan = ready.plan
        self._lock = Lock()
        self._plan = plan
        self._packed = ready.packed
        self._computes = ready.computes
        self._arena = dnnl.aligned_empty(plan.arena_nbytes)
        self._scratchpad = dnnl.aligned_empty(plan.scratchpad_nbytes)
        self._memories: dict[tuple[int, MemoryDesc], dnnl.Memory] = {}
        self._host_memories: dict[tuple[int, MemoryDesc], HostMemory] = {}
        self._entry_reorders: dict[tuple[MemoryDesc, int], dnnl.Execution] = {}
        primitives = _primitives(plan)
        self._executions = [self._bind(number, step, primitives) for number, step in enumerate(plan.steps)]
        self._first, self._others = self._parts(keeps_denormals=ready.keeps_denormals)
        self._entries = [_BoundEntry(entry, self._on(entry.buffer), self._copy_of(entry)) for entry in plan.entries]
        free = {name for name, border in plan.io_layout if border == FREE}
        self._results = [
            _BoundResult(result.name, result.desc, result.shape, self._on(result.buffer), result.name in free)
            for result in plan.results
            if result.desc is not None and result.buffer is not None
        ]
        bound = [*(entry.memories for entry in self._entries), *(result.memories for result in self._results)]
        self._borrowers = tuple(chain.from_iterable(bound))

    @property
    def result_extents(self) -> dict[str, tuple[int, ...]]:
        """Of the caller's array of each output that a step computes."""
        return {result.name: result.extents for result in self._results}

    def execute(
        self, feeds: Mapping[str, Feed], out: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray | Tensor]:
        """Run every step once, when other callers' runs are over, where regions are as wide as the plan takes them.

        Args:
            feeds: One for each entry's input, of the extents and data type the plan was made for.
            out: Arrays to write outputs to, by name: of their extents and types, row by row without holes.

        Returns:
            These, else fresh arrays or Tensors, by output; outputs that no step computes are left out.

        Raises:
            RefusedError: The library does not run a primitive.
        """
        return self._in_turn(lambda: self._execute(feeds, out or {}, self._enter, self._run))

    def execute_timed(
        self, feeds: Mapping[str, Feed], out: Mapping[str, np.ndarray] | None = None
    ) -> tuple[dict[str, np.ndarray | Tensor], list[int]]:
        """As :meth:`execute`, with the nanoseconds of each entry's reorder (0 if it took none), then of each step."""
        entered: list[int] = []
        times: list[int] = []
        enter = partial(self._enter_timed, entered)
        timed = lambda: times.extend(self._run_timed())  # noqa: E731
        outputs = self._in_turn(lambda: self._execute(feeds, out or {}, enter, timed))
        for place, ns in enumerate(entered):
            times[place] += ns
        return outputs, times

    def _in_turn(self, run: Callable[[], _Result]) -> _Result:
        """Run while no other caller does.

        The lock comes first: who waits for it has no workers yet, and who lets go of it has none any more, so that the
        callers of one context never have more than one team.
        """
        with self._lock:
            return dnnl.run_parallel(run, self._plan.n_threads)

    def _run(self) -> None:
        self._first.run()
        for part in self._others:
            part.run()

    def _run_timed(self) -> Iterator[int]:
        yield from self._first.run_timed()
        for part in self._others:
            if isinstance(part, HostExecution):
                start = time.monotonic_ns()
                part.run()
                yield time.monotonic_ns() - start
            else:
                yield from part.run_timed()

    def _execute(
        self, feeds: Mapping[str, Feed], out: Mapping[str, np.ndarray], enter: _Enter, run: Callable[[], None]
    ) -> dict[str, np.ndarray | Tensor]:
        dnnl.wake_team()
        borrowers = list(self._borrowers)
        try:
            for place, bound in enumerate(self._entries):
                borrowers += enter(place, bound, feeds[bound.entry.input])
            outputs = {result.name: result.bind(out.get(result.name)) for result in self._results}
            run()
        except RefusedError as error:
            kernels = [step.kernel for step in self._plan.steps if step.spec == error.spec]
            where = ", ".join(kernels) or "the reorder of an input"
            raise RefusedError(f"{where}: {error}", error.status, error.spec) from None
        finally:
            _let_go(borrowers)
        return outputs

    def _parts(self, *, keeps_denormals: bool) -> tuple[dnnl.ExecutionList, list[dnnl.ExecutionList | HostExecution]]:
        """The steps as few calls: what the library computes in a row is one, and what numpy does lies between.

        The first begins with a place for the reorder of each entry, which depends on what the caller gives.
        """
        rows: list[list[dnnl.Execution | None]] = [[None] * len(self._plan.entries)]
        between: list[HostExecution] = []
        for execution in self._executions:
            if isinstance(execution, HostExecution):
                between.append(execution)
                rows.append([])
            else:
                rows[-1].append(execution)
        n_threads = self._plan.n_threads
        first, *others = (dnnl.ExecutionList(row, n_threads, keeps_denormals=keeps_denormals) for row in rows)
        return first, list(chain.from_iterable(zip(between, others, strict=True)))

    def _bind(self, number: int, step: Step, made: dict[int, dnnl.Primitive]) -> dnnl.Execution | HostExecution:
        if isinstance(step.spec, HostSpec):
            arguments = {arg: self._host_memory(operand) for arg, operand in step.operands}
            return HostExecution(host_function(step.spec, self._computes.get(number)), arguments)
        memories = {arg: self._memory(operand) for arg, operand in step.operands}
        if step.scratchpad_nbytes:
            desc = MemoryDesc((step.scratchpad_nbytes,), "u8")
            memories["scratchpad"] = dnnl.Memory(desc, self._scratchpad[: step.scratchpad_nbytes])
        return made[number].bind(memories)

    def _memory(self, operand: Operand) -> dnnl.Memory:
        key = (operand.buffer, operand.desc)
        if key not in self._memories:
            self._memories[key] = dnnl.Memory(operand.desc, self._bytes_of(operand))
        return self._memories[key]

    def _host_memory(self, operand: Operand) -> HostMemory:
        key = (operand.buffer, operand.desc)
        if key not in self._host_memories:
            self._host_memories[key] = HostMemory(operand.desc, self._bytes_of(operand))
        return self._host_memories[key]

    def _bytes_of(self, operand: Operand) -> np.ndarray | None:
        buffer = self._plan.buffers[operand.buffer]
        if buffer.kind == "constant":
            return self._packed[operand.buffer]
        if buffer.kind == "output":
            return None
        return self._arena[buffer.offset : buffer.offset + operand.desc.nbytes]

    def _on(self, buffer: int) -> tuple[dnnl.Memory | HostMemory, ...]:
        primitives = (memory for (place, _), memory in self._memories.items() if place == buffer)
        host = (memory for (place, _), memory in self._host_memories.items() if place == buffer)
        return (*primitives, *host)

    def _copy_of(self, entry: Entry) -> np.ndarray:
        offset = self._plan.buffers[entry.buffer].offset
        return self._arena[offset : offset + entry.desc.nbytes]

    def _enter(self, place: int, bound: _BoundEntry, feed: Feed) -> list[dnnl.Memory]:
        """Let the steps read the caller's own memory where its layout fits, else a reordered copy.

        Returns:
            What else borrows the caller's memory until the run is over.
        """
        reorder = None
        source = feed.buffer
        if not feed.desc.readable_as(bound.entry.desc):
            source = bound.copy
            if has_reorder(feed.desc.dtype):
                reorder = self._entry_reorder(bound, feed.desc)
                reorder.memories["src"].rebind(feed.buffer)
            else:
                copy_elements(feed.desc, feed.buffer, bound.entry.desc, bound.copy)
        for memory in bound.memories:
            memory.rebind(source)
        self._first.put(place, reorder)
        return [reorder.memories["src"]] if reorder else []

    def _enter_timed(self, times: list[int], place: int, bound: _BoundEntry, feed: Feed) -> list[dnnl.Memory]:
        start = time.monotonic_ns()
        borrowed = self._enter(place, bound, feed)
        is_copied = not (borrowed or feed.desc.readable_as(bound.entry.desc))
        times.append(time.monotonic_ns() - start if is_copied else 0)  # the library's own reorders are yet to run
        return borrowed

    def _entry_reorder(self, bound: _BoundEntry, desc: MemoryDesc) -> dnnl.Execution:
        key = (desc, bound.entry.buffer)
        if key not in self._entry_reorders:
            if len(self._entry_reorders) >= MAX_ENTRY_REORDERS:
                del self._entry_reorders[next(iter(self._entry_reorders))]
            primitive = dnnl.Primitive(dnnl.reorder(desc, bound.entry.desc, n_threads=self._plan.n_threads))
            memories = {"src": dnnl.Memory(desc), "dst": dnnl.Memory(bound.entry.desc, bound.copy)}
            self._entry_reorders[key] = primitive.bind(memories)
        return self._entry_reorders[key]


class _BoundEntry(Struct, frozen=True):
    """An entry with the memories that read it, and the place in the arena for a reordered copy."""

    entry: Entry
    memories: tuple[dnnl.Memory | HostMemory, ...]
    copy: np.ndarray


class _BoundResult(Struct, frozen=True, dict=True):
    """An output with the memories that write it."""

    name: str
    desc: MemoryDesc
    shape: tuple[int, ...]
    memories: tuple[dnnl.Memory | HostMemory, ...]
    is_free: bool

    def bind(self, array: np.ndarray | None) -> np.ndarray | Tensor:
        """What the caller gets, which the steps will write: the caller's own array, or a fresh one."""
        if array is None:
            return self._fresh()
        self._rebind(array)
        return array

    def _fresh(self) -> np.ndarray | Tensor:
        """An array in physical order, or a Tensor."""
        if self.desc.inner_blks or self.is_free:
            tensor = Tensor(self.desc, dnnl.aligned_empty(self.desc.nbytes))
            self._rebind(tensor.buffer)
            return tensor
        array = np.empty(self.extents, self._dtype)
        self._rebind(array)
        return array

    def _rebind(self, buffer: np.ndarray) -> None:
        for memory in self.memories:
            memory.rebind(buffer)

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Of the caller's array: from the outermost inwards; none for a scalar, which is rank 1 to the library."""
        return tuple(self.shape[dim] for dim in self.desc.dim_order) if self.shape else ()

    @cached_property
    def _dtype(self) -> np.dtype:
        return to_numpy(self.desc.dtype)


def _primitives(plan: Plan) -> dict[int, dnnl.Primitive]:
    """Those of the steps, by number; the library writes their code in several threads at once.

    Raises:
        RefusedError: The library refuses some; each is found, since each found later takes another plan.
    """
    primitives: dict[int, dnnl.Primitive] = {}
    refusals: dict[int, RefusedError] = {}

    def make(number: int) -> None:
        step = plan.steps[number]
        if isinstance(step.spec, HostSpec):
            return
        try:
            primitives[number] = dnnl.Primitive(step.spec)
        except RefusedError as error:
            refusals[number] = RefusedError(f"{step.kernel}: {error}", error.status, error.spec)

    with side_by_side(make, range(len(plan.steps)), dnnl.callers_at_once(plan.n_threads)):
        pass
    if refusals:
        raise refusals[min(refusals)]
    return primitives


def _let_go(memories: Iterable[dnnl.Memory | HostMemory]) -> None:
    """Drop the references to the caller's arrays."""
    for memory in memories:
        memory.rebind_pointer(0, None)
