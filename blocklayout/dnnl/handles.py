"""Handles this process owns in the C library: each is destroyed exactly once, and can be counted.

One CPU engine and one stream of it serve the whole process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from blocklayout.dnnl import enums, library, status
from blocklayout.dnnl._abi import ffi

KINDS = ("engine", "stream", "memory_desc", "memory", "primitive_attr", "post_ops", "primitive_desc", "primitive")

_live: dict[str, set[int]] = {kind: set() for kind in KINDS}  # adding to and discarding from a set is atomic


class Handle:
    """One owned C object, destroyed when this object goes or at ``destroy``, whichever is first.

    Attributes:
        kind: One of ``KINDS``.
        c: The C pointer; valid as long as this object.
    """

    __slots__ = ("_owned", "c", "keep", "kind")

    def __init__(self, kind: str, c: Any, keep: object = None) -> None:
        self.kind = kind
        self.c = c
        self.keep = keep
        address = int(ffi.cast("uintptr_t", c))
        self._owned = [address]  # taking it out is atomic: one caller destroys
        _live[kind].add(address)

    def destroy(self) -> None:
        """Destroys the C object now; a second call does nothing."""
        try:
            address = self._owned.pop()
        except IndexError:
            return
        _live[self.kind].discard(address)  # first: the library may give the address to another thread at once
        getattr(library.load(), f"dnnl_{self.kind}_destroy")(self.c)

    # The process's end frees everything, and the library may be gone by then.
    def __del__(self, *, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self.destroy()


def create(kind: str, function: str, *c_args: Any, subject: object = None, keep: object = None) -> Handle:
    """Calls a C function whose first argument receives a new handle, of one of ``KINDS``; a DnnlError where it fails.

    ``subject`` is shown then; ``keep`` must live as long as the C object.
    """
    c_place = ffi.new(f"dnnl_{kind}_t *")
    status.call(function, c_place, *c_args, subject=subject)
    return Handle(kind, c_place[0], keep)


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
    with library.lock:
        if kind not in _made:
            _made[kind] = create(kind, f"dnnl_{kind}_create", *c_args, keep=keep)
        return _made[kind]


def live_handles() -> dict[str, int]:
    """How many C objects of each kind are alive, engines, streams and cached descriptors included.

    Example:
        >>> from blocklayout import dnnl
        >>> sorted(dnnl.live_handles())
        ['engine', 'memory', 'memory_desc', 'post_ops', 'primitive', 'primitive_attr', 'primitive_desc', 'stream']
    """
    return {kind: len(addresses) for kind, addresses in _live.items()}
