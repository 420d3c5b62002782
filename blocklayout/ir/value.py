"""Values: the tensors a network computes, before any of them has a layout."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace


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

    def scaled(self, by: np.ndarray) -> Quantization | None:
        """That of the numbers times ``by``, which broadcasts to them; ``None`` where they have no such scales."""
        axes = [dim for dim, extent in enumerate(by.shape) if extent > 1]
        if (by == 1).all():
            return self
        if self.scale.data is None or len(axes) > 1 or not (self.is_of_whole or axes in ([], [self.axis])):
            return None
        scale = (self.scale.data.reshape(-1) * by.reshape(-1)).astype(np.float32)
        axis = axes[0] if axes else self.axis
        return replace(self, scale=Value(f"{self.scale.name}.folded", scale.shape, "f32", scale), axis=axis)


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

    def renamed(self, names: Mapping[str, str]) -> Value:
        """The same with other names for it and for what its quantisation reads."""
        given = self.quantization
        if given is not None:
            known = {name: getattr(given, name) for name in ("scale", "zero_point", "integers")}
            given = replace(given, **{name: value and value.renamed(names) for name, value in known.items()})
        return replace(self, name=names.get(self.name, self.name), quantization=given)

    def reshaped(self, name: str, shape: tuple[int, ...]) -> Value:
        """A constant with other extents; its bytes are kept with it where there are only more extents of 1 in front."""
        data = None if self.data is None else self.data.reshape(shape)
        given, n_more = self.quantization, len(shape) - len(self.shape)
        if given is None or given.integers is None or shape != (1,) * n_more + self.shape:
            return Value(name, shape, self.dtype, data)
        integers = given.integers.reshaped(given.integers.name, shape)
        axis = given.axis % max(len(self.shape), 1) + n_more
        return Value(name, shape, self.dtype, data, replace(given, axis=axis, integers=integers))
