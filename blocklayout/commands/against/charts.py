"""Contests as charts and tables of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from blocklayout.commands.against.runtimes import OURS
from blocklayout.show.bench_page import Chart, Row, Table
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from blocklayout.commands.against.contest import Outcome, Result

_MB = 1e6


def contest_charts(outcomes: Mapping[str, Outcome]) -> list[Chart]:
    """Ratios, times, first results and memory of every runtime.

    Args:
        outcomes: By the name of the group: of the network, or ``""`` where there is one contest.
    """

    def rows(value: Callable[[Result], Spread]) -> list[Row]:
        return [Row(each.name, value(each), group) for group, outcome in outcomes.items() for each in outcome.results]

    is_batch = any(each.image_ms.median != each.time_ms.median for one in outcomes.values() for each in one.results)
    return [
        Chart(f"Time over that of {OURS} in the same round", "", rows(lambda each: each.ratio), baseline=OURS),
        Chart("Time of a run", "ms", rows(lambda each: each.time_ms)),
        *([Chart("Time of an image", "ms", rows(lambda each: each.image_ms))] if is_batch else []),
        Chart("First result in a fresh process", "s", rows(lambda each: Spread.of([each.first_s]))),
        Chart("Memory after the first run", "MB", rows(lambda each: Spread.of([each.resident_nbytes / _MB]))),
        Chart("Most memory until then", "MB", rows(lambda each: Spread.of([each.peak_nbytes / _MB]))),
    ]


def contest_table(outcomes: Mapping[str, Outcome]) -> Table:
    """Versions, and how far results lie apart."""
    rows: list[tuple[str, str, str, float | None]] = [
        (group, each.name, each.version, each.difference)
        for group, outcome in outcomes.items()
        for each in outcome.results
    ]
    rows += [(group, each.name, each.version, None) for group, one in outcomes.items() for each in one.failures]
    return Table(
        f"Versions, and the largest difference from {OURS}'s outputs over their largest value",
        ("network", "runtime", "version", "differs by"),
        rows,
    )
