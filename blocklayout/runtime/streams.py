"""Streams: threads that run submitted calls side by side, each one call at a time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import cache, partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from blocklayout import dnnl
from blocklayout.errors import ClosedError, OutOfMemoryError
from blocklayout.forking import renew_in_children
from blocklayout.resource_limits import in_force

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


class _Owner(threading.local):
    """The stream that the calling thread owns."""

    key: object = None
    number = 0


_owner = _Owner()

_one_at_a_time = threading.Lock()
"""Two that wait for all streams of one session would wait for each other."""


class Streams:
    """Threads that own a stream each, made as they are needed, with a share of this process's CPUs.

    They keep neither this object nor submitted calls alive, and end with it. A single one is a caller like others,
    and takes turns with them.

    Attributes:
        n: How many there may be.
        n_threads: Threads of each, its owner included.
    """

    def __init__(self, n: int = 1, n_threads: int = 1) -> None:
        """Start nothing yet."""
        self.n = n
        self.n_threads = n_threads
        self._shares = dnnl.cpu_shares(n, n_threads) if n > 1 else None
        self.is_closed = False
        renew_in_children(self)

    def renew(self) -> None:
        """Be without threads, as all are in a child that was forked."""
        self._lock = threading.Lock()
        self._key = object()  # stands for the pool where that must not be kept alive
        self._pool: ThreadPoolExecutor | None = None

    @property
    def here(self) -> int:
        """The number of the stream that the calling thread owns; 0 for a thread that owns none of these."""
        return _owner.number if _owner.key is self._key else 0

    @property
    def is_here(self) -> bool:
        """Whether the calling thread owns one of them."""
        return _owner.key is self._key

    def check_open(self) -> None:
        """Refuse to go on where they are closed."""
        if self.is_closed:
            raise ClosedError("the session is closed: load the model again")

    def submit(self, fn: Callable[[], _Result]) -> Future[_Result]:
        """Have a stream call ``fn`` as soon as one is free, within the limits of the calling code."""
        if in_force.get() is not None:
            fn = partial(copy_context().run, fn)
        with self._lock:
            self.check_open()
            if self._pool is None:
                about = (self._key, itertools.count(), self.n_threads if self.n > 1 else None, self._shares)
                self._pool = _pool_class()(self.n, "blocklayout-stream", _begin, about)
            try:
                return self._pool.submit(fn)
            except OutOfMemoryError:
                self._pool.shutdown(wait=False, cancel_futures=True)  # a refused call is not to run later
                self._pool = None
                raise

    def call(self, fn: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        """Call ``fn``: here where there is one stream, or this is one; else by a stream."""
        if self.is_closed:
            self.check_open()
        if self.n == 1 or self.is_here:
            return fn(*args, **kwargs)
        return self.submit(partial(fn, *args, **kwargs)).result()

    def call_on_all(self, fn: Callable[[], object]) -> None:
        """Call ``fn`` on all streams at once; here alone, if there is one stream or this is one."""
        if self.n == 1 or self.is_here:
            self.call(fn)
            return
        from concurrent.futures import wait

        all_are_here = threading.Barrier(self.n)

        def together() -> None:
            all_are_here.wait()
            fn()

        with _one_at_a_time:
            futures: list[Future[None]] = []
            try:
                futures += [self.submit(together) for _ in range(self.n)]
            except BaseException:
                all_are_here.abort()  # those that were closed out will not come
                raise
            wait(futures)
        for future in futures:
            future.result()

    def close(self) -> None:
        """Take nothing more, and wait until everything submitted is done; a stream that calls this does not wait."""
        with self._lock:
            self.is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=not self.is_here)


@cache
def _pool_class() -> type[ThreadPoolExecutor]:
    """Pools that go on with the threads they have where the system starts no more; made when one is needed."""
    from concurrent.futures import ThreadPoolExecutor

    class Pool(ThreadPoolExecutor):
        def _adjust_thread_count(self) -> None:
            try:
                super()._adjust_thread_count()
            except RuntimeError as error:
                if not self._threads:
                    raise OutOfMemoryError(
                        f"no stream can begin: {error}; raise the limit (ulimit -u, or the container's limit of "
                        "processes), or free some memory"
                    ) from error

    return Pool


def _begin(key: object, numbers: Iterator[int], n_threads: int | None, shares: list[frozenset[int]] | None) -> None:
    """Initializer of a thread: it becomes the owner of the next stream."""
    _owner.key, _owner.number = key, next(numbers)
    if n_threads is not None:
        dnnl.own_stream(shares[_owner.number] if shares else None)
