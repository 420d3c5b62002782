"""Every way to damage one field of a plan's JSON."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DELETED = object()
OTHERS: tuple[Any, ...] = (None, True, -1, 0, 2**70, float("nan"), 1e308, "", "nonsense", [], {}, [[]])
"""What no field of a plan may hold without being looked at."""


@dataclass(frozen=True)
class Mutation:
    """One field with another value.

    Attributes:
        path: Keys and indices that lead to it.
        value: What it becomes; it goes where that is ``DELETED``.
    """

    path: tuple[str | int, ...]
    value: Any

    def __str__(self) -> str:
        where = ".".join(map(str, self.path))
        return f"{where} deleted" if self.value is DELETED else f"{where} = {self.value!r:.40}"

    def of(self, data: Any) -> Any:
        """A copy of ``data``, damaged."""
        changed = copy.deepcopy(data)
        inside = changed
        for key in self.path[:-1]:
            inside = inside[key]
        if self.value is DELETED:
            del inside[self.path[-1]]
        else:
            inside[self.path[-1]] = self.value
        return changed


def fields(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every field with its value, containers before what they hold."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key), value
        yield from fields(value, (*path, key))


def mutations(path: tuple[str | int, ...], value: Any) -> Iterator[Mutation]:
    """Damages to one field: gone, of other types, too small, too large, and close to what it was."""
    yield Mutation(path, DELETED)
    yield from (Mutation(path, other) for other in OTHERS if other != value or type(other) is not type(value))
    if type(value) in (int, float):
        yield from (Mutation(path, other) for other in (value + 1, value - 1, value + 64, value * 2 + 64))
    elif isinstance(value, list):
        yield from (
            Mutation(path, other) for other in (value[:-1], [*value, *value[-1:]], value[::-1]) if other != value
        )
    elif isinstance(value, str):
        yield from (Mutation(path, other) for other in (value + "x", value[:-1]) if other != value)
