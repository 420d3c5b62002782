"""The C of our own: an extension that is built where there is a compiler."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Any

from blocklayout.dnnl._abi import ffi

TEAM_VARIABLE = "BLOCKLAYOUT_TEAM"
"""Set to 0, it leaves the library's parallel regions to libgomp."""

_EXTENSION = "blocklayout._executor"


def has_native_executor() -> bool:
    """Whether runs are one call into C; else each step is one from Python, and denormals stay as they are."""
    return native() is not None


def wants_team() -> bool:
    """Whether the library's parallel regions are to be computed by the team of threads in it."""
    return os.environ.get(TEAM_VARIABLE) != "0" and native() is not None


@cache
def native() -> Any | None:
    """Our own functions in C; ``None`` where no compiler built them when the package was installed."""
    found = importlib.util.find_spec(_EXTENSION)
    if found is None or found.origin is None:
        return None
    try:
        return ffi.dlopen(found.origin)
    except OSError:  # built for another platform, or there is no OpenMP
        return None
