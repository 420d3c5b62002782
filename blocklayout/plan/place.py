"""Where buffers lie in one arena: those alive together apart, slices within their wholes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from blocklayout.plan.assemble import Assembly
    from blocklayout.plan.plan import Buffer, Entry, Step

    Lifetimes = Mapping[int, tuple[int, int]]
    """First and last step, both included, that touch each buffer."""

ALIGNMENT = 64
"""Bytes; a cache line, which oneDNN's kernels like best."""

BEFORE = -1
"""In place of a step's number: before the first step."""


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
    slices = assembly.slices
    buffers = [
        replace(buffer, within=slices[index][0]) if index in slices else buffer
        for index, buffer in enumerate(assembly.buffers)
    ]
    spans = arena_lifetimes(lifetimes(assembly.entries, assembly.steps, buffers), buffers)
    placement = place_buffers({index: buffers[index].nbytes for index in spans}, spans)
    for index, buffer in enumerate(buffers):
        root, before = _root_of(assembly, index)
        buffers[index] = replace(buffer, offset=placement.offsets.get(root, 0) + before)
    return buffers, placement


def _root_of(assembly: Assembly, index: int) -> tuple[int, int]:
    """The buffer that a buffer is a part of and that is no part itself, and the bytes before it there."""
    before = 0
    while index in assembly.slices:
        index, nbytes = assembly.slices[index]
        before += nbytes
    return index, before


def lifetimes(entries: Sequence[Entry], steps: Sequence[Step], buffers: Sequence[Buffer]) -> Lifetimes:
    """First and last step that touch each buffer or a part of it; ``BEFORE`` for inputs that are filled."""
    touched = [(entry.buffer, BEFORE) for entry in entries]
    touched += [(operand.buffer, number) for number, step in enumerate(steps) for _, operand in step.operands]
    spans: dict[int, tuple[int, int]] = {}
    for buffer, number in touched:
        at: int | None = buffer
        while at is not None:
            first, last = spans.get(at, (number, number))
            spans[at] = min(first, number), max(last, number)
            at = buffers[at].within
    return spans


def arena_lifetimes(spans: Lifetimes, buffers: Sequence[Buffer]) -> Lifetimes:
    """Those of buffers with a place in the arena, also where the caller's memory is bound; parts of others left out."""
    of_arena = ("arena", "entry")
    return {at: span for at, span in spans.items() if buffers[at].kind in of_arena and buffers[at].within is None}


def alive_nbytes(sizes: Mapping[int, int], spans: Lifetimes, n_steps: int) -> list[int]:
    """Bytes of the arena in use before the first step, then at each."""
    changes = [0] * (n_steps + 2)
    for buffer, (first, last) in spans.items():
        changes[first + 1] += _rounded(sizes[buffer])
        changes[last + 2] -= _rounded(sizes[buffer])
    return list(accumulate(changes[:-1]))


def place_buffers(sizes: Mapping[int, int], spans: Lifetimes) -> Placement:
    """Offsets for buffers, the largest first, each at the lowest place that is free from its first to its last step."""
    rounded = {buffer: _rounded(sizes[buffer]) for buffer in spans}
    n_steps = 1 + max((last for _, last in spans.values()), default=BEFORE)
    alive: list[list[int]] = [[] for _ in range(n_steps + 1)]  # of those placed, at each step
    begun: list[list[int]] = [[] for _ in range(n_steps + 1)]
    offsets: dict[int, int] = {}
    for buffer in sorted(spans, key=lambda b: (-rounded[b], spans[b], b)):
        first, last = (step - BEFORE for step in spans[buffer])
        others = chain(alive[first], *begun[first + 1 : last + 1])
        offsets[buffer] = _first_gap(sorted((offsets[b], offsets[b] + rounded[b]) for b in others), rounded[buffer])
        begun[first].append(buffer)
        for step in range(first, last + 1):
            alive[step].append(buffer)
    total = max((offsets[b] + rounded[b] for b in offsets), default=0)
    return Placement(offsets, total, max(alive_nbytes(sizes, spans, n_steps)))


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _first_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    end = 0
    for start, stop in taken:
        if start - end >= nbytes:
            return end
        end = max(end, stop)
    return end
