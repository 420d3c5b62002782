"""Decisions read from bytes: what a fuzzer mutates is the bytes, and any of them lead to a well-formed case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

_Item = TypeVar("_Item")

INTEGERS = (
    *(0, 1, -1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 1000, 4096),
    *(-2, -3, -7, -128, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, -(2**31), 2**32, 2**32 + 1, 2**40, 2**53, 2**59),
    *(2**62, 2**63 - 1, -(2**63)),
)
"""Integers at which programs go wrong."""

FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-38, 3e38, 1e308, -1e308, 2.0**31),
    *(float("inf"), float("-inf"), float("nan")),
)
"""Numbers at which programs go wrong."""

WORDS = (
    *("", "x", "y", " ", "\0", "../x", "/etc/hostname", "a" * 300, "ä", "\ud800"),
    *("nan", "-1", "0", "1e9", "None", "%s", "{}"),
)
"""Texts at which programs go wrong."""


class Choices:
    """A reader of decisions; behind the end of the bytes every decision is the first one.

    Args:
        data: The input.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def is_over(self) -> bool:
        """Whether all bytes were read."""
        return self._at >= len(self._data)

    def rest(self, most: int = 1 << 16) -> bytes:
        """The bytes that were not read yet."""
        found = self._data[self._at : self._at + most]
        self._at += len(found)
        return found

    def below(self, n: int) -> int:
        """A number from 0 to ``n`` - 1."""
        if n <= 1:
            return 0
        width = 1 if n <= 256 else 2 if n <= 65536 else 4
        return int.from_bytes(self.rest(width), "little") % n

    def pick(self, items: Sequence[_Item]) -> _Item:
        """One of them."""
        return items[self.below(len(items))]

    def chance(self, one_in: int) -> bool:
        """Whether something happens that seldom does; never behind the end."""
        return not self.is_over and self.below(one_in) == one_in - 1

    def integer(self) -> int:
        """A small number, or one at which programs go wrong."""
        kind = self.below(4)
        return self.pick(INTEGERS) if kind == 1 else self.below(20) if kind < 3 else self.below(65536) - 1000

    def extent(self) -> int:
        """A small number, seldom 0."""
        return self.pick((1, 2, 3, 4, 5, 8, 16, 17, 0, 7))

    def extents(self, most: int = 6) -> tuple[int, ...]:
        """The extents of a small tensor."""
        return tuple(self.extent() for _ in range(self.below(most + 1)))

    def number(self) -> float:
        """A number, infinite or none."""
        return self.pick(FLOATS)

    def text(self, known: Sequence[str] = ()) -> str:
        """One of the known texts, one at which programs go wrong, or bytes as they come."""
        kind = self.below(4)
        if kind < 2 and known:
            return self.pick(known)
        return self.pick(WORDS) if kind < 3 else self.rest(self.below(24)).decode("latin-1")

    def spoilt_text(self, text: str, known: Sequence[str] = ()) -> str:
        """A text with one to three places changed."""
        for _ in range(1 + self.below(3)):
            start = self.below(len(text) + 1)
            end = start + self.below(4)
            text = text[:start] + self.text(known) + text[end:]
        return text

    def spoilt(self, content: bytes) -> bytes:
        """Bytes with some places changed, cut out or doubled."""
        found = bytearray(content)
        for _ in range(1 + self.below(4)):
            at = self.below(len(found) + 1)
            kind = self.below(5)
            if kind == 0:
                found[at : at + 1] = bytes([self.below(256)])
            elif kind == 1:
                found[at : at + 8] = self.integer().to_bytes(8, "little", signed=True) if self.below(2) else b"\xff" * 8
            elif kind == 2:
                del found[at : at + 1 + self.below(64)]
            elif kind == 3:
                found[at:at] = found[at : at + 1 + self.below(64)]
            else:
                del found[at:]
        return bytes(found)

    def spoilt_json(self, value: Any) -> Any:
        """Decoded JSON with one to three values changed, removed or exchanged."""
        for _ in range(1 + self.below(3)):
            value = self._spoilt_somewhere(value)
        return value

    def _spoilt_somewhere(self, value: Any, depth: int = 0) -> Any:
        if depth < 60 and isinstance(value, dict) and value and not self.chance(24):
            return self._spoilt_entry(value, depth)
        if depth < 60 and isinstance(value, list) and value and not self.chance(24):
            return self._spoilt_item(value, depth)
        return self._other(value)

    def _spoilt_entry(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        found = dict(value)
        key = self.pick([*found])
        if self.chance(24):
            del found[key]
        elif self.chance(24):
            found[self.text([*found])] = found[key]
        elif self.chance(24):
            found[key] = found[self.pick([*found])]
        else:
            found[key] = self._spoilt_somewhere(found[key], depth + 1)
        return found

    def _spoilt_item(self, value: list[Any], depth: int) -> list[Any]:
        found = list(value)
        at = self.below(len(found))
        if self.chance(16):
            del found[at]
        elif self.chance(16):
            found.insert(self.below(len(found) + 1), found[at])
        elif self.chance(16):
            other = self.below(len(found))
            found[at], found[other] = found[other], found[at]
        else:
            found[at] = self._spoilt_somewhere(found[at], depth + 1)
        return found

    def _other(self, value: Any) -> Any:
        """Something in the place of a value: mostly of its type."""
        if self.chance(8):
            return self.pick((None, True, 0, -1, "", [], {}, 1.5, 2**70, [[]], [None]))
        if isinstance(value, bool) or value is None:
            return not value
        if isinstance(value, int):
            return self.pick((value + 1, value - 1, -value, 2 * value, self.integer(), self.integer()))
        if isinstance(value, float):
            return self.number()
        return self.spoilt_text(value, (value,)) if isinstance(value, str) else self.pick(([], {}, None, 0, ""))
