"""ONNX element types by our names, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from blocklayout import dtypes
from blocklayout.errors import LayoutError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike
    from onnx import TypeProto

_ONNX_NAMES = {
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "s8": "INT8",
    "u8": "UINT8",
    "s16": "INT16",
    "u16": "UINT16",
    "s32": "INT32",
    "u32": "UINT32",
    "s64": "INT64",
    "u64": "UINT64",
    "bool": "BOOL",
}

_NAMES = {onnx_name: name for name, onnx_name in _ONNX_NAMES.items()}

DTYPES = tuple(_ONNX_NAMES)
"""The element types a graph may hold; operators take fewer."""


def from_elem_type(elem_type: int, what: str) -> str:
    """Our name of a value of ``TensorProto.DataType``, the element type of ``what``.

    Raises:
        UnsupportedError: Strings, complex numbers and types below one byte.
    """
    onnx_name = _onnx_name(elem_type)
    name = _NAMES.get(onnx_name)
    if name is None:
        supported = ", ".join(_NAMES)
        raise UnsupportedError(f"{what} has ONNX's element type {onnx_name}; supported are {supported}")
    return name


@lru_cache  # each value of each graph is asked for
def _onnx_name(elem_type: int) -> str:
    from onnx import TensorProto

    return TensorProto.DataType.Name(elem_type) if elem_type in TensorProto.DataType.values() else str(elem_type)


def to_elem_type(dtype: str) -> int:
    """The value of ``TensorProto.DataType`` that ``dtype`` is."""
    from onnx import TensorProto

    return int(TensorProto.DataType.Value(_ONNX_NAMES[dtype]))


def from_numpy(dtype: DTypeLike, what: str) -> str:
    """Our name of a numpy dtype, in either byte order.

    Raises:
        UnsupportedError: ONNX has no such tensor, or this library does not take it.

    Example:
        >>> from_numpy("int64", "x")
        's64'
    """
    try:
        return dtypes.from_numpy(dtype)
    except LayoutError as error:
        raise UnsupportedError(f"{what}: {error}") from None


@lru_cache(maxsize=1024)
def type_proto(dtype: str, shape: tuple[int, ...]) -> TypeProto:
    """A tensor type as protobuf; shared, so never write to it."""
    from onnx import helper

    return helper.make_tensor_type_proto(to_elem_type(dtype), shape)


@lru_cache(maxsize=64)
def onnx_type_name(dtype: str) -> str:
    """How ONNX's specification writes a tensor of this type: ``tensor(float)``."""
    from onnx import TensorProto

    return f"tensor({TensorProto.DataType.Name(to_elem_type(dtype)).lower()})"
