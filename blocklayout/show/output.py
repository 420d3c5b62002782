"""Output of commands: lines and tables for people, JSON for machines, and a progress line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocklayout.show.words import is_terminal, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    Tell = Callable[[str], None]


_MAX_NAME_NBYTES = 100

_kept: ContextVar[list[str] | None] = ContextVar("kept", default=None)


@contextlib.contextmanager
def kept_output() -> Iterator[list[str]]:
    """Texts that the block would print, in a list in place of the screen."""
    texts: list[str] = []
    token = _kept.set(texts)
    try:
        yield texts
    finally:
        _kept.reset(token)


def say(text: str) -> None:
    """Print lines, none wider than the screen but for words that are."""
    put(f"{wrapped(text)}\n")


def put(text: str) -> None:
    """Print a text as it is, but for letters that the terminal cannot show."""
    if (kept := _kept.get()) is not None:
        kept.append(text)
        return
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError as error:
        known = text.replace("\N{MICRO SIGN}s", "us").encode(error.encoding, "replace").decode(error.encoding)
        sys.stdout.write(known)


def say_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    put(f"{json_text(value)}\n")


def painted(text: str, code: int) -> str:
    """A text in bold (1) or a colour (31 to 36) of a terminal; as it is in a pipe, and where ``NO_COLOR`` is set.

    Source: no-color.org; "ANSI escape code", ECMA-48, 8.3.117.
    """
    is_plain = not is_terminal() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain else f"\N{ESCAPE}[{code}m{text}\N{ESCAPE}[0m"


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
    put(f"{path}, {path.stat().st_size / 1e6:.2g} MB: open it in a browser\n")


def json_text(value: Any) -> str:
    """A value as JSON that any reader takes: numbers that are not finite become null.

    Example:
        >>> json_text({"shape": (1, 3), "mean": float("nan")})
        '{"shape": [1, 3], "mean": null}'
    """
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    text_columns: Iterable[int] = (0,),
    spare: Sequence[int] = (),
) -> None:
    """Print a table; text, in the columns of these numbers, stands on the left, numbers stand on the right.

    Columns of ``spare`` are left out, the first first, where the screen is too narrow for all.
    """
    numbers = [column for column in range(len(header)) if column not in {*text_columns}]
    rule = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "-"
    put("\n".join([*filter(None, [title]), *table(header, [*rows], numbers, spare, rule), ""]))


@contextlib.contextmanager
def shown_progress(first: str, *, is_quiet: bool = False) -> Iterator[Tell]:
    """A line with the present stage, at first ``first``; nothing where standard error is no terminal."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(first, refresh_per_second=4) as status:  # drawing disturbs measurements
        yield status.update
