"""The team of threads of our own that computes the library's parallel regions, where it can be put in place."""

from __future__ import annotations

from typing import Any

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.cpus import usable_cpus
from blocklayout.dnnl.native import TEAM_VARIABLE, native, wants_team

_found: tuple[Any | None, str] | None = None


def team() -> Any | None:
    """The team's functions in C; ``None`` where the library's regions are libgomp's, or where it has none."""
    return _served()[0]


def threads_name() -> str:
    """Which threads compute: ``own team``, ``libgomp`` with the reason in parentheses, or ``sequential``."""
    functions, reason = _served()
    return "own team" if functions is not None else reason


def _served() -> tuple[Any | None, str]:
    global _found  # noqa: PLW0603 - a process has one
    if _found is None:
        c_library = library.load()
        with library.lock():  # filling a table of imports twice at once ends the process
            if _found is None:
                _found = _serve(c_library)
    return _found


def _serve(c_library: Any) -> tuple[Any | None, str]:
    """Put it in place."""
    if library.is_sequential():
        return None, "sequential"
    functions = native()
    if functions is None:
        return None, "libgomp (no compiler built the team)"
    if not wants_team():
        return None, f"libgomp ({TEAM_VARIABLE}=0)"
    n_cpus = usable_cpus()
    for owner, name in ((c_library, "dnnl_version"), (functions, "bl_run")):
        reason = functions.bl_serve(ffi.addressof(owner, name), n_cpus)
        if reason:
            return None, f"libgomp ({ffi.string(reason).decode()})"
    return functions, ""
