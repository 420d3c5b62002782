"""Values: the tensors a network computes, before any of them has a layout."""

from __future__ import annotations

from math import prod

import numpy as np
from msgspec import Struct


class Quantization(Struct, frozen=True, eq=False):
    """How bytes stand for real numbers: ``scale * (byte - zero_point)``.

    Attributes:
        dtype: Data type of the bytes, ``u8`` or ``s8``.
        scale: A known value: one number, or one for each index along ``axis``.
        zero_point: Likewise; ``None`` where all are 0.
        integers: Of a constant, its bytes.
    """

    dtype: str
    scale: Value
    zero_point: Value | None
    axis: int
    integers: Value | None = None

    @property
    def is_of_whole(self) -> bool:
        """Whether one scale, and one zero point, are those of all elements."""
        return all(value is None or prod(value.shape) == 1 for value in (self.scale, self.zero_point))


class Value(Struct, frozen=True, eq=False):
    """A named tensor of the network; two values are equal only if they are the same object.

    Attributes:
        dtype: ``f32``, ``s32``, ...; beyond oneDNN's data types also ``s64``, ``bool`` and others,
            with which no primitive computes.
        data: The contents, if it is a constant.
        quantization: Of real numbers that bytes stand for, how.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None = None
    quantization: Quantization | None = None

    @property
    def dims(self) -> tuple[int, ...]:
        """Extents as descriptors have them: a scalar is one element of rank 1."""
        return self.shape or (1,)

    @property
    def is_constant(self) -> bool:
        """Whether the contents are known before the network runs."""
        return self.data is not None
