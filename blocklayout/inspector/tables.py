"""Tables on a terminal, or in a file as wide as they are."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

UNBOUNDED = 1000
"""Width in columns where no terminal sets one."""


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", text_columns: Iterable[int] = (0,)
) -> None:
    """Print a table on standard output.

    Args:
        header: Names of the columns.
        rows: A cell for each column.
        title: Above the table.
        text_columns: Numbers of the columns that hold text, which stands on the left; numbers stand on the right.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    left = set(text_columns)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(header):
        table.add_column(Text(name), justify="left" if number in left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(width=None if sys.stdout.isatty() else UNBOUNDED)
    if title:
        console.print(Text(title, style="bold"))
    console.print(table)


def kib(nbytes: int) -> str:
    """Bytes in KiB.

    Example:
        >>> kib(3840), kib(0)
        ('3.8', '0')
    """
    return f"{nbytes / 1024:,.1f}" if 0 < nbytes < 100 * 1024 else f"{nbytes / 1024:,.0f}"


def small(value: float) -> str:
    """A difference: two digits, or 0.

    Example:
        >>> small(1.23e-7), small(0.0)
        ('1.2e-07', '0')
    """
    return f"{value:.1e}" if value else "0"
