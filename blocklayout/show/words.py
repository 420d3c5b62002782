"""How a time, a number of bytes, a share and a table are printed, everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

if TYPE_CHECKING:
    from collections.abc import Container

    from blocklayout.timing import Spread


def us(ns: float) -> str:
    """Nanoseconds in microseconds.

    Example:
        >>> us(1_234_567), us(80)
        ('1,234.6', '0.1')
    """
    return f"{ns / 1000:,.1f}"


def ms(ns: float) -> str:
    """Nanoseconds in milliseconds.

    Example:
        >>> ms(1_234_567)
        '1.235'
    """
    return f"{ns / 1e6:,.3f}"


def scaled_time(ns: float, *, is_round: bool = False) -> str:
    """A time with its unit, as pages and pictures have it: three significant digits, or as few as it takes.

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


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Container[int] = ()) -> Iterator[str]:
    r"""Lines with columns as wide as their widest cell.

    Args:
        header: Names of the columns.
        rows: A cell for each column.
        numbers: Columns that stand on the right.

    Example:
        >>> print("\n".join(table(("kernel", "us"), [("conv", "12.5"), ("relu", "3.1")], numbers=(1,))))
        kernel    us
        conv    12.5
        relu     3.1
    """
    columns = zip(header, *rows, strict=True)
    widths = [max(map(width_of, cells)) for cells in columns]
    for row in (header, *rows):
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - width_of(cell))
            cells.append(gap + cell if column in numbers else cell + gap)
        yield "  ".join(cells).rstrip()


def width_of(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return len(text) if text.isascii() else sum(1 + (east_asian_width(letter) in "WF") for letter in text)
