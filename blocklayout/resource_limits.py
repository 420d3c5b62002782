"""Limits of memory and time: those of the machine, and those that a caller sets for the work of strangers."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from blocklayout.errors import InputError, LimitError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import FrameType

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
MAX_NDIMS = 64
"""Of numpy's arrays."""
_MAX_ARRAY_NBYTES = 1 << 63
_STATUS = Path("/proc/meminfo")


class Limits(Struct, frozen=True):
    """The limits of a block.

    Attributes:
        nbytes: Bytes of a tensor, file or plan; ``None`` where only the machine limits them.
        end: End of its time, by ``time.monotonic``; infinite where there is none.
        seconds: Length of its time.
    """

    nbytes: int | None = None
    end: float = math.inf
    seconds: float = math.inf

    def within(self, other: Limits) -> Limits:
        """The stricter ones of both."""
        known = [nbytes for nbytes in (self.nbytes, other.nbytes) if nbytes is not None]
        sooner = min(self, other, key=lambda limits: limits.end)
        return Limits(min(known, default=None), sooner.end, sooner.seconds)


in_force: ContextVar[Limits | None] = ContextVar("blocklayout_limits", default=None)
"""The limits of the innermost block around the running code."""


@contextmanager
def limits(*, nbytes: int | None = None, seconds: float | None = None) -> Iterator[None]:
    """Limit loads, plans, runs and operators inside of a ``with`` block, on this thread and in its submitted requests.

    A block within another one may only be stricter.

    Args:
        nbytes: Bytes that any one of these may take: a file that is read, a tensor, all of a network's constants, a
            run's constants, scratchpad, intermediate values and results together. By default as many as the machine, or
            this process' control group, has left.
        seconds: How long all of the block may take. It is looked at between the passes, nodes and candidates of a load,
            between the steps, pieces and iterations of a run, and between the lines of Python that compute a node; a
            primitive that has begun is finished. Runs go step by step in Python then. By default there is no limit.

    Raises:
        LimitError: In the block, where one of them would be, or is, exceeded; the message says by what.
        InputError: A limit that is no positive number.

    Example:
        >>> import blocklayout as bl
        >>> with bl.limits(nbytes=1 << 20):
        ...     bl.zeros((1024, 1024))
        Traceback (most recent call last):
        blocklayout.errors.LimitError: a buffer would have 4,194,304 bytes; bl.limits allows 1,048,576 here
    """
    _check_positive("nbytes", nbytes, (int,), "a whole number of bytes")
    _check_positive("seconds", seconds, (int, float), "a number of seconds")
    if nbytes is None and seconds is None:
        yield  # runs then take their shortest way
        return
    asked = Limits(nbytes)
    if seconds is not None:
        asked = Limits(nbytes, time.monotonic() + seconds, seconds)
    outer = in_force.get()
    token = in_force.set(asked if outer is None else asked.within(outer))
    try:
        yield
    finally:
        in_force.reset(token)


def _check_positive(name: str, limit: object, types: tuple[type, ...], what: str) -> None:
    if limit is None or (type(limit) in types and 0 < float(cast("float", limit)) < math.inf):
        return
    raise InputError(f"{name}={limit!r}: give {what}, greater than 0")


def is_timeless() -> bool:
    """Whether the running code may take as long as it likes."""
    limit = in_force.get()
    return limit is None or limit.end == math.inf


def check_time(what: str) -> None:
    """Refuse to go on to ``what``, by a LimitError, once the time of a block is over."""
    limit = in_force.get()
    if limit is not None and time.monotonic() > limit.end:
        raise LimitError(f"{what}: the {limit.seconds:g} seconds that bl.limits allows here are over")


class _OverError(BaseException):
    """The time is over in the middle of code that may catch every ``Exception``."""


class _Interruption(Struct):
    """A block in which ``look`` traces calls."""

    what: str
    look: Callable[..., Any]
    before: Any = None

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self.look)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        sys.settrace(self.before)
        if isinstance(error, _OverError):
            check_time(self.what)


def interrupted(what: str) -> AbstractContextManager[None]:
    """Ends Python code that is called in the block between two of its lines, once the block's time is over.

    For loops of other libraries, which may be as long as a file has them. Where time is limited, Python's tracing of
    this thread looks at every line, which makes such loops several times slower. A debugger or a measurement of
    coverage that traces already goes on, and is put back at the end. ``what`` names the code in the LimitError.
    """
    limit = in_force.get()
    if limit is None or limit.end == math.inf:
        return nullcontext()
    end = limit.end
    leaving = _Interruption.__exit__.__code__  # where nobody catches the error any more

    def looking(inner: Callable[..., Any] | None) -> Callable[..., Any]:
        def look(frame: FrameType, event: str, arg: Any) -> Any:
            if time.monotonic() > end and frame.f_code is not leaving:
                raise _OverError
            if inner is None:
                return look
            return looking(inner(frame, event, arg) or (None if event == "call" else inner))

        return look

    return _Interruption(what, looking(sys.gettrace()))


def check_nbytes(nbytes: int, what: object) -> None:
    """Refuse, by a LimitError that names ``what``, more memory than is allowed, or left."""
    if excess := _excess(nbytes):
        raise LimitError(f"{what} would have {excess}")


def check_affordable(shape: Sequence[int], itemsize: int, what: object) -> None:
    """Refuse a tensor, by a LimitError that names it ``what``, of more memory than is allowed, or left.

    An UnsupportedError of more dimensions than arrays have.
    """
    extents = [int(extent) for extent in shape]
    if len(extents) > MAX_NDIMS:
        raise UnsupportedError(f"{what} would have {len(extents)} dimensions; arrays have up to {MAX_NDIMS}")
    if prod(filter(None, extents)) * itemsize >= _MAX_ARRAY_NBYTES:  # numpy overlooks extents of 0 in this
        raise LimitError(f"{what} would have the extents {extents}; addresses count to 2^63 bytes")
    if excess := _excess(prod(extents) * itemsize):
        raise LimitError(f"{what} of extents {extents} would have {excess}")


def _excess(nbytes: int) -> str:
    """A size and the limit that it exceeds; empty where it exceeds none."""
    limit = in_force.get()
    if limit is not None and limit.nbytes is not None and nbytes > limit.nbytes:
        return f"{nbytes:,} bytes; bl.limits allows {limit.nbytes:,} here"
    if nbytes > memory_nbytes() // 8 and nbytes > _available_nbytes():
        return f"{nbytes / 2**30:,.0f} GiB; {_available_nbytes() / 2**30:,.1f} GiB of memory are left here"
    return ""


@cache
def memory_nbytes() -> int:
    """Bytes of memory that this process may have: the machine's, or its control group's where that has less."""
    try:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, OSError, ValueError):
        found = [1 << 62]
    texts = (system_text(path).strip() for path in _LIMITS)
    return min([*found, *(int(text) for text in texts if text.isdecimal())])


def _available_nbytes() -> int:
    """Bytes that are free now, if the system has a number."""
    lines = dict(line.partition(":")[::2] for line in system_text(_STATUS).splitlines())
    available = lines.get("MemAvailable", "").split()
    return min(memory_nbytes(), int(available[0]) * 1024 if available else memory_nbytes())


def system_text(path: Path) -> str:
    """The text of a file of the system, as below ``/proc``; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
