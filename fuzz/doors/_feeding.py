"""Arrays to feed sessions with, of whatever their inputs declare."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from blocklayout.dtypes import to_numpy
from fuzz.choices import Choices

MAX_ELEMENTS = 1 << 20
"""Of one array; a model that declares more is not fed."""


def array(choices: Choices, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers, or seldom bytes as they come."""
    n = prod(shape)
    source = np.random.default_rng(choices.below(256))
    if choices.chance(8):
        return np.frombuffer(source.bytes(n * dtype.itemsize), dtype).reshape(shape)
    with np.errstate(all="ignore"):
        return source.integers(-2, 6, shape).astype(dtype)


def feed(session: Any, choices: Choices) -> dict[str, Any] | None:
    """An array for each input of a session; ``None`` where those would be large, or cannot be."""
    found: dict[str, Any] = {}
    for info in session.get_inputs():
        extents = choices.extents() if info.shape is None else info.shape
        shape = tuple(extent if isinstance(extent, int) else choices.extent() for extent in extents)
        if prod(filter(None, shape)) > MAX_ELEMENTS or min(shape, default=0) < 0:
            return None
        each = array(choices, to_numpy(info.dtype), shape)
        found[info.name] = [each, each] if info.container == "sequence" else each
    return found


def run(session: Any, choices: Choices) -> None:
    """Run a session once on such arrays."""
    fed = feed(session, choices)
    if fed is not None:
        with np.errstate(all="ignore"):
            session.run(None, fed)
