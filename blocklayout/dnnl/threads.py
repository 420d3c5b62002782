"""The only way a parallel region is opened: one caller at a time, with its own thread count, safe after a fork.

libgomp keeps a pool of workers for each thread that opens a region, and lets workers spin between regions only
while all pools together fit the CPUs. So at most one thread keeps its pool: the only one that runs, or the
one that has run alone for a while. Where several take turns, each hands its pool back when it is done.

Owners of streams are the exception: whoever made them has split the CPUs among them. They take turns with nobody
and keep their pools. Only a fork waits until none of them is inside.
"""

from __future__ import annotations

import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.cpus import default_threads, pin_to
from blocklayout.errors import InvalidArgumentsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["default_threads", "own_stream", "release_pool", "run_parallel"]

_Result = TypeVar("_Result")

_SETTLING_RUNS = 16
"""Runs in a row after which a thread, having shared with others, keeps its pool again."""

_PAUSE_SOFT = 1
_OPENMP = "libgomp.so.1"


class _Identity:
    """Stands for a thread for as long as it lives; numbers of threads are given again."""


class _Stream:
    """Stands for a stream for as long as the thread that owns it lives."""

    def __init__(self) -> None:
        self.busy = threading.Lock()  # held while its owner is inside of run_parallel


class _Caller(threading.local):
    """What is known about the calling thread."""

    def __init__(self) -> None:
        self.identity = _Identity()
        self.stream: _Stream | None = None  # that it owns
        self.is_inside = False  # of run_parallel, as the owner of a stream or more than one thread wide
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

    def note_owner(self, owner: _Identity) -> None:
        """Whoever else runs has to hand its pool back for as long as the owner of a stream keeps its own."""
        self.holders.add(owner)
        self.is_shared = True


_lock = threading.Lock()
_caller = _Caller()
_pools = _Pools()
_streams: weakref.WeakSet[_Stream] = weakref.WeakSet()  # changed under the lock only


def run_parallel(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Calls ``fn`` where parallel regions are ``n_threads`` wide, and gives its result.

    Calls from several threads take turns; calls that are one thread wide open no region and need no turn, nor do
    those of a stream's owner. A call from inside of ``fn`` runs at once. The caller's own OpenMP thread count is as it
    was afterwards.

    Args:
        fn: What to call; its exceptions pass through.
        n_threads: Threads of a region, the caller included.

    Raises:
        InvalidArgumentsError: ``n_threads`` is less than 1.
    """
    if n_threads < 1:
        raise InvalidArgumentsError(f"n_threads is {n_threads}; a region has 1 thread or more")
    if _caller.is_inside:
        return _with_count(fn, n_threads)
    if _caller.stream is not None:
        return _in_stream(fn, n_threads, _caller.stream)
    if n_threads == 1:
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


def own_stream(n_threads: int, cpus: Iterable[int] | None = None) -> None:
    """Makes the calling thread the owner of a stream until it ends: it runs beside others, and keeps its workers.

    For a thread that nobody else uses, and where all streams together fit the CPUs: nothing keeps them apart.

    Args:
        n_threads: Threads of its regions, itself included.
        cpus: Those that it and its workers are to run on; where the system cannot say so, they run anywhere.
    """
    if cpus is not None:
        pin_to(cpus)  # before there are workers: they inherit it
    with _lock:
        _caller.stream = _Stream()
        _streams.add(_caller.stream)
        if n_threads > 1:
            _pools.note_owner(_caller.identity)


def release_pool() -> None:
    """Hands the calling thread's workers back, so that the next thread to run finds the CPUs free.

    For a thread that has prepared what others will run. Its own next run makes new workers (0.1 ms).
    """
    if _caller.is_inside or not library.is_loaded():
        return
    with _lock:
        _hand_back()


def _in_stream(fn: Callable[[], _Result], n_threads: int, stream: _Stream) -> _Result:
    with stream.busy:
        _caller.is_inside = True
        try:
            return _with_count(fn, n_threads)
        finally:
            _caller.is_inside = False


def _with_count(fn: Callable[[], _Result], n_threads: int) -> _Result:
    openmp = library.load()
    if library.is_sequential():
        return fn()
    before = openmp.omp_get_max_threads()
    if before == n_threads:
        return fn()
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


class _Fork(threading.local):
    """Between the hooks around a fork: the locks that were taken, and whether the pool is gone."""

    def __init__(self) -> None:
        self.held: list[threading.Lock] = []
        self.is_clean = False


_fork = _Fork()


def _before_fork() -> None:
    """A child that inherits a pool without its workers waits for them for ever, so there must be none.

    Nobody else may be inside of the library meanwhile, either: a lock that is held there stays locked in the child.
    """
    if not _caller.is_inside:
        _take(_lock)
        for stream in _streams:
            _take(stream.busy)
    _fork.is_clean = _hand_back()


def _take(lock: threading.Lock) -> None:
    lock.acquire()
    _fork.held.append(lock)


def _after_fork_in_parent() -> None:
    while _fork.held:
        _fork.held.pop().release()


def _after_fork_in_child() -> None:
    global _lock, _pools, _streams  # noqa: PLW0603 - those of threads that do not exist here
    _fork.held.clear()
    _lock = threading.Lock()
    _pools = _Pools()
    _streams = weakref.WeakSet()
    _caller.stream = None  # there is no one beside whom it could run
    _caller.is_inherited = _caller.is_inherited or not _fork.is_clean


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )
