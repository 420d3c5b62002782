"""Plan-cache key: the extents of inputs, and the values of inputs that determine extents."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from msgspec import Struct

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Logical extents of every input, in the model's order; those of defaults follow where they are fed."""

Contents = Callable[[str], np.ndarray]
"""Returns what an input is fed, in logical order."""


class PlanKey(Struct, frozen=True):
    """Extents, and the bytes of inputs by name: equal where a plan for one is right for the other."""

    shapes: Shapes
    contents: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, shapes: Shapes, names: Iterable[str], contents: Contents) -> PlanKey:
        """The key of a feed.

        Args:
            shapes: Its extents.
            names: The inputs whose values count.
            contents: Its arrays.
        """
        return cls(shapes, tuple((name, contents(name).tobytes()) for name in names))

    @property
    def deciding(self) -> tuple[str, ...]:
        """The inputs whose values count."""
        return tuple(name for name, _ in self.contents)
