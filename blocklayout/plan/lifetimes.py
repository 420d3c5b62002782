"""Where the buffers of assembled steps lie: those alive together apart, slices within what they are part of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from blocklayout.plan.place import Placement, place_buffers

if TYPE_CHECKING:
    from blocklayout.plan.assemble import Assembly
    from blocklayout.plan.plan import Buffer


def place_all(assembly: Assembly) -> tuple[list[Buffer], Placement]:
    """The buffers with their offsets in the arena, and how large that is."""
    roots = {index: _root_of(assembly, index) for index in range(len(assembly.buffers))}
    lifetimes: dict[int, tuple[int, int]] = {}
    for index, (first, last) in _lifetimes(assembly).items():
        root = roots[index][0]
        other_first, other_last = lifetimes.get(root, (first, last))
        lifetimes[root] = min(first, other_first), max(last, other_last)
    placement = place_buffers({index: assembly.buffers[index].nbytes for index in lifetimes}, lifetimes)
    placed = []
    for index, buffer in enumerate(assembly.buffers):
        root, nbytes = roots[index]
        within = assembly.slices[index][0] if index in assembly.slices else None
        placed.append(replace(buffer, offset=placement.offsets.get(root, 0) + nbytes, within=within))
    return placed, placement


def _root_of(assembly: Assembly, index: int) -> tuple[int, int]:
    """The buffer that a buffer is a part of and that is no part itself, and the bytes before it there."""
    before = 0
    while index in assembly.slices:
        index, nbytes = assembly.slices[index]
        before += nbytes
    return index, before


def _lifetimes(assembly: Assembly) -> dict[int, tuple[int, int]]:
    """First and last step that touch each buffer of the arena; entries are filled before step 0."""
    lifetimes: dict[int, tuple[int, int]] = {entry.buffer: (-1, -1) for entry in assembly.entries}
    for position, step in enumerate(assembly.steps):
        for _, operand in step.operands:
            first, _ = lifetimes.get(operand.buffer, (position, position))
            lifetimes[operand.buffer] = (first, position)
    return {index: span for index, span in lifetimes.items() if assembly.buffers[index].kind in ("arena", "entry")}
