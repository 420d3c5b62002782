"""What a contest gave: a table for people, a dictionary for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.inspector.tables import print_table, small

if TYPE_CHECKING:
    from blocklayout.commands.against.contest import Result

_HEADER = (
    "runtime",
    "version",
    "ms",
    "least-most",
    "time over ours",
    "least-most",
    "first s",
    "MB",
    "peak MB",
    "differs",
)
_MB = 1e6


def best_peer_ratio(results: Sequence[Result]) -> float | None:
    """The time of the fastest other runtime over ours: above 1 we are faster. ``None`` where there is no other."""
    return min((result.ratio.median for result in results[1:]), default=None)


def print_results(title: str, results: Sequence[Result]) -> None:
    """A line for each runtime."""
    rows = [
        (
            result.name,
            result.version,
            f"{result.time_ms.median:.2f}",
            f"{result.time_ms.low:.2f}-{result.time_ms.high:.2f}",
            f"{result.ratio.median:.3f}",
            f"{result.ratio.low:.3f}-{result.ratio.high:.3f}",
            f"{result.first_s:.2f}",
            f"{result.resident_nbytes / _MB:.0f}",
            f"{result.peak_nbytes / _MB:.0f}",
            small(result.difference),
        )
        for result in results
    ]
    print_table(_HEADER, rows, title=title, text_columns=(0, 1))
