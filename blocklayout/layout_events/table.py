"""Events as a table of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from blocklayout.layout_events.events import tensor_text
from blocklayout.text_table import folded, table

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.layout_events.events import Event

OPERATOR_WIDTH, REASON_WIDTH = 28, 40

_HEADER = ("kind", "operator", "where", "inputs", "result", "KiB", "us", "reason")
_PLURALS = {"reorder": "reorders", "copy": "copies", "loss": "losses"}


def event_lines(events: Sequence[Event]) -> Iterator[str]:
    """A row for each event, and a line with what there was of each kind."""
    if events:
        yield from table(_HEADER, [line for event in events for line in folded(_cells(event))])
    yield ", ".join(_total_text(kind, total) for kind, total in totals(events).items()) or "nothing was moved or lost"


def totals(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    """How many there are of each kind, their bytes and their nanoseconds, as far as these were measured."""
    found = {kind: [event for event in events if event.kind == kind] for kind in _PLURALS}
    return {
        kind: {
            "n": len(alike),
            "nbytes": sum(event.nbytes for event in alike),
            "ns": sum(event.ns or 0 for event in alike),
        }
        for kind, alike in found.items()
        if alike
    }


def _cells(event: Event) -> list[list[str]]:
    return [
        [event.kind],
        wrap(event.operator, OPERATOR_WIDTH),
        [f"{Path(event.file).name}:{event.line}"],
        [line for desc in event.inputs for line in (tensor_text(desc), f"  strides {desc.strides}")],
        [_result_text(event)],
        [f"{event.nbytes / 1024:,.1f}" if event.nbytes else ""],
        [f"{event.ns / 1000:,.1f}" if event.ns is not None else ""],
        wrap(event.reason, REASON_WIDTH),
    ]


def _result_text(event: Event) -> str:
    """Only the layout, where all else is as it was."""
    if event.result is None:
        return ""
    is_alike = len(event.inputs) == 1 and _kind_of(event.inputs[0]) == _kind_of(event.result)
    return event.result.named("src") if is_alike else tensor_text(event.result)


def _kind_of(desc: MemoryDesc) -> tuple[str, tuple[int, ...]]:
    return desc.dtype, desc.dims


def _total_text(kind: str, total: dict[str, Any]) -> str:
    counted = f"{total['n']} {kind if total['n'] == 1 else _PLURALS[kind]}"
    parts = [f"{total['nbytes'] / 1024:,.1f} KiB"] if total["nbytes"] else []
    parts += [f"{total['ns'] / 1000:,.1f} us"] if total["ns"] else []
    return f"{counted} ({', '.join(parts)})" if parts else counted
