"""Results that memory could not hold are refused before they are allocated."""

from __future__ import annotations

import os
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_STATUS = Path("/proc/meminfo")


@cache
def memory_nbytes() -> int:
    """Bytes of memory that this process may have: the machine's, or its control group's where that has less."""
    try:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        found = [1 << 62]
    texts = (_read(path).strip() for path in _LIMITS)
    return min([*found, *(int(text) for text in texts if text.isdecimal())])


def _available_nbytes() -> int:
    """Bytes that are not taken now, as far as the system tells."""
    lines = dict(line.partition(":")[::2] for line in _read(_STATUS).splitlines())
    available = lines.get("MemAvailable", "").split()
    return min(memory_nbytes(), int(available[0]) * 1024 if available else memory_nbytes())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def check_affordable(shape: Sequence[int], itemsize: int, what: str) -> None:
    """Refuse a tensor that memory could not hold.

    Args:
        shape: Its extents.
        itemsize: Bytes of an element.
        what: Which tensor it is, for the message.

    Raises:
        UnsupportedError: The message has its size, and the limit.
    """
    nbytes = prod(map(int, shape)) * itemsize
    if nbytes > memory_nbytes() // 8 and nbytes > _available_nbytes():
        raise UnsupportedError(
            f"{what} would have the extents {[int(extent) for extent in shape]}, {nbytes / 2**30:,.0f} GiB; "
            f"{_available_nbytes() / 2**30:,.1f} GiB of memory are left here"
        )
