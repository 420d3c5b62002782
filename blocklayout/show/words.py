"""How a time, a number of bytes, a share and a table are printed, everywhere, and how wide."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from blocklayout.timing import Spread


def us(ns: float) -> str:
    """Nanoseconds in microseconds.

    Example:
        >>> us(1_234_567), us(80)
        ('1,234.6', '0.1')
    """
    return f"{ns / 1000:,.1f}"


def scaled_time(ns: float, *, is_round: bool = False) -> str:
    """A time with its unit: three significant digits, or as few as it takes.

    Example:
        >>> scaled_time(3_104_000), scaled_time(41_230), scaled_time(2_000_000, is_round=True)
        ('3.10 ms', '41.2 µs', '2 ms')
    """
    value, unit = (ns / 1e9, "s") if ns >= 999.5e6 else (ns / 1e6, "ms") if ns >= 999.5e3 else (ns / 1e3, "µs")
    if is_round or value == 0:
        return f"{value:g} {unit}" if value else "0"
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"


def kib(nbytes: int) -> str:
    """Bytes in KiB.

    Example:
        >>> kib(3840), kib(0)
        ('3.8', '0')
    """
    return f"{nbytes / 1024:,.1f}" if 0 < nbytes < 100 * 1024 else f"{nbytes / 1024:,.0f}"


def percent(share: float, sign: str = "") -> str:
    """A share; less than a hundredth to two places.

    Example:
        >>> percent(0.1234), percent(0.0004), percent(0.5, "+")
        ('12.3%', '0.04%', '+50.0%')
    """
    return f"{share:{sign}.{1 if abs(share) >= 0.01 or not share else 2}%}"


def small(value: float) -> str:
    """A difference: two digits, or 0.

    Example:
        >>> small(1.23e-7), small(0.0)
        ('1.2e-07', '0')
    """
    return f"{value:.1e}" if value else "0"


def spread(measured: Spread) -> tuple[str, str]:
    """The middle of ratios or times, and their least and most.

    Example:
        >>> from blocklayout.timing import Spread
        >>> spread(Spread.of([1.0, 1.25, 2.0]))
        ('1.25', '1.00-2.00')
    """
    return f"{measured.median:,.2f}", f"{measured.low:,.2f}-{measured.high:,.2f}"


def counted(n: int, one: str, many: str = "") -> str:
    """A number of things.

    Example:
        >>> counted(1, "thread"), counted(2, "copy", "copies")
        ('1 thread', '2 copies')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


WIDTH = 80
"""Columns of a pipe."""

LEAST_WIDTH = 40
"""However narrow the screen is."""

_GAP = "  "
_LEAST_TEXT = 4
_WORDS, _PARTS = re.compile(r"\s+|\S+"), re.compile(r"[^/.:,]+[/.:,]*|[/.:,]+")


def screen_width() -> int:
    """Columns of the terminal that is written to, or as ``COLUMNS`` has it; 80 where there is neither."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return max(LEAST_WIDTH, int(given))
    return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH if is_terminal() else WIDTH


def is_terminal() -> bool:
    """Whether standard output is a terminal."""
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def wrapped(text: str) -> str:
    r"""Lines that fit the screen: longer ones go on below, further in.

    Example:
        >>> wrapped("  " + "word " * 20).count("\n")
        1
    """
    width = screen_width()
    return "\n".join(line if width_of(line) <= width else _wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    text = line.lstrip()
    margin = " " * (len(line) - len(text))
    return margin + f"\n{margin}{_GAP}".join(_broken([text], max(LEAST_WIDTH // 2, width - len(margin + _GAP))))


def cut(text: str, width: int) -> str:
    """A line that is no wider, with dots in place of what is left out.

    Example:
        >>> cut("conv1, conv2 and conv3", 12)
        'conv1, ...'
    """
    return text if width_of(text) <= width else f"{_broken([text], width - 4)[0]} ..."


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int] = (),
    spare: Sequence[int] = (),
    rule: str = "",
) -> Iterator[str]:
    r"""Lines with columns as wide as their widest cell; where that is too wide for the screen, cells are broken.

    Args:
        header: Names of the columns.
        rows: A cell for each column; it may have several lines.
        numbers: Columns that stand on the right.
        spare: Columns that are left out, the first first, where not all fit.
        rule: Is drawn below the header.

    Example:
        >>> print("\n".join(table(("kernel", "us"), [("conv", "12.5"), ("relu", "3.1")], numbers=(1,))))
        kernel    us
        conv    12.5
        relu     3.1
    """
    every = [[cell.split("\n") for cell in cells] for cells in zip(header, *rows, strict=True)]
    widths = {column: max(width_of(line) for cell in cells for line in cell) for column, cells in enumerate(every)}
    limit = screen_width() + len(_GAP)
    for column in spare:
        if sum(widths.values()) + len(_GAP) * len(widths) > limit:
            del widths[column]
    least = {column: _least_width(every[column], column in numbers) for column in widths}
    while sum(widths.values()) + len(_GAP) * len(widths) > limit:
        broad = [column for column in widths if widths[column] > least[column]]
        if not broad:
            break
        widths[max(broad, key=widths.__getitem__)] -= 1
    broken = [[_broken(cell, width) for cell in every[column]] for column, width in widths.items()]
    for number, cells in enumerate(zip(*broken, strict=True)):
        if number == 1 and rule:
            yield rule * (sum(widths.values()) + len(_GAP) * (len(widths) - 1))
        for line in zip_longest(*cells, fillvalue=""):
            yield _GAP.join(
                " " * (width - width_of(text)) + text if column in numbers else text + " " * (width - width_of(text))
                for text, (column, width) in zip(line, widths.items(), strict=True)
            ).rstrip()


def _least_width(cells: Sequence[Sequence[str]], is_number: bool) -> int:  # noqa: FBT001
    """Columns that a column of a table takes at least: of numbers the longest, with no word above them broken."""
    if not is_number:
        return _LEAST_TEXT
    return max((width_of(word) for cell in cells for line in cell for word in line.split()), default=0)


def _broken(lines: Sequence[str], width: int) -> list[str]:
    """A cell's lines with none that is longer: broken between words, else behind a separator, else anywhere."""
    found = []
    for whole in lines:
        line = ""
        for part in _parts(whole, width):
            if width_of(line + part.rstrip()) > width:
                found.append(line.rstrip())
                line = ""
            line += part if line else part.lstrip()
        found.append(line.rstrip())
    return [line for line in found if line] or [""]


def _parts(text: str, width: int) -> Iterator[str]:
    """Words and the blanks between them; longer ones in parts that end in a separator, or in as much as fits."""
    for word in _WORDS.findall(text):
        for part in [word] if width_of(word) <= width else _PARTS.findall(word):
            rest = part
            while width_of(rest) > width:
                n_fitting = next(n for n in range(width, 0, -1) if width_of(rest[:n]) <= width)
                yield rest[:n_fitting]
                rest = rest[n_fitting:]
            yield rest


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(letter) in "WF") for letter in text)
