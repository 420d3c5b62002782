"""Copies between boxes of dense tensors, as reorders of parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from blocklayout.layout import MemoryDesc
from blocklayout.ops._mixed_radix import Digit


class Line(Struct, frozen=True):
    """One digit of a tensor that is put inside a larger one, or cut.

    Attributes:
        src: Its extent in the source.
        dst: And in the destination.
        begin: Where the first one kept lies in the destination.
        skipped: How many of the source come before that.
        n_kept: How many are kept.
    """

    src: int
    dst: int
    begin: int = 0
    skipped: int = 0
    n_kept: int = 0

    @property
    def end(self) -> int:
        """Behind the last one kept, in the destination."""
        return self.begin + self.n_kept

    @property
    def is_whole(self) -> bool:
        """Whether nothing is added or cut off."""
        return self.n_kept == self.src == self.dst


class Copy(Struct, frozen=True):
    """Along one line, elements to be filled and where they come from.

    Attributes:
        line: Index of the line.
        begin: Where they lie in the destination.
        n: How many.
        source: Where the first one lies in the destination; ``None``: they are a constant.
        repeats: Whether all come from there.
    """

    line: int
    begin: int
    n: int
    source: int | None = None
    repeats: bool = False


def lines(src: Sequence[Digit], dst: Sequence[Digit], padded: dict[int, tuple[int, int]]) -> list[Line] | None:
    """The change of each digit; neighbours of which nothing is added or cut off are one line.

    Args:
        src: The source's digits, outermost first.
        dst: The destination's.
        padded: By dimension, how many steps of its outer digit are added before and behind; negative to cut.
    """
    if [digit.dim for digit in src] != [digit.dim for digit in dst]:
        return None
    found: list[Line] = []
    seen: set[int] = set()
    for given, made in zip(src, dst, strict=True):
        before, behind = (0, 0) if given.dim in seen else padded.get(given.dim, (0, 0))
        seen.add(given.dim)
        line = _line(given.extent, made.extent, before, behind)
        if found and line.is_whole and found[-1].is_whole:
            merged = found.pop().src * line.src
            line = Line(merged, merged, n_kept=merged)
        found.append(line)
    return found


def _line(src: int, dst: int, before: int, behind: int) -> Line:
    skipped = max(-before, 0)
    return Line(src, dst, max(before, 0), skipped, src - skipped - max(-behind, 0))


def interior(of: Sequence[Line], dtype: str) -> tuple[MemoryDesc, MemoryDesc]:
    """The elements that are kept, in the source and in the destination."""
    box = tuple(line.n_kept for line in of)
    src = MemoryDesc((line.src for line in of), dtype).submemory(box, (line.skipped for line in of))
    dst = MemoryDesc((line.dst for line in of), dtype).submemory(box, (line.begin for line in of))
    return src, dst


def borders(of: Sequence[Line], copies: Sequence[Copy], dtype: str) -> Iterator[tuple[Copy, MemoryDesc, MemoryDesc]]:
    """For each copy where it reads, in the destination or in one constant element, and where it writes.

    The innermost lines first, so that an outer one finds whole rows to copy.
    """
    whole = MemoryDesc((line.dst for line in of), dtype)
    for copy in sorted(copies, key=lambda each: -each.line):
        box = [line.n_kept if index < copy.line else line.dst for index, line in enumerate(of)]
        place = [line.begin if index < copy.line else 0 for index, line in enumerate(of)]
        box[copy.line] = copy.n
        place[copy.line] = copy.begin
        target = whole.submemory(box, place)
        if copy.source is None:
            yield copy, MemoryDesc(box, dtype, strides=(0,) * len(box)), target
            continue
        place[copy.line] = copy.source
        source = whole.submemory(
            [1 if copy.repeats and index == copy.line else n for index, n in enumerate(box)], place
        )
        strides = tuple(0 if copy.repeats and index == copy.line else s for index, s in enumerate(source.strides))
        yield copy, MemoryDesc(box, dtype, strides=strides, offset=source.offset0), target
