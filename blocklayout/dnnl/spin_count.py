"""How long libgomp's threads spin, where no team of ours is in place: it reads that when it is loaded."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SPIN_COUNT = 1000
"""Looks of a waiting thread before it sleeps. Measured: see docs/decisions/0008."""

_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@contextmanager
def measured_spin_count() -> Iterator[None]:
    """Inside, a libgomp that is loaded takes our spin count, unless its user has said how threads wait."""
    is_settled = any(name in os.environ for name in _SETTINGS) or _is_mapped("libgomp.so.1")
    if is_settled:
        yield
        return
    os.environ[_SETTINGS[0]] = str(SPIN_COUNT)
    try:
        yield
    finally:
        del os.environ[_SETTINGS[0]]


def _is_mapped(name: str) -> bool:
    try:
        return f"/{name}" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
