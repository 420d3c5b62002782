"""Workspace: arena, scratchpad and primitives of one plan, with an executable for each set of input layouts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InputError, RefusedError
from blocklayout.forking import renew_in_children
from blocklayout.ir import HostSpec, mover
from blocklayout.layout import MemoryDesc
from blocklayout.plan.plan import FREE, Operand
from blocklayout.resource_limits import check_nbytes, check_time, in_force, is_timeless
from blocklayout.runtime.host import HostExecution, HostMemory, copy_elements, host_function
from blocklayout.show.names import primitive_name
from blocklayout.side_by_side import side_by_side
from blocklayout.tensor import Tensor
from blocklayout.value_checks import prove

if TYPE_CHECKING:
    from blocklayout.ir import Compute
    from blocklayout.plan import Entry, KernelChoice, Plan
    from blocklayout.value_checks import CheckMode

    Memory: TypeAlias = dnnl.Memory | HostMemory
    Step: TypeAlias = dnnl.Execution | HostExecution
    Descs = Mapping[str, MemoryDesc]

_Kind = TypeVar("_Kind", dnnl.Memory, HostMemory)

MAX_EXECUTABLES = 32
"""Sets of layouts of callers' arrays for which an executable is kept; the oldest makes room."""


class ReadyPlan(Struct, frozen=True, eq=False):
    """A plan with everything it needs to run.

    Attributes:
        packed: Bytes of its packed constants, by buffer.
        constants: Outputs that are known without running, by name.
        computes: Functions that compute the plan's nodes that no primitive does, by the number of their step.
        contents: The inputs whose values it was made for, by name; nothing enters by them.
        keeps_denormals: Whether they are computed with as they are, however long that takes.
    """

    plan: Plan
    packed: Mapping[int, np.ndarray]
    constants: Mapping[str, np.ndarray]
    computes: Mapping[int, Compute] = field(default_factory=dict)
    contents: Mapping[str, np.ndarray] = field(default_factory=dict)
    keeps_denormals: bool = False


class Room:
    """Arena and scratchpad, for one run at a time: of a workspace, or of all those that a stream has for a range."""

    def __init__(self) -> None:
        """Begin without any memory."""
        self.arena = dnnl.aligned_empty(0)
        self.scratchpad = dnnl.aligned_empty(0)
        renew_in_children(self)

    def renew(self) -> None:
        """Be free, as in a child that was forked while a thread was running."""
        self.lock = threading.Lock()

    def hold(self, arena_nbytes: int, scratchpad_nbytes: int) -> None:
        """Have at least so many bytes; memories bound to fewer keep those."""
        with self.lock:
            if self.arena.nbytes < arena_nbytes:
                self.arena = dnnl.aligned_empty(arena_nbytes)
            if self.scratchpad.nbytes < scratchpad_nbytes:
                self.scratchpad = dnnl.aligned_empty(scratchpad_nbytes)


class Workspace:
    """Memory and primitives of one plan, for one run at a time.

    Executables share all of it: arena, scratchpad, primitives, packed weights and the memories put to them. One more
    set of layouts takes a reorder of each input that is not read as it comes, and its readers bound anew.

    ``results`` are the outputs that steps compute, in the plan's order.
    """

    def __init__(self, ready: ReadyPlan, *, room: Room | None = None, has_tensors: bool = False) -> None:
        """Create the plan's primitives, and bind them for inputs as the plan declares them.

        Args:
            ready: The plan.
            room: Memory that other workspaces use as well, each in turn; one of its own if ``None``.
            has_tensors: Whether every output is a Tensor, not only those in blocks or in a format that the plan chose.
        """
        plan = ready.plan
        self._ready, self._plan = ready, plan
        self._primitives = _primitives(plan)
        # A layout of one element has many names: made by another than the plan asked with, a primitive may need more.
        needed = max((each.scratchpad_nbytes for each in self._primitives.values()), default=0)
        self.room = room or Room()
        self.room.hold(plan.arena_nbytes, needed)
        self.arena, self.scratchpad = self.room.arena, self.room.scratchpad
        self._memories: dict[tuple[int, MemoryDesc, bool, type], Any] = {}
        self._steps: dict[tuple[int, frozenset[int]], Step] = {}
        self._entry_reorders: WeakValueDictionary[tuple[MemoryDesc, int], dnnl.Execution] = WeakValueDictionary()
        self._executables: dict[tuple[object, ...], dnnl.Executable] = {}
        self._fed: WeakKeyDictionary[dnnl.Executable, Descs] = WeakKeyDictionary()
        self._proven: set[CheckMode] = set()  # of the constants, which do not change
        free = {name for name, border in plan.config.io_layout if border == FREE}
        self.results = tuple(
            Output(
                result.name,
                result.desc,
                result.buffer,
                tuple(result.shape[dim] for dim in result.desc.dim_order) if result.shape else (),
                to_numpy(result.desc.dtype),
                has_tensors or bool(result.desc.inner_blks) or result.name in free,
            )
            for result in plan.results
            if result.desc is not None and result.buffer is not None
        )
        self._arrays = tuple(result for result in self.results if not result.is_tensor)
        self._tensors = tuple(result for result in self.results if result.is_tensor)
        if not any(entry.is_reorder for entry in plan.entries):  # a reorder is made for callers who need it
            self.executable(dict(plan.inputs))

    def executable(self, descs: Descs, held: frozenset[str] = frozenset()) -> dnnl.Executable:
        """The steps bound for inputs of these descriptors; it takes a buffer for each of them, in their order.

        ``held`` are the outputs that are Tensors of the caller's, and no fresh ones.
        """
        key = (held, *descs.items())
        if self.room.lock.locked():
            self._refuse_own_run()
        with self.room.lock:
            found = self._executables.pop(key, None) or self._made(descs, held)
            while len(self._executables) >= MAX_EXECUTABLES:
                del self._executables[next(iter(self._executables))]
            self._executables[key] = found
        return found

    def caller(
        self, executable: dnnl.Executable, names: Sequence[str]
    ) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None:
        """Runs every step once on buffers while its caller holds the lock of ``room``; returns fresh arrays, as named.

        Nothing is checked. ``None`` where a run is more than one call into C, or returns anything else.
        """
        if [each.name for each in self._arrays] != [*names]:
            return None
        return executable.caller([(each.extents, each.dtype) for each in self._arrays])

    def run(
        self,
        executable: dnnl.Executable,
        buffers: Sequence[np.ndarray],
        out: Mapping[str, Any] | None = None,
        times: list[int] | None = None,
        check: CheckMode | None = None,
        stop: dnnl.Stop | None = None,
    ) -> dict[str, np.ndarray | Tensor]:
        """Run every step once, when other callers' runs are over.

        The lock comes before the team: a caller who waits for it has no workers yet, and one who lets go of it has none
        any more, so that the callers of one workspace never have more than one team.

        Args:
            executable: One of this workspace.
            buffers: A buffer for each input.
            out: Arrays to write outputs to, by name: of their extents and types, row by row without holes. Tensors in
                the plan's formats for those that the executable was made to hold.
            times: Gets the nanoseconds of each entry's reorder (0 if it took none), then of each step.
            check: Mode of the proof of inputs, constants and each step's results; its ``CheckError`` ends the run.
            stop: Looked at before each step.

        Returns:
            These, else fresh arrays or Tensors, by output; outputs that no step computes are left out.
        """
        results: dict[str, np.ndarray | Tensor] = {}
        tensors = self._tensors
        if self._arrays or out:
            buffers = [*buffers]
            for result in self._arrays:
                array = out.get(result.name) if out else None
                if array is None:
                    array = np.empty(result.extents, result.dtype)
                buffers.append(array.buffer if isinstance(array, Tensor) else array)
                results[result.name] = array
            held = [result for result in tensors if out and result.name in out]
            buffers += [out[result.name].buffer for result in held if out]
            results |= {result.name: out[result.name] for result in held if out}
            tensors = tuple(result for result in tensors if result.name not in results)
        if self.room.lock.locked():
            self._refuse_own_run()
        try:
            with self.room.lock:
                after = (
                    self._proving(executable, buffers, check) if check else self._limiting() if in_force.get() else None
                )
                fresh = executable.run(buffers, times, after, stop)
        except RefusedError as error:
            raise self._named(error) from None
        for place, result in enumerate(tensors):
            results[result.name] = Tensor.over(result.desc, fresh[place])
        return results

    def _refuse_own_run(self) -> None:
        """Some thread has the lock: where it is the calling one, it would wait for itself."""
        frame = sys._getframe(1).f_back  # noqa: SLF001 - whose run it is costs nothing unless somebody has to wait
        while frame is not None:
            if frame.f_code is Workspace.run.__code__ and frame.f_locals["self"].room is self.room:
                raise InputError(
                    "the session is called by an operator in a run of its own; load the model a second time for that"
                )
            frame = frame.f_back

    def _proving(
        self, executable: dnnl.Executable, buffers: Sequence[np.ndarray], check: CheckMode
    ) -> Callable[[int, Step], None]:
        """Proves inputs and constants now; returns the proof of what a step has finished, to be called after it."""
        plan, packed = self._plan, self._ready.packed
        for (name, desc), buffer in zip(self._fed[executable].items(), buffers, strict=False):  # outputs' arrays follow
            prove(f"{plan.model}: input", name, desc, buffer, check)
        for each in plan.constants if check not in self._proven else ():
            what = f"{plan.model}: {each.kernel} reads the constant"
            prove(what, each.constant, each.desc, packed[each.buffer], check)
        self._proven.add(check)
        choices = {choice.kernel: choice for choice in plan.rationale.choices}

        def after(number: int, execution: Any) -> None:
            check_time(f"{plan.model}, after step {number}")
            place = number - len(plan.entries)
            if place < 0:
                entry, copy = plan.entries[number], execution.memories["dst"].buffer
                prove(f"{plan.model}: the reorder of input", entry.input, entry.desc, copy, check)
                return
            step = plan.steps[place]
            is_clearing = step.spec.kind == "zero_padding"  # the end of a kernel
            does = choices[step.kernel].operator if is_clearing else primitive_name(step)
            for arg, value, operand in _finished(plan, place, choices):
                is_arena = plan.buffers[operand.buffer].kind == "arena"
                own = execution.memories[arg].buffer
                buffer = self._bytes_of(operand.buffer, operand.desc) if is_arena else own
                what = f"step {place} of {plan.model}, {step.kernel} ({does}):"
                prove(what, value, operand.desc, buffer, check, place)

        return after

    def _limiting(self) -> Callable[[int, Step], None] | None:
        """Refuses a run of more memory than is allowed; returns the check of time after a step, if that is limited."""
        plan = self._plan
        held = (self.arena, self.scratchpad, *self._ready.packed.values())
        nbytes = sum(each.nbytes for each in held) + sum(result.desc.nbytes for result in self.results)
        check_nbytes(nbytes, f"a run of {plan.model}, its constants included,")
        return None if is_timeless() else lambda number, _: check_time(f"{plan.model}, after step {number}")

    def _named(self, error: RefusedError) -> RefusedError:
        """The error with the kernel that it comes from."""
        kernels = [step.kernel for step in self._plan.steps if step.spec == error.spec]
        return RefusedError(f"{', '.join(kernels) or 'the reorder of an input'}: {error}", error.status, error.spec)

    def _made(self, descs: Descs, held: frozenset[str]) -> dnnl.Executable:
        plan = self._plan
        copied = {entry.buffer for entry in plan.entries if not descs[entry.input].readable_as(entry.desc)}
        given: dict[str, list[Memory]] = {name: [] for name in descs}
        bound = [self._bound(number, copied) for number in range(len(plan.steps))]
        steps: list[Step | None] = []
        for entry in plan.entries:
            reorder = self._entering(entry, descs[entry.input]) if entry.buffer in copied else None
            steps.append(reorder)
            given[entry.input] += [reorder.memories["src"]] if reorder else self._unbound(entry.buffer)
        given_buffers = [each.buffer for each in self._arrays]
        given_buffers += [each.buffer for each in self._tensors if each.name in held]
        made = dnnl.Executable(
            [*steps, *bound],
            plan.config.n_threads,
            given=[*given.values(), *map(self._unbound, given_buffers)],
            fresh=[(each.desc.nbytes, self._unbound(each.buffer)) for each in self._tensors if each.name not in held],
            keeps_denormals=self._ready.keeps_denormals,
        )
        self._fed[made] = descs
        return made

    def _entering(self, entry: Entry, desc: MemoryDesc) -> Step:
        """The reorder of an input into the arena, by numpy where the library has none."""
        copy = self._bytes_of(entry.buffer, entry.desc)
        key = desc, entry.buffer
        reorder = self._entry_reorders.get(key)
        if reorder is None:
            spec, _ = mover(desc, entry.desc, self._plan.config.n_threads)
            if isinstance(spec, HostSpec):
                memories = {"src": HostMemory(desc), "dst": HostMemory(entry.desc, copy)}
                return HostExecution(copy_elements, memories, f"the copy of {entry.input}")
            reorder = dnnl.Primitive(spec).bind({"src": dnnl.Memory(desc), "dst": dnnl.Memory(entry.desc, copy)})
            self._entry_reorders[key] = reorder
        return reorder

    def _bound(self, number: int, copied: set[int]) -> Step:
        """A step, where it reads these entries' copies in the arena instead of callers' memory."""
        step = self._plan.steps[number]
        key = number, frozenset(operand.buffer for _, operand in step.operands if operand.buffer in copied)
        if key not in self._steps:
            memory = partial(self._memory, copied=copied)
            if isinstance(step.spec, HostSpec):
                host = {arg: memory(HostMemory, operand) for arg, operand in step.operands}
                function = host_function(step.spec, self._ready.computes.get(number))
                self._steps[key] = HostExecution(function, host, step.kernel)
            else:
                memories = {arg: memory(dnnl.Memory, operand) for arg, operand in step.operands}
                primitive = self._primitives[step.spec]
                if nbytes := primitive.scratchpad_nbytes:
                    memories["scratchpad"] = dnnl.Memory(MemoryDesc((nbytes,), "u8"), self.scratchpad[:nbytes])
                self._steps[key] = primitive.bind(memories)
        return self._steps[key]

    def _memory(self, kind: type[_Kind], operand: Operand, copied: set[int]) -> _Kind:
        buffer, desc = operand.buffer, operand.desc
        key = buffer, desc, buffer in copied, kind
        if key not in self._memories:
            is_callers = self._plan.buffers[buffer].kind in ("entry", "output") and buffer not in copied
            self._memories[key] = kind(desc, None if is_callers else self._bytes_of(buffer, desc))
        made: _Kind = self._memories[key]
        return made

    def _bytes_of(self, buffer: int, desc: MemoryDesc) -> np.ndarray:
        if self._plan.buffers[buffer].kind == "constant":
            return self._ready.packed[buffer]
        offset = self._plan.buffers[buffer].offset
        return self.arena[offset : offset + desc.nbytes]

    def _unbound(self, buffer: int) -> list[Memory]:
        """The memories that are put to a caller's buffer for each run."""
        return [memory for (place, _, is_copy, _), memory in self._memories.items() if place == buffer and not is_copy]


def _finished(plan: Plan, number: int, choices: Mapping[str, KernelChoice]) -> Iterator[tuple[str, str, Operand]]:
    """The values that are whole after a step: the argument that it writes them by, their names and operands.

    A kernel of several steps finishes its results with the last: before, padding may hold anything.
    """
    step = plan.steps[number]
    if step.is_reorder:
        yield "dst", plan.buffers[step.dst.buffer].name, step.dst
        return
    if any(other.kernel == step.kernel and not other.is_reorder for other in plan.steps[number + 1 : number + 2]):
        return
    for arg, operand in step.operands:
        name = choices[step.kernel].writes if arg == step.written[0] else plan.buffers[operand.buffer].name
        if arg in step.written and name in plan.formats:
            buffer = operand.buffer
            while plan.buffers[buffer].name != name and (whole := plan.buffers[buffer].within) is not None:
                buffer = whole  # a step that wrote the last slice of a result
            yield arg, name, Operand(buffer, plan.formats[name])


class Output(Struct, frozen=True):
    """An output that steps compute; a scalar has no extents, and is rank 1 to the library."""

    name: str
    desc: MemoryDesc
    buffer: int
    extents: tuple[int, ...]
    dtype: np.dtype
    is_tensor: bool


def _primitives(plan: Plan) -> dict[dnnl.Spec, dnnl.Primitive]:
    """Those of the steps, one for each Spec; the library writes their code in several threads at once.

    Of those that it refuses each is found before the error: one that is found later takes another plan.
    """
    steps: dict[dnnl.Spec, str] = {}
    for step in plan.steps:
        if not isinstance(step.spec, HostSpec):
            steps.setdefault(step.spec, step.kernel)
    primitives: dict[dnnl.Spec, dnnl.Primitive] = {}
    refusals: dict[dnnl.Spec, RefusedError] = {}

    def make(spec: dnnl.Spec) -> None:
        try:
            primitives[spec] = dnnl.primitive_of(spec)
        except RefusedError as error:
            refusals[spec] = RefusedError(f"{steps[spec]}: {error}", error.status, error.spec)

    apart = partial(dnnl.run_apart, n_threads=1)  # one thread for all of them, where none is refused
    with side_by_side(make, steps, dnnl.callers_at_once(plan.config.n_threads), apart):
        pass
    for spec in steps:
        if spec in refusals:
            raise refusals[spec]
    return primitives
