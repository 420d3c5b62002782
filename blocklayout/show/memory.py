"""A plan's memory: which values each buffer holds, from which step to which, and bytes alive at each."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from blocklayout.ir import Fused
from blocklayout.plan.place import ALIGNMENT

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import Plan

BEFORE = -1
"""In place of a step's number: before the first step."""


def lifetimes(plan: Plan) -> dict[int, tuple[int, int]]:
    """First and last step, both included, that touch each buffer or a part of it; ``BEFORE`` for filled inputs."""
    spans: dict[int, tuple[int, int]] = {}
    for entry in plan.entries:
        _widen(plan, spans, entry.buffer, BEFORE)
    for number, step in enumerate(plan.steps):
        for _, operand in step.operands:
            _widen(plan, spans, operand.buffer, number)
    return spans


def _widen(plan: Plan, spans: dict[int, tuple[int, int]], buffer: int, number: int) -> None:
    at: int | None = buffer
    while at is not None:
        first, last = spans.get(at, (number, number))
        spans[at] = min(first, number), max(last, number)
        at = plan.buffers[at].within


def held_values(plan: Plan) -> dict[int, dict[str, MemoryDesc]]:
    """The values that each buffer holds, by and by, with their layouts; views of them come last.

    More than one was written into it where a sum is in place. What has no name in the model has the buffer's.
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
    _add_views(plan, held)
    return held


def _add_views(plan: Plan, held: dict[int, dict[str, MemoryDesc]]) -> None:
    where = {value: index for index, values in reversed(held.items()) for value in values}
    for choice in plan.choices:
        dst = choice.chosen.dst
        if choice.writes not in where and not isinstance(dst, Fused) and choice.reads and choice.reads[0] in where:
            where[choice.writes] = where[choice.reads[0]]
            held[where[choice.writes]][choice.writes] = dst


def alive_nbytes(plan: Plan, spans: Mapping[int, tuple[int, int]]) -> list[int]:
    """Bytes of the arena in use before the first step, then at each; what is bound to the caller's memory counts."""
    changes = [0] * (len(plan.steps) + 2)
    for index, (first, last) in spans.items():
        buffer = plan.buffers[index]
        if buffer.kind in ("arena", "entry") and buffer.within is None:
            nbytes = -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
            changes[first + 1] += nbytes
            changes[last + 2] -= nbytes
    return list(accumulate(changes[:-1]))


def memory_record(plan: Plan, spans: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    """Sums that a page shows; ``elements`` are bytes without padding, in the type of what is packed."""
    packed = [each.desc for each in plan.constants]
    return {
        "alive_nbytes": alive_nbytes(plan, spans),
        "results_nbytes": sum(buffer.nbytes for buffer in plan.buffers if buffer.kind == "output"),
        "weights_nbytes": sum(desc.nbytes for desc in packed),
        "weights_elements_nbytes": sum(desc.n_elements * desc.itemsize for desc in packed),
    }
