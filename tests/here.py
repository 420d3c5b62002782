"""Where a test is in its file."""

from __future__ import annotations

import sys


def line_here() -> int:
    """The number of the line that calls this."""
    return sys._getframe(1).f_lineno
