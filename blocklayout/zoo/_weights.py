"""Random weights that keep what flows through a network in range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Weights:
    """Draws weights, one array after the other.

    Args:
        seed: The same seed gives the same arrays; ``None`` gives ones that take no memory, to count by.
    """

    def __init__(self, seed: int | None) -> None:
        self._generator = None if seed is None else np.random.default_rng(seed)

    def normal(self, shape: Sequence[int], deviation: float) -> NDArray[np.float32]:
        """Normally distributed around 0."""
        if self._generator is None:
            return _ones(shape)
        values = self._generator.standard_normal(tuple(shape), np.float32)
        values *= np.float32(deviation)
        return values

    def uniform(self, shape: Sequence[int], low: float, high: float) -> NDArray[np.float32]:
        """Uniformly distributed between two positive numbers."""
        if self._generator is None:
            return _ones(shape)
        return self._generator.uniform(low, high, tuple(shape)).astype(np.float32)

    def he(self, shape: Sequence[int], fan_in: float, power: float) -> NDArray[np.float32]:
        """He-normal: sums of ``fan_in`` products have unit variance.

        Args:
            shape: Of the weights.
            fan_in: How many products are summed.
            power: Mean square of what they multiply; 1/2 behind a ReLU, which is He's factor of 2.
        """
        return self.normal(shape, 1 / math.sqrt(fan_in * power))


def _ones(shape: Sequence[int]) -> NDArray[np.float32]:
    return np.broadcast_to(np.float32(1), tuple(shape))
