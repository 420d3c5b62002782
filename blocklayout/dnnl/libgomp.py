"""Regions by libgomp, where no team of ours is in place: on few pools, whose threads spin for a measured while.

libgomp keeps a pool of workers for each thread that opens a region, and a child that is forked inherits it without its
workers. So few threads open any: the main one, the owners of streams, and for all others one that takes their calls in
turn. In a child it is another one. How long its threads spin libgomp reads when it is loaded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from blocklayout.dnnl import library
from blocklayout.resource_limits import system_text

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_Result = TypeVar("_Result")

SPIN_COUNT = 1000
"""Looks of a waiting thread before it sleeps. Measured: see docs/decisions/0008."""

_SETTINGS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


class _Here(threading.local):
    def __init__(self) -> None:
        self.opens_regions = threading.current_thread() is threading.main_thread()


_here = _Here()
_lock = threading.Lock()
_others: ThreadPoolExecutor | None = None


def run_in_pool(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Calls ``fn`` where parallel regions are ``n_threads`` wide; a thread's own count is as it was afterwards."""
    if n_threads == 1 or _here.opens_regions:
        return _with_count(fn, n_threads)
    return _for_others().submit(copy_context().run, _with_count, fn, n_threads).result()


def open_regions_here() -> None:
    """The calling thread opens regions itself from now on, and has a pool of its own."""
    _here.opens_regions = True


def _with_count(fn: Callable[[], _Result], n_threads: int) -> _Result:
    openmp = library.load()
    before = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(n_threads)
    try:
        return fn()
    finally:
        openmp.omp_set_num_threads(before)


def _for_others() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    global _others  # noqa: PLW0603 - a process has one
    with _lock:
        if _others is None:
            _others = ThreadPoolExecutor(1, "blocklayout-regions", open_regions_here)
        return _others


@contextmanager
def measured_spin_count() -> Iterator[None]:
    """Inside, a libgomp that is loaded takes our spin count, unless its user has said how threads wait."""
    is_loaded = "/libgomp.so.1" in system_text(Path("/proc/self/maps"))
    if is_loaded or any(name in os.environ for name in _SETTINGS):
        yield
        return
    os.environ[_SETTINGS[0]] = str(SPIN_COUNT)
    try:
        yield
    finally:
        del os.environ[_SETTINGS[0]]


def _begin_in_child() -> None:
    global _lock, _others  # those of threads that do not exist here
    _lock, _others = threading.Lock(), None
    _here.opens_regions = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_child)
