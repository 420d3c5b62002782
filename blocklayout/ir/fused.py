"""The alternative to a layout, for a value that is never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from blocklayout.layout import MemoryDesc


class Fused(Struct, frozen=True):
    """In place of the layout of a value that is never stored: its reader computes on without it.

    No copy leads to it or from it. Equal ones belong to one way of fusing the value's producer with its reader.

    Attributes:
        held: The layout in which the primitive holds the value, or would if it needed it.
        impl: The primitive's implementation.
    """

    held: MemoryDesc
    impl: str

    @property
    def dtype(self) -> str:
        """Data type of the value."""
        return self.held.dtype

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON can hold, the same for equal ones; the key ``fused`` tells it from a descriptor."""
        return {"fused": self.impl, "held": self.held.canonical.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Fused:
        """The one that :meth:`to_dict` wrote.

        Raises:
            LayoutError: ``held`` is no descriptor.
            TypeError: ``fused`` is no text.
        """
        if not isinstance(data["fused"], str):
            raise TypeError(f"fused names an implementation, not {data['fused']!r}")
        return cls(MemoryDesc.from_dict(data["held"]), data["fused"])


ValueLayout = MemoryDesc | Fused


def readable_as(written: ValueLayout, wanted: ValueLayout) -> bool:
    """Whether a value that was left so may be read so without a copy; a fused one by its other half alone."""
    if isinstance(written, MemoryDesc) and isinstance(wanted, MemoryDesc):
        return written.readable_as(wanted)
    return written == wanted


def layout_name(layout: ValueLayout) -> str:
    """Name of a value's layout, such as ``nChw16c``; ``fused`` where it has none."""
    return "fused" if isinstance(layout, Fused) else layout.named("src")
