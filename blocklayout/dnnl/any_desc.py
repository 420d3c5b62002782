"""A descriptor whose layout is left to the primitive."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from blocklayout.dtypes import itemsize, named
from blocklayout.encoding import Either
from blocklayout.layout import MemoryDesc


class AnyDesc(Struct, frozen=True):
    """Extents and data type without a layout; a primitive descriptor made with it proposes one.

    Attributes:
        dims: Logical extents in elements.
        dtype: Data type, such as ``f32``; numpy's and ml_dtypes' types become their names.

    Example:
        >>> AnyDesc((1, 64, 56, 56), "f32")
        AnyDesc(dims=(1, 64, 56, 56), dtype='f32')
    """

    dims: tuple[int, ...]
    dtype: str = "f32"

    def __post_init__(self) -> None:
        force_setattr(self, "dims", tuple(int(extent) for extent in self.dims))
        force_setattr(self, "dtype", named(self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.dims))} any"

    @property
    def nbytes(self) -> int:
        """Bytes of its logical elements."""
        return math.prod(self.dims) * itemsize(self.dtype)


if TYPE_CHECKING:
    Desc = MemoryDesc | AnyDesc
else:
    Desc = Either.of(MemoryDesc, AnyDesc)
"""The descriptor of a primitive's argument."""
