"""Watching: reorders, implicit copies and layout losses, reported while a block runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from blocklayout.errors import InputError, LayoutLossWarning, WatchError, WatchWarning
from blocklayout.layout import MemoryDesc

EventKind = Literal["reorder", "copy", "loss"]
WatchMode = Literal["warn", "raise", "record"]

_PACKAGE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Event:
    """Something that moved bytes for a layout's sake, or dropped a layout.

    Attributes:
        kind: ``reorder``: bytes were brought into another layout. ``copy``: they were copied without being asked
            for. ``loss``: an operator did not keep the layout of its inputs.
        operator: What needed it: an operator's name, or the name of the method that was called.
        inputs: The operator's inputs: shapes, strides, types and layouts.
        result: What came of it; ``None`` where that is no tensor.
        nbytes: Bytes read and written for it, padding included.
        ns: Nanoseconds it took; ``None`` where that was not measured on its own.
        reason: Why, in words.
        file: Where the caller's code called.
        line: Where in that file.
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

    def __str__(self) -> str:
        given = "; ".join(f"{desc} strides {desc.strides}" for desc in self.inputs)
        became = f" -> {self.result}" if self.result is not None else ""
        took = f", {self.ns / 1000:.1f} us" if self.ns is not None else ""
        return f"{self.kind} in {self.operator}: {self.reason} ({given}{became}; {self.nbytes} bytes{took})"


class Watch:
    """A block that is watched; see :func:`watch`.

    Attributes:
        mode: What is done with what is seen.
        events: What was seen, in order.
    """

    def __init__(self, mode: WatchMode) -> None:
        self.mode = mode
        self.events: list[Event] = []
        self._tokens: list[Token[tuple[Watch, ...]]] = []

    def __enter__(self) -> Self:
        self._tokens.append(_watches.set((*_watches.get(), self)))
        return self

    def __exit__(self, *_: object) -> None:
        _watches.reset(self._tokens.pop())

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


_watches: ContextVar[tuple[Watch, ...]] = ContextVar("blocklayout_watches", default=())


def watch(mode: WatchMode = "warn") -> Watch:
    """Report every reorder, implicit copy and layout loss in a block, of Tensors and of sessions.

    Args:
        mode: ``warn``: a :class:`WatchWarning` each, at the caller's line. ``raise``: the first is a
            :class:`WatchError`. ``record``: they are only kept. All of them keep ``events``.

    Raises:
        InputError: No such mode.
    """
    if mode not in get_args(WatchMode):
        raise InputError(f"watch({mode!r}): give one of {', '.join(get_args(WatchMode))}")
    return Watch(mode)


def is_watched() -> bool:
    """Whether the calling code runs inside of a watched block."""
    return bool(_watches.get())


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
    """Tell the watches around the calling code, innermost first; nothing happens where there are none.

    Args:
        kind: As :class:`Event` has it, like all of the following.
        operator: What needed it.
        inputs: The operator's inputs.
        result: What came of it.
        nbytes: Bytes read and written for it.
        ns: Nanoseconds it took.
        reason: Why.
        always_warns: Whether its caller is warned (:class:`LayoutLossWarning`) where nobody watches, too.

    Raises:
        WatchError: A watch raises.
    """
    watches = _watches.get()
    if not (watches or always_warns):
        return
    event = Event(kind, operator, tuple(inputs), result, nbytes, ns, reason, *_place())
    for each in watches:
        each.events.append(event)
    modes = {each.mode for each in watches}
    if "raise" in modes:
        raise WatchError(f"{event.file}:{event.line}: {event}")
    if always_warns or "warn" in modes:
        category = LayoutLossWarning if always_warns else WatchWarning
        warnings.warn_explicit(str(event), category, event.file, event.line)


def _place() -> tuple[str, int]:
    """File and line of the innermost code that is not ours."""
    frame = sys._getframe(1)  # noqa: SLF001 - what the inspect module does, without reading sources
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno
