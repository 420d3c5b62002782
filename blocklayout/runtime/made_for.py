"""What a plan was made for: extents, and what inputs that decide others hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Logical extents of every input, in the model's order; those of defaults follow where they are fed."""

Contents = Callable[[str], np.ndarray]
"""Gives what an input is fed, in logical order."""


class MadeFor(Struct, frozen=True, eq=False):
    """The extents and contents that a plan is right for; contents compare by their bits, so it is found by looking."""

    shapes: Shapes
    contents: Mapping[str, np.ndarray]

    def fits(self, shapes: Shapes, contents: Contents) -> bool:
        """Whether the plan is right for these, too."""
        return self.shapes == shapes and all(_same_bits(contents(name), known) for name, known in self.contents.items())


def _same_bits(array: np.ndarray, known: np.ndarray) -> bool:
    """Whether two arrays of one type and shape hold the same bits, NaN or not."""
    return array is known or np.array_equal(_bits(array), _bits(known))


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
