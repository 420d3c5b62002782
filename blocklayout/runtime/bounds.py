"""Plans from files that nobody can make again: what they reach must be theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from blocklayout.errors import PlanError

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Buffer, Plan

MAX_ARENA_NBYTES = 1 << 40


def check_bounds(plan: Plan, packed: Mapping[int, int]) -> None:
    """Refuse a plan with a step that would reach beyond its buffers.

    Whether its steps compute what somebody meant cannot be told without the model.

    Args:
        plan: Every field is of its type.
        packed: Bytes of each packed constant, by buffer.

    Raises:
        PlanError: The message names the field.
    """
    for name, nbytes in (("arena_nbytes", plan.arena_nbytes), ("scratchpad_nbytes", plan.scratchpad_nbytes)):
        if not 0 <= nbytes <= MAX_ARENA_NBYTES:
            raise PlanError(f"{name} is {nbytes}")
    for number, buffer in enumerate(plan.buffers):
        room = packed.get(number, -1) if buffer.kind == "constant" else _room(plan, buffer)
        if not 0 <= buffer.nbytes <= room:
            raise PlanError(f"buffers.{number} ({buffer.name}) has {buffer.nbytes} bytes; there is room for {room}")
    for number, step in enumerate(plan.steps):
        if not 0 <= step.scratchpad_nbytes <= plan.scratchpad_nbytes:
            raise PlanError(f"steps.{number}.scratchpad_nbytes is {step.scratchpad_nbytes}")
    for where, buffer_number, desc in _uses(plan):
        if not 0 <= buffer_number < len(plan.buffers):
            raise PlanError(f"{where}.buffer is {buffer_number}; there are {len(plan.buffers)}")
        reach = (desc.placement.last_address() + 1) * desc.itemsize
        if not reach <= desc.nbytes <= plan.buffers[buffer_number].nbytes:
            raise PlanError(f"{where} takes {desc.nbytes} bytes; its buffer has {plan.buffers[buffer_number].nbytes}")


def _uses(plan: Plan) -> Iterator[tuple[str, int, MemoryDesc]]:
    """Where a buffer is named, which, and as what."""
    for number, step in enumerate(plan.steps):
        yield from ((f"steps.{number}.{arg}", operand.buffer, operand.desc) for arg, operand in step.operands)
    for entry in plan.entries:
        yield f"entries.{entry.input}", entry.buffer, entry.desc
    for result in plan.results:
        if result.buffer is not None and result.desc is not None:
            yield f"results.{result.name}", result.buffer, result.desc


def _room(plan: Plan, buffer: Buffer) -> int:
    """Bytes from where a buffer begins."""
    if buffer.kind == "output":
        return buffer.nbytes
    return plan.arena_nbytes - buffer.offset if buffer.offset >= 0 else -1
