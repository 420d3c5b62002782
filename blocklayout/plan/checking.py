"""What must hold of any plan before memory is put to it, whatever model it is of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dnnl.arguments import results
from blocklayout.dnnl.spec import MAX_THREADS
from blocklayout.errors import PlanError
from blocklayout.kernels import HostSpec
from blocklayout.layout import MemoryDesc
from blocklayout.plan.machine import Machine
from blocklayout.plan.place import ALIGNMENT
from blocklayout.plan.policies import POLICIES, Policy
from blocklayout.plan.spans import lifetimes, overlapping

if TYPE_CHECKING:
    from blocklayout.plan.plan import BufferKind, Operand, Plan, Step

DTYPES = ("f32", "bf16")
IN_ARENA = ("arena", "entry")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that could read or write what is not its own, or what nobody wrote before.

    Raises:
        PlanError: The message names the field, the rule, and what would be right.
    """
    _check_words(plan)
    _check_numbers(plan)
    _check_buffers(plan)
    _check_borders(plan)
    for number, step in enumerate(plan.steps):
        _check_step(plan, f"steps.{number}", step)
    _check_order(plan)
    _check_use(plan)
    check_overlap(plan)


def written_args(step: Step) -> tuple[str, ...]:
    """The arguments that executing a step writes."""
    if isinstance(step.spec, HostSpec):
        return tuple(arg for arg, _ in step.spec.descs if arg.startswith("dst"))
    return results(step.spec)


def read_args(step: Step) -> tuple[str, ...]:
    """The arguments that executing a step reads; its result too, where it adds to that or completes it."""
    updates = step.spec.kind == "zero_padding" or any(isinstance(op, dnnl.Sum) for op in step.spec.attr.post_ops)
    written = () if updates else written_args(step)
    return tuple(arg for arg, _ in step.operands if arg not in written)


def check_overlap(plan: Plan) -> None:
    """Refuse buffers that share bytes of the arena while both are in use.

    Raises:
        PlanError: The message names both.
    """
    found = next(overlapping(plan, lifetimes(plan)), None)
    if found is not None:
        first, second = (f"buffers.{index} ({plan.buffers[index].name})" for index in found)
        raise PlanError(f"{first} and {second} share bytes of the arena while both are in use")


def _check_words(plan: Plan) -> None:
    _require(plan.dtype in DTYPES, f"dtype is {plan.dtype!r}; it is one of {', '.join(DTYPES)}")
    if plan.policy not in POLICIES:
        Policy.parse(plan.policy, Machine(plan.isa, 1))


def _check_numbers(plan: Plan) -> None:
    costs = [(f"entries.{number}.cost_ns", entry.cost_ns) for number, entry in enumerate(plan.entries)]
    costs += [(f"steps.{number}.cost_ns", step.cost_ns) for number, step in enumerate(plan.steps)]
    costs += [(f"policy_costs.{number}", cost) for number, (_, cost) in enumerate(plan.policy_costs)]
    for field, cost in costs:
        _require(math.isfinite(cost) and cost >= 0, f"{field} is {cost}; a cost is a finite number of at least 0")
    _require(1 <= plan.n_threads <= MAX_THREADS, f"n_threads is {plan.n_threads}; it is 1 to {MAX_THREADS}")
    largest = max((step.scratchpad_nbytes for step in plan.steps), default=0)
    told = f"scratchpad_nbytes is {plan.scratchpad_nbytes}; the steps need {largest}"
    _require(plan.scratchpad_nbytes == largest, told)
    within = f"arena_lower_bound is {plan.arena_lower_bound}; it lies between 0 and arena_nbytes"
    _require(0 <= plan.arena_lower_bound <= plan.arena_nbytes, within)


def _check_buffers(plan: Plan) -> None:
    room = sum(-(-max(buffer.nbytes, 0) // ALIGNMENT) * ALIGNMENT for buffer in plan.buffers)
    _require(
        0 <= plan.arena_nbytes <= room, f"arena_nbytes is {plan.arena_nbytes}; all buffers together take {room} bytes"
    )
    for number, buffer in enumerate(plan.buffers):
        field = f"buffers.{number}"
        _require(buffer.nbytes >= 0, f"{field}.nbytes is {buffer.nbytes}; a size is 0 or more")
        end = plan.arena_nbytes - buffer.nbytes if buffer.kind in IN_ARENA else 0
        is_used = buffer.nbytes > 0 or buffer.offset != 0
        is_inside = 0 <= buffer.offset <= end and buffer.offset % ALIGNMENT == 0
        _require(
            is_inside or not is_used or (buffer.kind not in IN_ARENA and buffer.offset == 0),
            f"{field}.offset is {buffer.offset}; it is a multiple of {ALIGNMENT} from 0 to {max(end, 0)}, such that "
            f"{buffer.nbytes} bytes lie within the arena of {plan.arena_nbytes}",
        )


def _check_borders(plan: Plan) -> None:
    inputs = dict(plan.inputs)
    for number, entry in enumerate(plan.entries):
        field = f"entries.{number}"
        _check_place(plan, f"{field}.buffer", entry.buffer, entry.desc, "entry")
        _require(inputs.get(entry.input) == entry.source, f"{field}.source is not what inputs says of {entry.input!r}")
        _require(entry.desc.dims == entry.source.dims, f"{field}.desc has other extents than its source")
    for number, result in enumerate(plan.results):
        field = f"results.{number}"
        _require((result.buffer is None) == (result.desc is None), f"{field}: buffer and desc are null together")
        if result.buffer is not None and result.desc is not None:
            _check_place(plan, f"{field}.buffer", result.buffer, result.desc, "output")
            _require(result.desc.dims == (result.shape or (1,)), f"{field}.shape has other extents than its desc")
            _require(_is_packed(result.desc), f"{field}.desc: {result.desc} leaves holes, and an array has none")
    for number, packed in enumerate(plan.constants):
        _check_place(plan, f"constants.{number}.buffer", packed.buffer, packed.desc, "constant")
    _check_owners(plan, "entry", [(f"entries.{n}", entry.buffer) for n, entry in enumerate(plan.entries)])
    _check_owners(plan, "output", [(f"results.{n}", result.buffer) for n, result in enumerate(plan.results)])
    _check_owners(plan, "constant", [(f"constants.{n}", packed.buffer) for n, packed in enumerate(plan.constants)])


def _is_packed(desc: MemoryDesc) -> bool:
    return desc.is_dense and desc.offset0 == 0


def _check_place(plan: Plan, field: str, buffer: int, desc: MemoryDesc, kind: BufferKind) -> None:
    """Refuse what has no buffer of its kind, exactly as large as it is."""
    _check_index(plan, field, buffer)
    found = plan.buffers[buffer]
    _require(found.kind == kind, f"{field}: buffer {buffer} is of kind {found.kind}; this is one of kind {kind}")
    told = f"{field}: buffer {buffer} has {found.nbytes} bytes, and {desc} takes {desc.nbytes}"
    _require(found.nbytes == desc.nbytes, told)


def _check_owners(plan: Plan, kind: BufferKind, owned: Iterable[tuple[str, int | None]]) -> None:
    """Each buffer of a kind that the arena does not fill belongs to exactly one entry, result or constant."""
    owners: dict[int, str] = {}
    for field, buffer in owned:
        if buffer is None:
            continue
        _require(buffer not in owners, f"{field}.buffer is {buffer}, which is that of {owners.get(buffer)}")
        owners[buffer] = field
    for index, buffer_ in enumerate(plan.buffers):
        _require(buffer_.kind != kind or index in owners, f"buffers.{index} of kind {kind} belongs to nothing")


def _check_index(plan: Plan, field: str, buffer: int) -> None:
    n_buffers = len(plan.buffers)
    _require(0 <= buffer < n_buffers, f"{field} is {buffer}; there are buffers 0 to {n_buffers - 1}")


def _check_step(plan: Plan, field: str, step: Step) -> None:
    _require(step.scratchpad_nbytes >= 0, f"{field}.scratchpad_nbytes is {step.scratchpad_nbytes}; it is 0 or more")
    descs = dict(step.spec.descs)
    if isinstance(step.spec, dnnl.Spec) and not step.spec.is_resolved:
        raise PlanError(f"{field}.spec: {step.spec} leaves its implementation or a layout open")
    args = [arg for arg, _ in step.operands]
    _require(
        sorted(args) == sorted(arg for arg, _ in step.spec.descs) and len(set(args)) == len(args),
        f"{field}.operands are {', '.join(args) or 'none'}; the primitive's are {', '.join(descs)}",
    )
    written = written_args(step)
    for arg, operand in step.operands:
        _check_operand(plan, f"{field}.operands.{arg}", operand, step.spec.memory_desc(arg), is_written=arg in written)


def _check_operand(plan: Plan, field: str, operand: Operand, wanted: MemoryDesc, *, is_written: bool) -> None:
    _check_index(plan, f"{field}.buffer", operand.buffer)
    buffer = plan.buffers[operand.buffer]
    _require(operand.desc == wanted, f"{field}.desc is {operand.desc}; the step's spec says {wanted}")
    _require(
        operand.desc.nbytes <= buffer.nbytes,
        f"{field}: {operand.desc} takes {operand.desc.nbytes} bytes; buffer {operand.buffer} has {buffer.nbytes}",
    )
    told = f"{field}: buffer {operand.buffer} is of kind {buffer.kind}, which no step writes"
    _require(not is_written or buffer.kind in ("arena", "output"), told)


def _check_order(plan: Plan) -> None:
    """Refuse steps and results that read what is not there yet."""
    filled = {entry.buffer for entry in plan.entries} | {packed.buffer for packed in plan.constants}
    for number, step in enumerate(plan.steps):
        operands = dict(step.operands)
        for arg in read_args(step):
            operand = operands[arg]
            is_there = operand.buffer in filled or not operand.desc.n_elements
            told = f"steps.{number}.operands.{arg}: buffer {operand.buffer} is read before anything is written to it"
            _require(is_there, told)
        filled |= {operands[arg].buffer for arg in written_args(step)}
    for field, buffer in _computed_results(plan):
        _require(buffer in filled, f"{field}.buffer is {buffer}, which no step writes")


def _computed_results(plan: Plan) -> Iterator[tuple[str, int]]:
    for number, result in enumerate(plan.results):
        if result.buffer is not None and result.desc is not None and result.desc.n_elements:
            yield f"results.{number}", result.buffer


def _check_use(plan: Plan) -> None:
    """Refuse entries and constants that no step reads: nothing tells how large they have to be.

    What comes as the caller has it is no larger than that; a plan has such an entry for a view nobody looks through.
    """
    used = {operand.buffer for step in plan.steps for _, operand in step.operands}
    kept = {entry.buffer for entry in plan.entries if not entry.is_reorder}
    owned = [(f"entries.{number}", entry.buffer, entry.desc) for number, entry in enumerate(plan.entries)]
    owned += [(f"constants.{number}", packed.buffer, packed.desc) for number, packed in enumerate(plan.constants)]
    for field, buffer, desc in owned:
        _require(desc.is_dense, f"{field}.desc: {desc} leaves holes")
        _require(buffer in used | kept, f"{field}.buffer: no step reads {buffer}")


def _require(holds: bool, told: str) -> None:  # noqa: FBT001 - it reads as an assertion
    if not holds:
        raise PlanError(told)
