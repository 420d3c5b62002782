"""The CPU engine and its stream: one of each serves the whole process."""

from __future__ import annotations

import os
import threading

from blocklayout.dnnl import enums
from blocklayout.dnnl.handles import Handle, create

_lock = threading.RLock()
_made: dict[str, Handle] = {}


def cpu_engine() -> Handle:
    """The process's CPU engine, created at the first call."""
    return _made.get("engine") or _make_engine()


def cpu_stream() -> Handle:
    """The process's in-order CPU stream, created at the first call; a call on it returns when the work is done."""
    return _made.get("stream") or _make_stream()


def _make_engine() -> Handle:
    with _lock:
        if "engine" not in _made:
            _made["engine"] = create("engine", "dnnl_engine_create", enums.value("engine_kind", "cpu"), 0)
        return _made["engine"]


def _make_stream() -> Handle:
    with _lock:
        if "stream" not in _made:
            engine = cpu_engine()
            flags = enums.value("stream_flags", "default_flags")
            _made["stream"] = create("stream", "dnnl_stream_create", engine.c, flags, keep=engine)
        return _made["stream"]


def _forget_lock() -> None:
    """In a child: the lock may have been held by a thread that does not exist here."""
    global _lock  # noqa: PLW0603 - there is no other way to renew it
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)
