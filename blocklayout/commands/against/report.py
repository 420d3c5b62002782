"""Report of a contest: a table for people, a dictionary for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.commands.output import say
from blocklayout.inspector.tables import print_table, small

if TYPE_CHECKING:
    from blocklayout.commands.against.results import Outcome, Result

_MB = 1e6

_Row = Sequence[tuple[str, str]]
"""Cells with their column."""


def best_peer_ratio(results: Sequence[Result]) -> float | None:
    """The time of the fastest other runtime over ours: above 1 we are faster. ``None`` where there is no other."""
    return min((result.ratio.median for result in results if result.is_peer), default=None)


def print_outcome(title: str, outcome: Outcome) -> None:
    """A line for each runtime, and below why some have no times."""
    is_batch = any(result.image_ms != result.time_ms for result in outcome.results)
    cells = [_cells(result, is_batch=is_batch) for result in outcome.results]
    header = [column for column, _ in cells[0]]
    rows = [[cell for _, cell in row] for row in cells]
    rows += [[failure.name, failure.version, *["-"] * (len(header) - 2)] for failure in outcome.failures]
    print_table(header, rows, title=title, text_columns=(0, 1))
    for failure in outcome.failures:
        say(failure.reason)


def _cells(result: Result, *, is_batch: bool) -> _Row:
    image = [("ms/image", f"{result.image_ms.median:.2f}")] if is_batch else []
    return (
        ("runtime", result.name),
        ("version", result.version),
        ("ms", f"{result.time_ms.median:.2f}"),
        ("least-most", f"{result.time_ms.low:.2f}-{result.time_ms.high:.2f}"),
        *image,
        ("time over ours", f"{result.ratio.median:.3f}"),
        ("least-most", f"{result.ratio.low:.3f}-{result.ratio.high:.3f}"),
        ("first s", f"{result.first_s:.2f}"),
        ("MB", f"{result.resident_nbytes / _MB:.0f}"),
        ("peak MB", f"{result.peak_nbytes / _MB:.0f}"),
        ("differs", small(result.difference)),
    )
