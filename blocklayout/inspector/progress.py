"""Progress line on standard error, if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tell = Callable[[str], None]


@contextlib.contextmanager
def shown_progress(first: str, *, is_quiet: bool = False) -> Iterator[Tell]:
    """A line with the present stage; nothing where standard error is no terminal.

    Args:
        first: What is done first.
        is_quiet: Whether to show nothing.
    """
    if is_quiet or not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console

    with Console(stderr=True).status(first, refresh_per_second=4) as status:  # drawing takes time from what is timed
        yield status.update


def _nothing(_: str) -> None:
    """Nobody watches."""
