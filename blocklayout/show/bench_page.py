"""The page of a benchmark: how its measurements are distributed, on which machine, and by which command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins

from blocklayout.show.page import Page, html_page
from blocklayout.timing import Spread

if TYPE_CHECKING:
    import argparse

Cell = str | int | float | None


class Row(Struct, frozen=True):
    """Measurements of one contender; rows of a ``group``, such as a network, stand together."""

    name: str
    spread: Spread
    group: str = ""

    @classmethod
    def of(cls, name: str, measured: Spread | Mapping[str, Any] | Iterable[float], group: str = "") -> Row:
        """A row of a spread, of its record as JSON has it, or of values.

        Example:
            >>> Row.of("plain", {"median": 2, "low": 1, "high": 4}).spread.high
            4.0
        """
        if isinstance(measured, Mapping):
            measured = convert(measured, Spread)
        return cls(name, measured if isinstance(measured, Spread) else Spread.of(measured), group)

    def to_dict(self) -> dict[str, Any]:
        """For the page; ``quartiles`` are ``null`` where there are fewer than four values."""
        numbers = {name: getattr(self.spread, name) for name in ("median", "low", "high", "quartiles", "values")}
        return {"name": self.name, "group": self.group, **numbers}


class Chart(Struct, frozen=True):
    """Contenders on one axis, those of a group one after the other.

    Attributes:
        unit: Of the values, such as ``ms``; empty for ratios.
        baseline: Whom ratios are to, round by round; empty where values are no ratios. A line is drawn at 1 then.
        better: ``less`` or ``more``; empty where neither is.
    """

    title: str
    unit: str
    rows: Sequence[Row]
    baseline: str = ""
    better: str = "less"


class Table(Struct, frozen=True):
    """A table beside the charts: versions, agreement of results, and the like."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]


class BenchPage(Page, frozen=True):
    """A benchmark as a page.

    Attributes:
        command: The command line that measured it.
        environment: Machine, versions, threads and date, as ``describe_environment`` has them, and more.
        charts: Of the measurements; charts without rows are left out.
        notes: Sentences below, such as whether results agree.
    """

    title: str
    command: str
    environment: Mapping[str, Any]
    charts: Sequence[Chart]
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Every number on the page, as values that JSON can hold."""
        charts = [
            to_builtins(chart) | {"rows": [row.to_dict() for row in chart.rows]} for chart in self.charts if chart.rows
        ]
        tables = to_builtins([table for table in self.tables if table.rows])
        record: dict[str, Any] = to_builtins(self)
        return record | {"charts": charts, "tables": tables}

    def to_html(self) -> str:
        return html_page("bench", self.title, self.to_dict())


def add_html(parser: argparse.ArgumentParser) -> None:
    """``--html``."""
    parser.add_argument("--html", metavar="FILE", help="page to write: how times are spread, in charts and tables")
