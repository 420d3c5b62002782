"""Files that benchmarks write and read again: what was measured as JSON, pages about it, and pictures of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocklayout.commands.environment import command_text
from blocklayout.show.bench_page import BenchPage, add_html
from blocklayout.show.output import json_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from blocklayout.show.bench_page import Chart, Table

Record = dict[str, Any]


def add_files(parser: argparse.ArgumentParser, picture: str = "", *, has_page: bool = True) -> None:
    """``--json``, ``--measured``, and ``--html`` and ``--picture`` of those that have them.

    Args:
        parser: Of a benchmark.
        picture: What is drawn; empty where there is no picture.
        has_page: Whether there is a page.
    """
    parser.add_argument("--json", metavar="FILE", help="file to write what was measured to")
    if has_page:
        add_html(parser)
    if picture:
        parser.add_argument("--picture", metavar="FILE", help=f"SVG to draw {picture} in")
    parser.add_argument(
        "--measured", nargs="+", metavar="JSON", help="show what these files of --json hold, measuring nothing"
    )


def read_measured(args: argparse.Namespace, key: str = "") -> Record | None:
    """What ``--measured`` names as one record, the first; ``None`` where it is not given.

    Args:
        args: What was parsed.
        key: Of a list, in which those of the others follow.
    """
    if not args.measured:
        return None
    records: list[Record] = [json.loads(Path(path).read_text(encoding="utf-8")) for path in args.measured]
    return records[0] | ({key: [item for record in records for item in record[key]]} if key else {})


def write_json(path: str | None, value: Any) -> None:
    """Write a value as one line of JSON to a file, if one is named."""
    if path:
        Path(path).write_text(json_text(value) + "\n", encoding="utf-8")


def keep(args: argparse.Namespace, record: Record) -> Record:
    """The record with the command that measured it, written to ``--json`` so far as it is."""
    whole = record if args.measured else record | {"command": command_text()}
    write_json(args.json, whole)
    return whole


def machine_text(environment: Mapping[str, Any]) -> str:
    """The machine and its threads, in short."""
    return f"{environment['cpu']}, {environment['isa']}, {environment['n_threads']} threads"


def write_page(
    args: argparse.Namespace,
    record: Record,
    title: str,
    charts: Sequence[Chart],
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
) -> None:
    """Write the page, if one is asked for."""
    if not args.html:
        return
    counts = {name: record[name] for name in ("n_rounds", "rounds", "n_runs", "dtype") if name in record}
    environment = record.get("environment", {}) | counts
    BenchPage(title, record.get("command", ""), environment, charts, tables, notes).save(args.html)


def write_picture(args: argparse.Namespace, draw: Callable[[], Any]) -> None:
    """Draw the picture, if one is asked for."""
    if args.picture:
        from bench.drawing import save

        save(draw(), args.picture)
