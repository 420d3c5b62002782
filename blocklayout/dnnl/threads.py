"""The only way a parallel region is opened: one caller at a time, with its own thread count, safe after a fork.

libgomp keeps a pool of workers for each thread that opens a region, and lets workers spin between regions only
while all pools together fit the CPUs. So at most one thread keeps its pool: the only one that runs, or the
one that has run alone for a while. Where several take turns, each hands its pool back when it is done.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.cpus import default_threads
from blocklayout.errors import InvalidArgumentsError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["default_threads", "release_pool", "run_parallel"]

_Result = TypeVar("_Result")

_SETTLING_RUNS = 16
"""Runs in a row after which a thread, having shared with others, keeps its pool again."""

_PAUSE_SOFT = 1
_OPENMP = "libgomp.so.1"


class _Identity:
    """Stands for a thread for as long as it lives; numbers of threads are given again."""


class _Caller(threading.local):
    """What is known about the calling thread."""

    def __init__(self) -> None:
        self.identity = _Identity()
        self.is_inside = False  # of run_parallel, more than one thread wide
        self.is_inherited = False  # came through a fork with a pool whose workers did not


class _Pools:
    """Who holds workers. Read and changed under the lock only."""

    def __init__(self) -> None:
        self.holders: weakref.WeakSet[_Identity] = weakref.WeakSet()
        self.is_shared = False
        self.last: weakref.ref[_Identity] | None = None
        self.n_in_a_row = 0

    def note_run(self, caller: _Identity) -> bool:
        """Whether ``caller``, which has just run, may keep its pool."""
        is_same = self.last is not None and self.last() is caller
        if is_same and not self.is_shared and caller in self.holders:
            return True
        if not is_same:
            self.last = weakref.ref(caller)
        self.n_in_a_row = self.n_in_a_row + 1 if is_same else 1
        self.holders.add(caller)
        if len(self.holders) > 1:
            self.is_shared = True
        elif self.n_in_a_row >= _SETTLING_RUNS:
            self.is_shared = False
        return not self.is_shared


_lock = threading.Lock()
_caller = _Caller()
_pools = _Pools()


def run_parallel(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Calls ``fn`` where parallel regions are ``n_threads`` wide, and gives its result.

    Calls from several threads take turns; calls that are one thread wide open no region and need no turn. A
    call from inside of ``fn`` runs at once. The caller's own OpenMP thread count is as it was afterwards.

    Args:
        fn: What to call; its exceptions pass through.
        n_threads: Threads of a region, the caller included.

    Raises:
        InvalidArgumentsError: ``n_threads`` is less than 1.
    """
    if n_threads < 1:
        raise InvalidArgumentsError(f"n_threads is {n_threads}; a region has 1 thread or more")
    if n_threads == 1 or _caller.is_inside:
        return _with_count(fn, n_threads)
    if _caller.is_inherited:
        return _in_fresh_thread(fn, n_threads)
    with _lock:
        _caller.is_inside = True
        try:
            return _with_count(fn, n_threads)
        finally:
            _caller.is_inside = False
            if not _pools.note_run(_caller.identity):
                _hand_back()


def release_pool() -> None:
    """Hands the calling thread's workers back, so that the next thread to run finds the CPUs free.

    For a thread that has prepared what others will run. Its own next run makes new workers (0.1 ms).
    """
    if _caller.is_inside or not library.is_loaded():
        return
    with _lock:
        _hand_back()


def _with_count(fn: Callable[[], _Result], n_threads: int) -> _Result:
    openmp = library.load()
    if library.is_sequential():
        return fn()
    before = openmp.omp_get_max_threads()
    openmp.omp_set_num_threads(n_threads)
    try:
        return fn()
    finally:
        openmp.omp_set_num_threads(before)


def _in_fresh_thread(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Runs in a thread that ends with the call, and its workers with it."""
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(run_parallel(fn, n_threads))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="blocklayout-after-fork")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _hand_back() -> bool:
    """Ends the calling thread's workers; False where there may still be some."""
    if _caller.is_inherited:
        return False  # it would wait for workers that do not exist here
    openmp = _loaded_openmp()
    if openmp is not None and not _pause(openmp):
        return False
    _pools.holders.discard(_caller.identity)
    return True


def _pause(openmp: Any) -> bool:
    try:
        return bool(openmp.omp_pause_resource_all(_PAUSE_SOFT) == 0)
    except ffi.error:  # libgomp before GCC 9
        return False


def _loaded_openmp() -> Any | None:
    """The OpenMP runtime of this process, whoever loaded it; None if nobody did."""
    if library.is_loaded():
        return None if library.is_sequential() else library.load()
    # cffi does not survive RTLD_NOLOAD, so look first: the name then finds what is there already.
    return ffi.dlopen(_OPENMP) if _is_mapped(_OPENMP) else None


def _is_mapped(name: str) -> bool:
    try:
        return f"/{name}" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


class _Fork:
    """Between the hooks around a fork: whether the lock was taken, and whether the pool is gone."""

    holds_lock = False
    is_clean = False


def _before_fork() -> None:
    """A child that inherits a pool without its workers waits for them for ever, so there must be none."""
    if not _caller.is_inside:
        _lock.acquire()
        _Fork.holds_lock = True
    _Fork.is_clean = _hand_back()


def _after_fork_in_parent() -> None:
    if _Fork.holds_lock:
        _Fork.holds_lock = False
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock, _pools  # noqa: PLW0603 - those of threads that do not exist here
    _Fork.holds_lock = False
    _lock = threading.Lock()
    _pools = _Pools()
    _caller.is_inherited = _caller.is_inherited or not _Fork.is_clean


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
