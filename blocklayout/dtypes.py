"""The data types oneDNN computes in, by oneDNN's names."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.errors import LayoutError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ITEMSIZES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "s32": 4, "s8": 1, "u8": 1}
"""Bytes of one element, by data type."""

_NUMPY_NAMES = {
    "f32": "float32",
    "f16": "float16",
    "f64": "float64",
    "s32": "int32",
    "s8": "int8",
    "u8": "uint8",
}
_FROM_NUMPY = {numpy_name: name for name, numpy_name in _NUMPY_NAMES.items()}


def itemsize(dtype: str) -> int:
    """Bytes of one element of ``dtype``.

    Raises:
        LayoutError: No such data type.

    Example:
        >>> itemsize("bf16")
        2
    """
    if dtype not in ITEMSIZES:
        raise LayoutError(f"no data type {dtype!r}; the library knows {', '.join(ITEMSIZES)}")
    return ITEMSIZES[dtype]


def to_numpy(dtype: str) -> np.dtype:
    """The numpy dtype that holds ``dtype``; bf16 is ``ml_dtypes.bfloat16``.

    Raises:
        LayoutError: No such data type.

    Example:
        >>> to_numpy("s8")
        dtype('int8')
    """
    itemsize(dtype)
    if dtype == "bf16":
        import ml_dtypes  # 10 ms, and only bf16 needs it

        bfloat16: np.dtype = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(_NUMPY_NAMES[dtype])


def from_numpy(dtype: DTypeLike) -> str:
    """The data type that a numpy dtype is, in either byte order.

    Raises:
        LayoutError: oneDNN has no such data type.

    Example:
        >>> from_numpy("float16")
        'f16'
    """
    return _name_of(np.dtype(dtype))


@cache
def _name_of(dtype: np.dtype) -> str:
    name = dtype.name
    if name == "bfloat16":
        return "bf16"
    if name not in _FROM_NUMPY:
        known = ", ".join([*_FROM_NUMPY, "bfloat16"])
        raise LayoutError(f"oneDNN has no data type for numpy's {name}; convert with .astype to one of {known}")
    return _FROM_NUMPY[name]
