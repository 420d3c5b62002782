"""Prove that a plan computes a program: follow which value every buffer holds from step to step.

Nothing a plan's text says is believed: each step is matched with what the operators of the program make of it for the
layouts it names, and each operand with the value its buffer holds by then. What remains free is what a plan decides:
layouts, implementations, which kernels run as one primitive, and where buffers lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder
from blocklayout.errors import PlanError
from blocklayout.kernels import HostSpec, copy_spec
from blocklayout.plan.binding import Binding, check_size
from blocklayout.plan.fuse import Group, fuse, internal_dtype
from blocklayout.plan.holdings import Holdings
from blocklayout.plan.network import declared_desc
from blocklayout.plan.policies import POLICIES
from blocklayout.plan.retracing import Retrace, Way, settles

if TYPE_CHECKING:
    from blocklayout.kernels import Kernel, Program, Value
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import PackedConstant, Plan, Step


@dataclass(frozen=True)
class _Run:
    """Steps in a row that compute one group."""

    first: int
    steps: tuple[Step, ...]


def prove(plan: Plan, program: Program) -> None:
    """Refuse a plan that computes something else than a program.

    Args:
        plan: Consistent in itself, as :func:`~blocklayout.plan.checking.check_plan` finds.
        program: What it has to compute.

    Raises:
        PlanError: The message names the field.
    """
    proof = _Proof(plan, program)
    proof.check_borders()
    for run in _runs(plan):
        if run.steps[0].nodes:
            proof.follow_group(run)
        else:
            proof.follow_reorder(f"steps.{run.first}", run.steps[0])
    proof.check_results()
    proof.check_formats()


def _runs(plan: Plan) -> Iterator[_Run]:
    position = 0
    for (_, nodes), found in groupby(plan.steps, key=lambda step: (step.kernel, step.nodes)):
        steps = tuple(found)
        chunks = [steps] if nodes else [(step,) for step in steps]
        for chunk in chunks:
            yield _Run(position, chunk)
            position += len(chunk)


class _Proof:
    """What is known so far of a plan that is being followed."""

    def __init__(self, plan: Plan, program: Program) -> None:
        self._plan = plan
        self._program = program
        self._kernels = {kernel.name: kernel for kernel in program.kernels}
        self._groups = {group.name: group for group in fuse(program, plan.dtype, plan.n_threads)}
        self._values = _values_of(program)
        self._holdings = Holdings(program)
        self._packed: dict[int, PackedConstant] = {item.buffer: item for item in plan.constants}
        self._produced: dict[str, MemoryDesc] = dict(plan.inputs)

    def check_borders(self) -> None:
        """Inputs, entries and constants are those of the program."""
        borders = dict(self._plan.io_layout)
        wanted = [(value.name, declared_desc(value, borders.get(value.name))) for value in self._program.inputs]
        if wanted != list(self._plan.inputs):
            raise PlanError(f"inputs are {_list(self._plan.inputs)}; the model's are {_list(wanted)}")
        for number, entry in enumerate(self._plan.entries):
            if not self._is_held_as(self._values[entry.input], entry.desc):
                raise PlanError(f"entries.{number}.desc is {entry.desc}, which is no way to hold {entry.input}")
            self._holdings.put(entry.buffer, entry.input, entry.desc)
        arrays = {constant.name: constant.array for k in self._kernels_in_full() for _, constant in k.constants}
        for number, packed in enumerate(self._plan.constants):
            field = f"constants.{number}"
            if packed.constant not in arrays:
                raise PlanError(f"{field}.constant: the model has no constant {packed.constant!r}")
            dims = arrays[packed.constant].shape or (1,)
            if packed.desc.dims != dims:
                raise PlanError(f"{field}.desc is {packed.desc}; the model's {packed.constant!r} has extents {dims}")

    def follow_reorder(self, field: str, step: Step) -> None:
        """A step that only moves a value."""
        operands = dict(step.operands)
        if set(operands) != {"src", "dst"}:
            raise PlanError(f"{field}.nodes: a step of no node moves src to dst; this has {', '.join(operands)}")
        src, dst = operands["src"], operands["dst"]
        asked: dnnl.Spec | HostSpec = copy_spec(src.desc, dst.desc)
        if has_reorder(src.desc.dtype):
            asked = dnnl.reorder(src.desc, dst.desc, n_threads=self._plan.n_threads)
        if not settles(asked, step.spec):
            raise PlanError(f"{field}.spec: a step of no node moves one tensor, as it is; this is {step.spec}")
        held = self._holdings.values_in(src.buffer, src.desc)
        moved = [name for name in held if self._is_held_as(self._values[name], dst.desc)]
        if not moved:
            raise PlanError(f"{field}.operands.src: {src.buffer} holds nothing as {src.desc} to keep as {dst.desc}")
        if src.buffer == dst.buffer:
            raise PlanError(f"{field}.operands.dst.buffer is {dst.buffer}, which the step also reads")
        check_size(f"{field}.operands.dst", self._plan.buffers, dst.buffer, dst.desc)
        self._holdings.clear(dst.buffer)
        for name in moved:
            self._holdings.put(dst.buffer, name, dst.desc)

    def follow_group(self, run: _Run) -> None:
        """Steps that compute what nodes of the model do."""
        refusal: PlanError | None = None
        for group in self._groups_named(run.steps[0]):
            for way in self._retrace(group, run).ways():
                try:
                    places = self._binding(group, way, run).places()
                except PlanError as error:
                    refusal = refusal or error
                    continue
                self._hold_results(group, way, places)
                return
        raise refusal or self._refusal(run)

    def check_results(self) -> None:
        """Every output of the model comes out, as it is declared."""
        borders = dict(self._plan.io_layout)
        wanted = [value.name for value in self._program.outputs]
        if [result.name for result in self._plan.results] != wanted:
            raise PlanError(f"results are not the model's outputs {', '.join(wanted)}")
        for number, (result, value) in enumerate(zip(self._plan.results, self._program.outputs, strict=True)):
            field = f"results.{number}"
            if value.is_constant or result.buffer is None or result.desc is None:
                if not (value.is_constant and result.buffer is None):
                    raise PlanError(f"{field}.buffer is {result.buffer}; only a constant output has none")
                continue
            desc = declared_desc(value, borders.get(value.name))
            if result.desc != desc or result.shape != value.shape:
                raise PlanError(f"{field} is {result.desc}, {result.shape}; the model declares {desc}, {value.shape}")
            if not self._holdings.holds(result.buffer, value.name, desc):
                raise PlanError(f"{field}.buffer: in the end {result.buffer} does not hold {value.name} as {desc}")

    def check_formats(self) -> None:
        """What the plan tells its reader is what was found."""
        for number, (name, desc) in enumerate(self._plan.formats):
            value = self._values.get(name)
            if value is None or desc.dims != value.dims:
                raise PlanError(f"formats.{number}: the model has no value {name!r} of extents {desc.dims}")
            if self._produced.get(name, desc) != desc:
                raise PlanError(f"formats.{number}: {name} is computed as {self._produced[name]}, not {desc}")

    def _kernels_in_full(self) -> Iterator[Kernel]:
        """With the plain ones that kernels have become."""
        plain = {step.kernel for step in self._plan.steps if step.is_plain}
        for kernel in self._program.kernels:
            yield kernel
            if kernel.name in plain and kernel.as_plain is not None:
                yield kernel.as_plain()

    def _groups_named(self, step: Step) -> Iterator[Group]:
        """The groups that compute a step's nodes: with some of the followers, alone, or by the reference."""
        kernel = self._kernels.get(step.kernel)
        if kernel is None:
            return
        fused = self._groups.get(step.kernel, Group(kernel))
        plain = [Group(kernel.as_plain())] if step.is_plain and kernel.as_plain is not None else []
        prefixes = (Group(kernel, fused.followers[:n]) for n in range(len(fused.followers), -1, -1))
        yield from (group for group in (*plain, *prefixes) if group.nodes == step.nodes)

    def _retrace(self, group: Group, run: _Run) -> Retrace:
        read = {operand.buffer for step in run.steps for _, operand in step.operands}
        arriving = [desc for buffer in sorted(read) for desc in self._holdings.descs_in(buffer)]
        tags = () if self._plan.policy in POLICIES else (self._plan.policy,)
        specs = [step.spec for step in run.steps]
        return Retrace(group, specs, self._plan.dtype, self._plan.n_threads, arriving, tags)

    def _binding(self, group: Group, way: Way, run: _Run) -> Binding:
        return Binding(group, way, run.first, run.steps, self._plan.buffers, self._packed, self._holdings)

    def _hold_results(self, group: Group, way: Way, places: dict[str, int]) -> None:
        """What is written is held; what was there before is not, nor is what only lay between the steps."""
        for name, buffer in places.items():
            if name == way.overwritten or not (name in group.sources or name in group.constants):
                self._holdings.clear(buffer)
        for arg, value in group.dsts.items():
            self._holdings.put(places[arg], value.name, way.descs[arg])
            self._produced[value.name] = way.descs[arg]

    def _refusal(self, run: _Run) -> PlanError:
        step = run.steps[0]
        if not any(True for _ in self._groups_named(step)):
            return PlanError(f"steps.{run.first}.kernel: no kernel {step.kernel!r} computes {', '.join(step.nodes)}")
        fields = ", ".join(f"steps.{number}.spec" for number in range(run.first, run.first + len(run.steps)))
        specs = "; ".join(str(each.spec) for each in run.steps)
        return PlanError(f"{fields}: the model's {step.kernel} is not computed by {specs}")

    def _is_held_as(self, value: Value, desc: MemoryDesc) -> bool:
        """Whether nothing of a value is lost in a layout: it has the declared data type, or that of computing."""
        allowed = (value.dtype, internal_dtype(value.dtype, self._plan.dtype))
        return desc.dims == value.dims and desc.dtype in allowed


def _values_of(program: Program) -> dict[str, Value]:
    found = {value.name: value for value in (*program.inputs, *program.outputs)}
    for kernel in program.kernels:
        found |= {value.name: value for value in (kernel.dst, *dict(kernel.others).values())}
    return found


def _list(inputs: Sequence[tuple[str, MemoryDesc]]) -> str:
    return ", ".join(f"{name} {desc}" for name, desc in inputs) or "none"
