"""The C of our own: an extension that is built where there is a compiler."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from blocklayout.dnnl._abi import ffi

TEAM_VARIABLE = "BLOCKLAYOUT_TEAM"
"""Set to 0, it leaves the library's parallel regions to libgomp."""

_PACKAGE = Path(__file__).resolve().parents[1]

EXTENSION = _PACKAGE / "_executor.abi3.so"
"""The extension, as the build names it for every Python; builds of before may lie beside it under other names."""

OPENMP = _PACKAGE / "libgomp.so.1"
"""The compiler's OpenMP runtime, in packages that were built to be passed on."""


def has_native_executor() -> bool:
    """Whether runs are one call into C; else each step is one from Python, and denormals stay as they are.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.has_native_executor() in (True, False)
        True
    """
    return native() is not None


def wants_team() -> bool:
    """Whether the library's parallel regions are to be computed by the team of threads in it."""
    return os.environ.get(TEAM_VARIABLE) != "0" and native() is not None


@cache
def native() -> Any | None:
    """Our own functions in C; ``None`` where no compiler built them when the package was installed."""
    return opened(str(EXTENSION))


def opened(path: str) -> Any | None:
    """A library that needs OpenMP; ``None`` if there is none, it was built for another platform, or there is no OpenMP.

    Once this package's own is loaded, all that need one find it by its name.
    """
    try:
        return ffi.dlopen(path)
    except OSError:
        pass
    try:
        openmp = ffi.dlopen(str(OPENMP))
    except OSError:
        return None
    try:
        return ffi.dlopen(path)
    except OSError:
        return None
    finally:
        ffi.dlclose(openmp)  # libraries that need it hold it
