"""Place buffers in one arena so that those alive together never share bytes."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

ALIGNMENT = 64
"""Bytes; a cache line, and what oneDNN's kernels like best."""


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


def place_buffers(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> Placement:
    """Offsets for buffers, the largest first, each at the lowest place that is free while it lives.

    Args:
        sizes: Bytes of each buffer.
        lifetimes: First and last step, both included, that touch it.
    """
    rounded = {buffer: _round_up(sizes[buffer]) for buffer in lifetimes}
    offsets: dict[int, int] = {}
    for buffer in sorted(lifetimes, key=lambda b: (-rounded[b], lifetimes[b], b)):
        taken = sorted(
            (offsets[other], offsets[other] + rounded[other])
            for other in offsets
            if _overlap(lifetimes[other], lifetimes[buffer])
        )
        offsets[buffer] = _first_gap(taken, rounded[buffer])
    total = max((offsets[b] + rounded[b] for b in offsets), default=0)
    return Placement(offsets, total, _lower_bound(rounded, lifetimes))


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _first_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    end = 0
    for start, stop in taken:
        if start - end >= nbytes:
            return end
        end = max(end, stop)
    return end


def _lower_bound(sizes: Mapping[int, int], lifetimes: Mapping[int, tuple[int, int]]) -> int:
    changes: dict[int, int] = {}
    for buffer, (first, last) in lifetimes.items():
        changes[first] = changes.get(first, 0) + sizes[buffer]
        changes[last + 1] = changes.get(last + 1, 0) - sizes[buffer]
    alive = peak = 0
    for step in sorted(changes):
        alive += changes[step]
        peak = max(peak, alive)
    return peak
