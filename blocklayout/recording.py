"""Recording: each call of a function on Tensors, told to the recorders around it with its arguments and results.

A function tells of itself where :func:`recorded` marks it, and of none of the calls that it makes. So a record is a
list of whole calls, each by name: of operators, views, reorders, gradients, and updates of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import Any, TypeVar

from msgspec import Struct, field

F = TypeVar("F", bound=Callable[..., Any])


class Entry(Struct, frozen=True, eq=False):
    """One call of a function.

    Attributes:
        function: Its name.
        operands: Its arguments by position, as they were given.
        attrs: Those by keyword only. Defaults are among both.
        results: Tensors, and ``None`` for a result that was not asked for. Empty where it changes an operand.
        op: Of an operator, how it is applied to a Builder's values: a :class:`blocklayout.eager.call.Op`.
        memory_format: Of an operator, the format of the result where the caller states it.
    """

    function: str
    operands: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Any, ...] = ()
    op: Any = None
    memory_format: Any = None


Recorder = Callable[[Entry], object]

_recorders: ContextVar[tuple[Recorder, ...]] = ContextVar("blocklayout_recorders", default=())

recorders_around: Callable[[], tuple[Recorder, ...]] = _recorders.get
"""Those that the calling code runs inside of, the outermost first; takes no time to speak of."""


@contextmanager
def recording(*recorders: Recorder) -> Iterator[None]:
    """A block whose calls go to these recorders, and to no others."""
    token = _recorders.set(recorders)
    try:
        yield
    finally:
        _recorders.reset(token)


def tell(entry: Entry) -> bool:
    """Tell the recorders around of a call, the innermost first; not so where its results are its own operands.

    Whether one of them returned ``True``: it takes the call's place, which is possible where that changes an operand.
    """
    operands = {*map(id, entry.operands)}
    if entry.results and all(id(each) in operands for each in entry.results):
        return False
    return True in [recorder(entry) for recorder in reversed(_recorders.get())]


def recorded(name: str = "") -> Callable[[F], F]:
    """Marks a function that is recorded as a whole, under its own name by default, where it returns Tensors.

    Example:
        >>> import blocklayout as bl
        >>> entries = []
        >>> with recording(entries.append):
        ...     _ = bl.ones((1, 8, 2, 2)).to(memory_format="nChw8c").relu()
        >>> [entry.function for entry in entries]
        ['to', 'relu']
    """

    def mark(function: F) -> F:
        called = name or function.__name__

        @wraps(function)
        def telling(*args: Any, **kwargs: Any) -> Any:
            if not _recorders.get():
                return function(*args, **kwargs)
            with recording():
                result = function(*args, **kwargs)
            results = tuple(result) if isinstance(result, tuple) else (result,)
            if any(hasattr(each, "desc") for each in results):
                given = _signature(function).bind(*args, **kwargs)
                given.apply_defaults()
                tell(Entry(called, given.args, given.kwargs, results))
            return result

        return telling  # type: ignore[return-value]

    return mark


@cache
def _signature(function: Callable[..., Any]) -> Any:
    import inspect

    return inspect.signature(function)
