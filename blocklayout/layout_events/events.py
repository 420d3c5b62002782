"""Events that a watch sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc

EventKind = Literal["reorder", "copy", "loss"]


class Event(Struct, frozen=True):
    """Something that moved bytes for a layout's sake, or dropped a layout.

    Attributes:
        kind: ``reorder``: bytes were brought into another layout. ``copy``: they were copied without being asked
            for. ``loss``: an operator did not keep the layout of its inputs.
        operator: What needed it: an operator's name, or the name of the method that was called.
        inputs: What was read: shapes, strides, types and layouts.
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

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values that JSON can hold."""
        return {
            "kind": self.kind,
            "operator": self.operator,
            "file": self.file,
            "line": self.line,
            "inputs": [_desc_dict(desc) for desc in self.inputs],
            "result": None if self.result is None else _desc_dict(self.result),
            "nbytes": self.nbytes,
            "ns": self.ns,
            "reason": self.reason,
        }

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
        return self._text("" if self.ns is None else f", {self.ns / 1000:.1f} us")


def tensor_text(desc: MemoryDesc) -> str:
    """Type, extents and layout, such as ``f32 1x3x8x8 nhwc``.

    Example:
        >>> from blocklayout import MemoryDesc
        >>> tensor_text(MemoryDesc((1, 3, 8, 8), "f32", "acdb"))
        'f32 1x3x8x8 nhwc'
    """
    return f"{desc.dtype} {'x'.join(map(str, desc.dims))} {desc.named('src')}"


def _desc_dict(desc: MemoryDesc) -> dict[str, Any]:
    return {
        "dims": list(desc.dims),
        "dtype": desc.dtype,
        "layout": desc.named("src"),
        "strides": list(desc.strides),
        "nbytes": desc.nbytes,
    }
