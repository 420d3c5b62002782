"""When the buffers of a plan are in use, and which of them share bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.plan.plan import Plan

BEFORE_ALL = -1
"""When entries are filled."""


def lifetimes(plan: Plan) -> dict[int, tuple[int, int]]:
    """First and last step that touch each buffer of the arena; entries are filled before step 0."""
    spans = {entry.buffer: (BEFORE_ALL, BEFORE_ALL) for entry in plan.entries}
    for position, step in enumerate(plan.steps):
        for _, operand in step.operands:
            first, _ = spans.get(operand.buffer, (position, position))
            spans[operand.buffer] = (first, position)
    return {index: span for index, span in spans.items() if plan.buffers[index].kind in ("arena", "entry")}


def overlapping(plan: Plan, spans: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Pairs of buffers that share bytes while both are in use."""
    buffers = plan.buffers
    placed = sorted((index for index in spans if buffers[index].nbytes), key=lambda index: buffers[index].offset)
    for position, first in enumerate(placed):
        end = buffers[first].offset + buffers[first].nbytes
        for second in placed[position + 1 :]:
            if buffers[second].offset >= end:
                break
            if spans[first][0] <= spans[second][1] and spans[second][0] <= spans[first][1]:
                yield first, second
