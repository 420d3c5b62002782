"""Where buffers lie in one arena: those alive together apart, slices within their wholes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from blocklayout.plan.assemble import Assembly
    from blocklayout.plan.plan import Buffer

ALIGNMENT = 64
"""Bytes; a cache line, which oneDNN's kernels like best."""


class Placement(Struct, frozen=True):
    """Where buffers lie.

    Attributes:
        offsets: Of each buffer, in bytes from the arena's start.
        nbytes: Size of the arena.
        lower_bound: The largest number of bytes alive at once; no placement is smaller.
    """

    offsets: Mapping[int, int]
    nbytes: int
    lower_bound: int


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


def place_buffers(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> Placement:
    """Offsets for buffers, the largest first, each at the lowest place that is free from its first to its last step."""
    rounded = {buffer: -(-sizes[buffer] // ALIGNMENT) * ALIGNMENT for buffer in lifetimes}
    offsets: dict[int, int] = {}
    for buffer in sorted(lifetimes, key=lambda b: (-rounded[b], lifetimes[b], b)):
        first, last = lifetimes[buffer]
        taken = sorted(
            (offsets[other], offsets[other] + rounded[other])
            for other in offsets
            if lifetimes[other][0] <= last and first <= lifetimes[other][1]
        )
        offsets[buffer] = _first_gap(taken, rounded[buffer])
    total = max((offsets[b] + rounded[b] for b in offsets), default=0)
    return Placement(offsets, total, _lower_bound(rounded, lifetimes))


def _first_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    end = 0
    for start, stop in taken:
        if start - end >= nbytes:
            return end
        end = max(end, stop)
    return end


def _lower_bound(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> int:
    changes: dict[int, int] = defaultdict(int)
    for buffer, (first, last) in lifetimes.items():
        changes[first] += sizes[buffer]
        changes[last + 1] -= sizes[buffer]
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)
