"""Data types: those oneDNN computes in, by its names, and those a model may hold beside them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.errors import LayoutError, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

ITEMSIZES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "s32": 4, "s8": 1, "u8": 1}
"""Bytes of one element, by data type that oneDNN has."""

PRIMITIVE_FLOATS = ("f32", "bf16", "f16")
"""Floating-point types whose numbers primitives compute with."""

BYTE_DTYPES = ("u8", "s8")
"""Integers of 8 bits: in quantised models they stand for numbers, and primitives multiply them."""

FLOATS = ("f32", "f64", "f16", "bf16")
"""Floating-point types that a model may hold."""

_OTHER_ITEMSIZES = {"s64": 8, "u64": 8, "u32": 4, "s16": 2, "u16": 2, "bool": 1}
_ALL_ITEMSIZES = ITEMSIZES | _OTHER_ITEMSIZES
_REORDERED = frozenset(ITEMSIZES) - {"f64"}

_KINDS = {"f": "float", "s": "int", "u": "uint"}
_NUMPY_NAMES = {name: _KINDS[name[0]] + name[1:] for name in _ALL_ITEMSIZES if name[0] in _KINDS} | {"bool": "bool"}
_ALIASES = {"bfloat16": "bf16", "fp32": "f32", "fp16": "f16", "fp64": "f64", "half": "f16"}
"""Names that others give them; numpy knows bfloat16 only where ml_dtypes was imported."""
_FROM_NUMPY = {numpy_name: name for name, numpy_name in _NUMPY_NAMES.items()}


def itemsize(dtype: str) -> int:
    """Bytes of one element of ``dtype``; a LayoutError where there is no such data type.

    Example:
        >>> itemsize("bf16")
        2
    """
    if dtype not in _ALL_ITEMSIZES:
        raise LayoutError(f"no data type {dtype!r}; there are {', '.join(_ALL_ITEMSIZES)}")
    return _ALL_ITEMSIZES[dtype]


def has_reorder(dtype: str) -> bool:
    """Whether oneDNN moves elements of this type from one layout to another; numpy does for the rest.

    Example:
        >>> has_reorder("bf16"), has_reorder("s64")
        (True, False)
    """
    return dtype in _REORDERED


def to_numpy(dtype: str) -> np.dtype:
    """The numpy dtype that holds ``dtype``, of bf16 ``ml_dtypes.bfloat16``; a LayoutError where there is no such type.

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
    """The data type that a numpy dtype is, in either byte order; a LayoutError of texts, objects and complex numbers.

    Example:
        >>> from_numpy("float16")
        'f16'
    """
    return _name_of(np.dtype(dtype))


def named(dtype: DTypeLike | None) -> str:
    """The data type of a name, here or in numpy, or of numpy's or ml_dtypes' type; a LayoutError where there is none.

    Example:
        >>> named("u8"), named("float32"), named("fp16"), named(np.int8)
        ('u8', 'f32', 'f16', 's8')
    """
    if isinstance(dtype, str) and dtype in _ALL_ITEMSIZES:
        return dtype
    if isinstance(dtype, str) and dtype in _ALIASES:
        return _ALIASES[dtype]
    try:
        given = np.dtype(dtype) if isinstance(dtype, str | type | np.dtype) else None  # numpy also takes records
    except (TypeError, ValueError, SyntaxError):  # numpy has Python parse texts that begin with a digit
        given = None
    if given is not None:
        return _name_of(given)
    hint = did_you_mean(dtype, (*_ALL_ITEMSIZES, *_FROM_NUMPY)) if isinstance(dtype, str) else ""
    raise LayoutError(f"no data type {dtype!r}; there are {', '.join(_ALL_ITEMSIZES)}{hint}")


@cache
def _name_of(dtype: np.dtype) -> str:
    name = dtype.name
    if name == "bfloat16":
        return "bf16"
    if name not in _FROM_NUMPY:
        known = ", ".join([*_FROM_NUMPY, "bfloat16"])
        raise LayoutError(f"no data type for numpy's {name}; convert with .astype to one of {known}")
    return _FROM_NUMPY[name]
