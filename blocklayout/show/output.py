"""Output of commands: lines and tables for people, JSON for machines, and a progress line."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocklayout.show.words import table, width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Tell = Callable[[str], None]


_MAX_NAME_NBYTES = 100


def say(text: str) -> None:
    """Print lines."""
    sys.stdout.write(f"{text}\n")


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    say(json_text(value))


def file_name(model: str, suffix: str) -> str:
    """The name of a file for a model of any name: in this folder, not hidden, and not too long.

    Example:
        >>> file_name("../etc/passwd", ".html"), file_name("Größe 2", ".html"), file_name("..", ".html")
        ('etc-passwd.html', 'Größe-2.html', 'model.html')
    """
    safe = re.sub(r"[^\w.-]+", "-", model).encode()[:_MAX_NAME_NBYTES].decode(errors="ignore")
    return (safe.strip(".-") or "model") + suffix


def say_page(path: Path) -> None:
    """Print that a page was written."""
    say(f"{path}, {path.stat().st_size / 1e6:.2g} MB: open it in a browser")


def json_text(value: Any) -> str:
    """A value as JSON that any reader takes: numbers that are not finite become null.

    Example:
        >>> json_text({"shape": (1, 3), "mean": float("nan")})
        '{"shape": [1, 3], "mean": null}'
    """
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", text_columns: Iterable[int] = (0,)
) -> None:
    """Print a table; text, in the columns of these numbers, stands on the left, numbers stand on the right."""
    lines = [*table(header, [*rows], numbers={*range(len(header))} - {*text_columns})]
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "-"
    lines.insert(1, rule * (1 + max(map(width_of, lines))))
    say("\n".join([title, *lines] if title else lines))


@contextlib.contextmanager
def shown_progress(first: str, *, is_quiet: bool = False) -> Iterator[Tell]:
    """A line with the present stage, at first ``first``; nothing where standard error is no terminal."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(first, refresh_per_second=4) as status:  # drawing disturbs measurements
        yield status.update
