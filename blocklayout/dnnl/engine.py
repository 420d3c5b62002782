"""The CPU engine and its stream: one of each serves the whole process."""

from __future__ import annotations

import threading

from blocklayout.dnnl import enums
from blocklayout.dnnl.handles import Handle, create

_lock = threading.RLock()
_engine: Handle | None = None
_stream: Handle | None = None


def cpu_engine() -> Handle:
    """The process's CPU engine, created at the first call."""
    global _engine
    if _engine is not None:
        return _engine
    with _lock:
        if _engine is None:
            _engine = create("engine", "dnnl_engine_create", enums.value("engine_kind", "cpu"), 0)
        return _engine


def cpu_stream() -> Handle:
    """The process's in-order CPU stream, created at the first call; a call on it returns when the work is done."""
    global _stream
    if _stream is not None:
        return _stream
    with _lock:
        if _stream is None:
            engine = cpu_engine()
            flags = enums.value("stream_flags", "default_flags")
            _stream = create("stream", "dnnl_stream_create", engine.c, flags, keep=engine)
        return _stream
