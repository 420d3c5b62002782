"""Values: the tensors a network computes, before any of them has a layout."""

from __future__ import annotations

import numpy as np
from msgspec import Struct


class Value(Struct, frozen=True, eq=False):
    """A named tensor of the network; two values are equal only if they are the same object.

    Attributes:
        dtype: ``f32``, ``s32``, ...; beyond oneDNN's data types also ``s64``, ``bool`` and others,
            with which no primitive computes.
        data: The contents, if it is a constant.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Extents as descriptors have them: a scalar is one element of rank 1."""
        return self.shape or (1,)

    @property
    def is_constant(self) -> bool:
        """Whether the contents are known before the network runs."""
        return self.data is not None
