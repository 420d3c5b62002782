"""A plan's memory: which values each buffer holds, from which step to which, and bytes alive at each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from blocklayout.ir import Fused
from blocklayout.plan.place import ALIGNMENT

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import Plan

BEFORE = -1
"""In place of a step's number: before the first step."""


def lifetimes(plan: Plan) -> dict[int, tuple[int, int]]:
    """First and last step, both included, that touch each buffer or a part of it; ``BEFORE`` for filled inputs."""
    touched = [(entry.buffer, BEFORE) for entry in plan.entries]
    touched += [(operand.buffer, n) for n, step in enumerate(plan.steps) for _, operand in step.operands]
    spans: dict[int, tuple[int, int]] = {}
    for buffer, number in touched:
        at: int | None = buffer
        while at is not None:
            first, last = spans.get(at, (number, number))
            spans[at] = min(first, number), max(last, number)
            at = plan.buffers[at].within
    return spans


def held_values(plan: Plan) -> dict[int, dict[str, MemoryDesc]]:
    """The values that each buffer holds, by and by, with their layouts; views of them come last.

    More than one was written into it where a sum is in place. A value without a name in the model has the buffer's.
    """
    held: dict[int, dict[str, MemoryDesc]] = {index: {} for index in range(len(plan.buffers))}
    for entry in plan.entries:
        held[entry.buffer][entry.input] = entry.desc
    for constant in plan.constants:
        held[constant.buffer][constant.constant] = constant.desc
    results = {choice.kernel: choice.writes for choice in plan.choices}
    last_steps = {step.kernel: number for number, step in enumerate(plan.steps) if not step.is_reorder}
    for number, step in enumerate(plan.steps):
        for argument, operand in step.operands:
            if argument.startswith("dst"):
                is_result = argument == "dst" and last_steps.get(step.kernel) == number
                name = results[step.kernel] if is_result else plan.buffers[operand.buffer].name
                held[operand.buffer].setdefault(name, operand.desc)
    for index, buffer in enumerate(plan.buffers):
        if not held[index] and buffer.name in plan.formats:  # written in parts
            held[index][buffer.name] = plan.formats[buffer.name]
    where = {value: index for index, values in reversed(held.items()) for value in values}
    for choice in plan.choices:
        dst = choice.chosen.dst
        if choice.writes not in where and not isinstance(dst, Fused) and choice.reads and choice.reads[0] in where:
            where[choice.writes] = where[choice.reads[0]]
            held[where[choice.writes]][choice.writes] = dst
    return held


def alive_nbytes(plan: Plan, spans: Mapping[int, tuple[int, int]]) -> list[int]:
    """Bytes of the arena in use before the first step, then at each; buffers bound to the caller's memory count."""
    changes = [0] * (len(plan.steps) + 2)
    for index, (first, last) in spans.items():
        buffer = plan.buffers[index]
        if buffer.kind in ("arena", "entry") and buffer.within is None:
            nbytes = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
            changes[first + 1] += nbytes
            changes[last + 2] -= nbytes
    return list(accumulate(changes[:-1]))
