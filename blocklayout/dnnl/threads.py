"""The threads that compute, and how wide parallel regions are, for each call of the library that opens or asks for one.

A team of threads of our own computes the library's regions where it can be put in place, else libgomp.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any, TypeVar

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.cpus import pin_to, usable_cpus
from blocklayout.dnnl.libgomp import open_regions_here, run_in_pool
from blocklayout.dnnl.native import TEAM_VARIABLE, native, wants_team
from blocklayout.errors import DnnlError, InvalidArgumentsError, OutOfMemoryError

_Result = TypeVar("_Result")

_found: tuple[Any | None, str] | None = None


def team() -> Any | None:
    """The team's functions in C; ``None`` where the library's regions are libgomp's, or where it has none."""
    return _served()[0]


def threads_name() -> str:
    """Which threads compute: ``own team``, ``libgomp`` with the reason in parentheses, or ``sequential``.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.threads_name().split()[0] in ("own", "libgomp", "sequential")
        True
    """
    functions, reason = _served()
    return "own team" if functions is not None else reason


def _served() -> tuple[Any | None, str]:
    global _found  # noqa: PLW0603 - a process has one
    if _found is None:
        c_library = library.load()
        with library.lock:  # filling a table of imports twice at once ends the process
            if _found is None:
                _found = _serve(c_library)
    return _found


def _serve(c_library: Any) -> tuple[Any | None, str]:
    """Put it in place."""
    if library.is_sequential():
        return None, "sequential"
    functions = native()
    if functions is None:
        return None, "libgomp (no compiler built the team)"
    if not wants_team():
        return None, f"libgomp ({TEAM_VARIABLE}=0)"
    reason = functions.bl_serve(ffi.addressof(c_library, "dnnl_version"), usable_cpus())
    return (None, f"libgomp ({ffi.string(reason).decode()})") if reason else (functions, "")


def run_parallel(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Calls ``fn`` where parallel regions are ``n_threads`` wide, the caller included, and returns its result.

    Calls from several threads run beside one another, each with workers of its own; but where libgomp computes, those
    that are not the main thread's or a stream's come one after the other, so that ``fn`` must not wait for such a call.
    A lock that such calls share is thus taken outside. The caller's own OpenMP thread count is as it was afterwards.

    Raises:
        InvalidArgumentsError: ``n_threads`` is less than 1.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.run_parallel(lambda: "computed", n_threads=2)
        'computed'
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


def run_apart(fn: Callable[[], _Result], n_threads: int) -> _Result:
    """Calls ``fn`` on a thread that ends with it, where parallel regions are ``n_threads`` wide.

    For the creation of primitives: the library's code generator notes an error for its thread, and never takes it back.
    Everything that is created there afterwards fails likewise, and where the library does not look whether a part of a
    primitive was created, the process ends. Inside of such a call ``fn`` is called as it is, until an error came there.
    Where the system has no more threads, it is called here.

    Source: ``SetError`` in ``src/cpu/x64/xbyak/xbyak.h``, and ``create_kernel`` in ``src/cpu/x64/jit_generator.hpp``,
    oneDNN v3.2.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.run_apart(lambda: "created", n_threads=1)
        'created'
    """
    if _here.is_expendable:
        try:
            return fn()
        except DnnlError:
            _here.is_expendable = False
            raise
    found: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        _here.is_expendable = True
        open_regions_here()  # of its own, where libgomp computes: its caller may hold the turn of all others
        try:
            found.append(run_parallel(fn, n_threads))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), name="blocklayout-creator")
    try:
        thread.start()
    except RuntimeError:  # the system has no more
        return run_parallel(fn, n_threads)
    thread.join()
    if errors:
        raise errors[0]
    return found[0]


class _Here(threading.local):
    """Whether the calling thread was made for work that may spoil it, and was not spoilt yet."""

    is_expendable = False


_here = _Here()


def callers_at_once(n_threads: int) -> int:
    """How many of so many threads may call :func:`run_parallel` while another waits for them, inside of such a call.

    One where libgomp computes the regions: it takes other threads' calls in turn.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.callers_at_once(2) in (1, 2)
        True
    """
    return n_threads if team() is not None else 1


def wake_team() -> None:
    """Wakes the workers that this :func:`run_parallel` will have, while the caller prepares their work.

    Raises:
        OutOfMemoryError: The system refuses some of them.

    Example:
        >>> from blocklayout import dnnl
        >>> dnnl.run_parallel(dnnl.wake_team, 1)
    """
    functions = team()
    if functions is not None and not functions.bl_wake():
        raise lack_of_threads(functions.bl_width())


def lack_of_threads(n_threads: int) -> OutOfMemoryError:
    """The error for a run whose team gets fewer threads of the system than it needs."""
    return OutOfMemoryError(
        f"a run on {n_threads} threads: the system gives this process no more threads; load with fewer (threads=), or "
        "raise the limit (ulimit -u, or the container's limit of processes)"
    )


def own_stream(cpus: Iterable[int] | None = None) -> None:
    """Makes the calling thread keep its workers until it ends.

    It and they run on ``cpus``; where the system cannot say so, anywhere.

    Example:
        >>> import threading
        >>> from blocklayout import dnnl
        >>> thread = threading.Thread(target=dnnl.own_stream)
        >>> thread.start()
        >>> thread.join()
    """
    if cpus is not None:
        pin_to(cpus)
    functions = team()
    if functions is None:
        open_regions_here()
    else:
        functions.bl_keep_team()
