"""What memory can hold: results that would not fit are refused before they are allocated."""

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


@cache
def memory_nbytes() -> int:
    """Bytes of memory that this process may have: the machine's, or its control group's where that has less."""
    try:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        found = [1 << 62]
    for path in _LIMITS:
        try:
            text = path.read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    return min(found)


def check_affordable(shape: Sequence[int], itemsize: int, what: str) -> None:
    """Refuse a tensor that is larger than memory.

    Args:
        shape: Its extents.
        itemsize: Bytes of an element.
        what: Which tensor it is, for the message.

    Raises:
        UnsupportedError: The message has its size, and the limit.
    """
    nbytes = prod(map(int, shape)) * itemsize
    if nbytes > memory_nbytes():
        raise UnsupportedError(
            f"{what} would have the extents {[int(extent) for extent in shape]}, {nbytes / 2**30:,.0f} GiB; "
            f"this process may have {memory_nbytes() / 2**30:,.1f} GiB of memory"
        )
