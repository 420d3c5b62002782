"""Watching: reorders, implicit copies and layout losses, reported while a block runs."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar, copy_context
from functools import partial
from os import sep
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_args

from msgspec import Struct, field
from msgspec.structs import asdict

from blocklayout.errors import InputError, LayoutLossWarning, WatchError, WatchWarning

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc

EventKind = Literal["reorder", "copy", "loss", "step"]
MOVES: tuple[EventKind, ...] = ("reorder", "copy", "loss")
"""The kinds that warn and raise."""
WatchMode = Literal["warn", "raise", "record"]

_Result = TypeVar("_Result")
_PACKAGE = str(Path(__file__).parent) + sep


class Event(Struct, frozen=True):
    """Something that moved bytes for a layout's sake, or dropped a layout.

    Attributes:
        kind: ``reorder``: bytes were brought into another layout. ``copy``: they were copied without being asked
            for. ``loss``: an operator did not keep the layout of its inputs. ``step``: a primitive ran.
        operator: The operator that needed it, or the method that was called, by name.
        inputs: Shapes, strides, types and layouts that were read.
        result: The descriptor of its result; ``None`` where that is no tensor.
        nbytes: Bytes read and written for it, padding included.
        ns: Nanoseconds it took; ``None`` where that was not measured on its own.
        reason: Why, in words.
        file: Where the caller's code called.
        line: Where in that file.
        primitive: Of a step, the kind of primitive: ``convolution``, ``eltwise``, ...
        implementation: Of a step, the name of oneDNN's implementation, or of ours.
    """

    kind: EventKind
    operator: str
    inputs: tuple[MemoryDesc, ...]
    result: MemoryDesc | None
    nbytes: int
    ns: int | None
    reason: str
    file: str
    line: int
    primitive: str = ""
    implementation: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold."""
        descs = {
            "inputs": [_desc_dict(desc) for desc in self.inputs],
            "result": None if self.result is None else _desc_dict(self.result),
        }
        return asdict(self) | descs

    @property
    def what(self) -> str:
        """All but how long it took: the same each time it happens."""
        return self._text("")

    def _text(self, took: str) -> str:
        given = "; ".join(f"{tensor_text(desc)} strides {desc.strides}" for desc in self.inputs)
        became = f" -> {tensor_text(self.result)}" if self.result is not None else ""
        moved = f"; {self.nbytes} bytes" if self.nbytes else ""
        return f"{self.kind} in {self.operator}: {self.reason} ({given}{became}{moved}{took})"

    def __str__(self) -> str:
        from blocklayout.show.words import us

        return self._text("" if self.ns is None else f", {us(self.ns)} us")


def tensor_text(desc: MemoryDesc) -> str:
    """Type, extents and layout, such as ``f32 1x3x8x8 nhwc``.

    Example:
        >>> from blocklayout import MemoryDesc
        >>> tensor_text(MemoryDesc((1, 3, 8, 8), "f32", "acdb"))
        'f32 1x3x8x8 nhwc'
    """
    return str(desc.canonical.in_role("src"))


def _desc_dict(desc: MemoryDesc) -> dict[str, Any]:
    return {
        "dims": list(desc.dims),
        "dtype": desc.dtype,
        "layout": desc.named("src"),
        "strides": list(desc.strides),
        "nbytes": desc.nbytes,
    }


class Watch:
    """A block that is watched; see :func:`watch`.

    It may be entered again, then or later: events are added.

    Attributes:
        mode: How events are treated.
        kinds: The kinds of events that it sees.
        events: Those that were seen, in order.

    Example:
        >>> import blocklayout as bl
        >>> with bl.watch("record") as seen:
        ...     x = bl.zeros((1, 3, 2, 2)).to("nChw8c")
        >>> [(event.kind, event.operator, event.nbytes) for event in seen]
        [('reorder', 'Tensor.to', 176)]
    """

    def __init__(self, mode: WatchMode, kinds: tuple[EventKind, ...] = MOVES) -> None:
        self.mode = mode
        self.kinds = kinds
        self.events: list[Event] = []

    def table(self) -> str:
        """The events as a table of plain text, a row each, and a last line with the totals of each kind."""
        from blocklayout.show.events import events_table

        return events_table(self.events)

    def to_dict(self) -> dict[str, Any]:
        """The events, and number, bytes and nanoseconds of each kind, for JSON."""
        return {
            "mode": self.mode,
            "events": [event.to_dict() for event in self.events],
            "totals": event_totals(self.events),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """:meth:`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    def __enter__(self) -> Self:
        _watches.set((*_watches.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        watches = list(_watches.get())
        if self in watches:  # not so where a block is left in another context than it was entered in
            del watches[-1 - watches[::-1].index(self)]
        _watches.set(tuple(watches))

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<Watch {self.mode!r}: {len(self)} events>"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.table())}</pre>"


class _Call(Struct, frozen=True):
    """A call that reports as one: from where its caller made it, and all together when it is over."""

    file: str
    line: int
    reports: list[tuple[Event, bool]] = field(default_factory=list)


_warned: dict[str, dict[Any, Any]] = {}
"""Python's registry of shown warnings, by file, so that a line in a loop warns once."""

_watches: ContextVar[tuple[Watch, ...]] = ContextVar("blocklayout_watches", default=())
_call: ContextVar[_Call | None] = ContextVar("blocklayout_watched_call", default=None)


def watch(
    mode: WatchMode = "warn", *, only: EventKind | Sequence[EventKind] | None = None, steps: bool = False
) -> Watch:
    """Report every reorder, implicit copy and layout loss in a block, of Tensors and of sessions.

    A block sees its own thread, requests that are submitted to a session in it, and asyncio tasks started in it: these
    belong to it, even if they end later than it does. Other threads it does not see.

    Args:
        mode: ``warn``: a :class:`WatchWarning` each, at the caller's line. ``raise``: the first is a
            :class:`WatchError`; a run of a session ends first. ``record``: they are only kept. All of them keep
            ``events``.
        only: The kinds that are seen, one or several of ``reorder``, ``copy`` and ``loss``; by default all of them.
            Others are neither kept nor told.
        steps: Whether primitives that run are kept too, each with its implementation. They never warn or raise.

    Raises:
        InputError: No such mode, or no such kind.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder, load
        >>> b = Builder()
        >>> b.output("y", b.input("x", (1, 2, 2, 2)).relu())
        >>> session = load(b)
        >>> with watch("record") as w:
        ...     _ = session(np.ones((1, 2, 2, 2), np.float32).transpose(0, 3, 1, 2))
        >>> [(event.kind, event.operator, event.nbytes) for event in w]
        [('reorder', 'input x', 64)]
    """
    if mode not in get_args(WatchMode):
        raise InputError(f"watch({mode!r}): give one of {', '.join(get_args(WatchMode))}")
    kinds: Any = MOVES if only is None else (only,) if isinstance(only, str) else only
    if not isinstance(kinds, Sequence) or not kinds or not all(kind in MOVES for kind in kinds):
        raise InputError(f"watch: only is {only!r:.80}; give one or several of {', '.join(MOVES)}")
    if not isinstance(steps, bool):
        raise InputError(f"watch: steps is {steps!r:.80}; give True or False")
    return Watch(mode, (*kinds, "step") if steps else tuple(kinds))


watches_around: Callable[[], tuple[Watch, ...]] = _watches.get
"""The watched blocks that the calling code runs inside of, the outermost first; takes no time to speak of."""


def is_watched(kind: EventKind | None = None) -> bool:
    """Whether the calling code runs inside of a watched block: of any, or of one that sees events of a kind."""
    watches = _watches.get()
    return bool(watches) and (kind is None or any(kind in each.kinds for each in watches))


def carry(fn: Callable[[], _Result]) -> Callable[[], _Result]:
    """``fn`` in the context of the calling code, for any thread to call, at any time.

    Its reports go to the watches that are around now, with the place of the present caller. They warn or raise when it
    is over, so that it leaves nothing half done; where it fails by itself, that is all that is raised.
    """
    return partial(copy_context().run, _carried, fn, _caller())


def _carried(fn: Callable[[], _Result], place: tuple[str, int]) -> _Result:
    call = _Call(*place)
    token = _call.set(call)
    try:
        result = fn()
    finally:
        _call.reset(token)
    _speak(_watches.get(), call.reports)
    return result


def report(
    kind: EventKind,
    operator: str,
    inputs: Sequence[MemoryDesc],
    result: MemoryDesc | None = None,
    *,
    nbytes: int = 0,
    ns: int | None = None,
    reason: str = "",
    always_warns: bool = False,
) -> None:
    """Tell the watches around the calling code of an :class:`Event`; a WatchError where one raises.

    Nothing happens where there are none, but that with ``always_warns`` the caller gets a :class:`LayoutLossWarning`.
    """
    if always_warns or is_watched(kind):
        _tell(Event(kind, operator, tuple(inputs), result, nbytes, ns, reason, *_caller()), always_warns=always_warns)


def report_step(
    operator: str, inputs: Sequence[MemoryDesc], result: MemoryDesc | None, ns: int, primitive: str, implementation: str
) -> None:
    """Tell the watches that ask for steps of a primitive that ran; ``result`` is the first tensor that it wrote."""
    if is_watched("step"):
        reason = f"{primitive} by {implementation}"
        _tell(Event("step", operator, tuple(inputs), result, 0, ns, reason, *_caller(), primitive, implementation))


def _tell(event: Event, *, always_warns: bool = False) -> None:
    watches = _watches.get()
    for each in dict.fromkeys(watches):
        if event.kind in each.kinds:
            each.events.append(event)
    call = _call.get()
    if call:
        call.reports.append((event, always_warns))
    else:
        _speak(watches, [(event, always_warns)])


def warn_caller(message: str, category: type[Warning]) -> None:
    """A warning at the innermost line that is not ours, which Python shows once a line."""
    file, line = _caller()
    warnings.warn_explicit(message, category, file, line, registry=_warned.setdefault(file, {}))


def _speak(watches: tuple[Watch, ...], reports: Sequence[tuple[Event, bool]]) -> None:
    """Raise or warn, as the watches that see each event are asked to."""
    modes = [
        {each.mode for each in watches if event.kind in each.kinds and event.kind in MOVES} for event, _ in reports
    ]
    raising = [event for (event, _), asked in zip(reports, modes, strict=True) if "raise" in asked]
    if raising:
        event, *others = raising
        more = f" (and {len(others)} more)" if others else ""
        raise WatchError(f"{event.file}:{event.line}: {event}{more}")
    for (event, always_warns), asked in zip(reports, modes, strict=True):
        if "warn" in asked:
            warnings.warn_explicit(
                str(event), LayoutLossWarning if always_warns else WatchWarning, event.file, event.line
            )
        elif always_warns:
            registry = _warned.setdefault(event.file, {})
            warnings.warn_explicit(event.what, LayoutLossWarning, event.file, event.line, registry=registry)


def _caller() -> tuple[str, int]:
    """File and line of the innermost code that is not ours, or that the present call was carried from."""
    call = _call.get()
    if call:
        return call.file, call.line
    frame = sys._getframe(1)  # noqa: SLF001 - as the inspect module does, without reading sources
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def event_totals(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    """How many there are of each kind, their bytes and their nanoseconds, as far as these were measured."""
    found = {kind: [event for event in events if event.kind == kind] for kind in get_args(EventKind)}
    return {
        kind: {
            "n": len(alike),
            "nbytes": sum(event.nbytes for event in alike),
            "ns": sum(event.ns or 0 for event in alike),
        }
        for kind, alike in found.items()
        if alike
    }
