"""The CPU engine and its stream: one of each serves the whole process."""

from __future__ import annotations

from typing import Any

from blocklayout.dnnl import enums, library
from blocklayout.dnnl.handles import Handle, create

_made: dict[str, Handle] = {}


def cpu_engine() -> Handle:
    """The process's CPU engine, created at the first call."""
    return _made.get("engine") or _make("engine", enums.value("engine_kind", "cpu"), 0)


def cpu_stream() -> Handle:
    """The process's in-order CPU stream, created at the first call; a call on it returns when the work is done."""
    if stream := _made.get("stream"):
        return stream
    engine = cpu_engine()
    return _make("stream", engine.c, enums.value("stream_flags", "stream_default_flags"), keep=engine)


def _make(kind: str, *c_args: Any, keep: Handle | None = None) -> Handle:
    library.load()  # which takes the lock itself
    with library.lock():
        if kind not in _made:
            _made[kind] = create(kind, f"dnnl_{kind}_create", *c_args, keep=keep)
        return _made[kind]
