"""Where in a model's file its constants lie: enough to make them again from the file's bytes alone."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import from_numpy, to_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_COPIED_NBYTES = 4 << 20
"""Of all constants together that do not lie in the file, such as biases that were computed."""

Bytes: TypeAlias = "memoryview | np.ndarray"


class FileBytes(np.ndarray):
    """All bytes of a file; an array that is a view of them is found in it."""


class Scaled(np.ndarray):
    """Owns the elements of a product whose factors are known."""

    factors: tuple[Part, Copy] | None = None


class Copy(Struct, frozen=True, tag=True):
    """The elements themselves, row by row."""

    dtype: str
    shape: tuple[int, ...]
    contents: bytes

    @classmethod
    def of(cls, array: np.ndarray) -> Copy:
        """A copy of an array."""
        return cls(from_numpy(array.dtype), array.shape, array.tobytes())

    def lies_in(self, nbytes: int) -> bool:
        """Whether it is whole."""
        del nbytes
        return min(self.shape, default=0) >= 0 and len(self.contents) == _nbytes(self.shape, self.dtype)

    def array(self, file: Bytes | None = None) -> np.ndarray:
        """The array; it takes nothing of the file."""
        del file
        return np.frombuffer(self.contents, to_numpy(self.dtype)).reshape(self.shape)


class Part(Struct, frozen=True, tag=True):
    """Elements that lie among others; offset and strides in bytes."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def lies_in(self, nbytes: int) -> bool:
        """Whether it reaches no further than a file of so many bytes."""
        steps = zip(self.shape, self.strides, strict=True)
        reach = self.offset + sum((extent - 1) * stride for extent, stride in steps) + to_numpy(self.dtype).itemsize
        return min(self.offset, *self.shape, *self.strides) >= 0 and reach <= nbytes

    def array(self, file: Bytes) -> np.ndarray:
        """The view of these bytes."""
        return np.ndarray(self.shape, to_numpy(self.dtype), file, self.offset, self.strides)


class Product(Struct, frozen=True, tag=True):
    """A view of a part of a file that was scaled."""

    part: Part
    scale: Copy
    view: Part

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the view."""
        return self.view.shape

    def lies_in(self, nbytes: int) -> bool:
        """Whether the part does, and the view in the product."""
        axes = zip(self.scale.shape[::-1], self.part.shape[::-1], strict=False)
        is_scaled = self.scale.lies_in(nbytes) and all(one in (1, extent) for one, extent in axes)
        is_viewed = self.view.lies_in(_nbytes(self.part.shape, self.part.dtype))
        return is_scaled and is_viewed and self.part.lies_in(nbytes)

    def array(self, file: Bytes) -> np.ndarray:
        """The view of the product, computed anew."""
        return self.view.array(scaled(self.part.array(file), self.scale.array()))


def _nbytes(shape: tuple[int, ...], dtype: str) -> int:
    return prod(shape) * to_numpy(dtype).itemsize


Origin: TypeAlias = Copy | Part | Product


def scaled(array: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The product, computed in float64 and rounded once; it is found in a file where ``array`` is."""
    product = Scaled(array.shape, array.dtype)
    # piece by piece: as a whole it would be twice as large in float64
    np.multiply(array, scale, out=product, dtype=np.float64, casting="unsafe")
    part = origin_of(array)
    product.factors = (part, Copy.of(scale)) if isinstance(part, Part) else None
    return product.view(np.ndarray)


def origins_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Origin] | None:
    """How arrays follow from the file that they came from; ``None`` where too much would have to be copied."""
    found: dict[str, Origin] = {}
    n_copied = 0
    for name, array in arrays.items():
        origin: Origin | None = origin_of(array)
        if origin is None:
            n_copied += array.nbytes
            if n_copied > MAX_COPIED_NBYTES:
                return None
            origin = Copy.of(array)
        found[name] = origin
    return found


def owner_of(array: np.ndarray) -> object:
    """The object that holds the elements of an array: another array, or the lender of its bytes."""
    owner: object = array
    while isinstance(owner, np.ndarray) and owner.base is not None:
        owner = owner.base
    return owner.obj if isinstance(owner, memoryview) else owner


def origin_of(array: np.ndarray) -> Part | Product | None:
    """How an array follows from its file; ``None`` where it is no view of one, nor of a product of known factors."""
    if min(array.strides, default=0) < 0 or not array.size:
        return None
    owner = owner_of(array)
    if not isinstance(owner, FileBytes | Scaled):
        return None
    offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    view = Part(offset, from_numpy(array.dtype), array.shape, array.strides)
    if isinstance(owner, FileBytes):
        return view
    return None if owner.factors is None else Product(*owner.factors, view)
