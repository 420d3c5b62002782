"""The team of threads of our own that computes the library's parallel regions, where it can be put in place."""

from __future__ import annotations

from functools import cache
from typing import Any

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.cpus import usable_cpus
from blocklayout.dnnl.native import TEAM_VARIABLE, native, wants_team


def team() -> Any | None:
    """The team's functions in C; ``None`` where the library's regions are libgomp's, or where it has none."""
    return _served()[0]


def threads_name() -> str:
    """Which threads compute: ``own team``, ``libgomp`` with the reason in parentheses, or ``sequential``."""
    functions, reason = _served()
    return "own team" if functions is not None else reason


@cache
def _served() -> tuple[Any | None, str]:
    c_library = library.load()
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
