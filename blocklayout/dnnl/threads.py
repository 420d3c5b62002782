"""How wide parallel regions are: said here for every call of the library that opens one or depends on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from blocklayout.dnnl import library
from blocklayout.dnnl.cpus import pin_to
from blocklayout.dnnl.libgomp import open_regions_here, run_in_pool
from blocklayout.dnnl.team import team
from blocklayout.errors import InvalidArgumentsError

_Result = TypeVar("_Result")


def run_parallel(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Calls ``fn`` where parallel regions are ``n_threads`` wide, and gives its result.

    Calls from several threads run beside one another, each with workers of its own; but where libgomp computes, those
    that are not the main thread's or a stream's come one after the other, so that ``fn`` must not wait for such a call.
    A lock that such calls share is thus taken outside. The caller's own OpenMP thread count is as it was afterwards.

    Args:
        fn: What to call; its exceptions pass through.
        n_threads: Threads of a region, the caller included.

    Raises:
        InvalidArgumentsError: ``n_threads`` is less than 1.
    """
    if n_threads < 1:
        raise InvalidArgumentsError(f"n_threads is {n_threads}; a region has 1 thread or more")
    functions = team()
    if functions is None:
        return fn() if library.is_sequential() else run_in_pool(fn, n_threads)
    before = functions.bl_enter(n_threads)
    try:
        return fn()
    finally:
        functions.bl_leave(before)


def callers_at_once(n_threads: int) -> int:
    """How many of so many threads may call :func:`run_parallel` while another waits for them, inside of such a call.

    One where libgomp computes the regions: it takes other threads' calls in turn.
    """
    return n_threads if team() is not None else 1


def wake_team() -> None:
    """Wakes the workers that this :func:`run_parallel` will have, while the caller prepares what they will compute."""
    functions = team()
    if functions is not None:
        functions.bl_wake()


def own_stream(cpus: Iterable[int] | None = None) -> None:
    """Makes the calling thread keep its workers until it ends.

    Args:
        cpus: Those that it and its workers are to run on; where the system cannot say so, they run anywhere.
    """
    if cpus is not None:
        pin_to(cpus)
    functions = team()
    if functions is None:
        open_regions_here()
    else:
        functions.bl_keep_team()
