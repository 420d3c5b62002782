"""What a caller gives to an operator, in the types ONNX's specification asks for."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import ModelError, did_you_mean
from blocklayout.model.schemas import attribute_kind
from blocklayout.model.types import DTYPES, onnx_type_name

if TYPE_CHECKING:
    from onnx.defs import OpSchema


def attributes_as_specified(op_type: str, attrs: Mapping[str, Any], schema: OpSchema) -> dict[str, Any]:
    """``attrs`` with each value in its specified type; those that are ``None`` are left out.

    Raises:
        ModelError: The operator has no such attribute, or it is of another type.
    """
    converted: dict[str, Any] = {}
    for name, value in attrs.items():
        if value is None:
            continue
        if name not in schema.attributes:
            raise ModelError(_unknown(op_type, name, list(schema.attributes)))
        kind = attribute_kind(schema, name)
        converted[name] = _converted(op_type, name, value, kind)
    return converted


def literal_as_array(literal: Any, what: str, schema: OpSchema, index: int, dtypes: Sequence[str | None]) -> np.ndarray:
    """A number, list or array that stands for input ``index``.

    An array keeps its type. Numbers and lists take the type of the values beside them where the operator
    allows it, else the one the operator asks for.

    Args:
        literal: What the caller gave.
        what: Which argument it is, for the error message.
        schema: The operator's specification.
        index: Of the input.
        dtypes: Of the operator's arguments; ``None`` for those that are literals too.

    Raises:
        ModelError: It is not numeric.
    """
    if isinstance(literal, np.ndarray) or (isinstance(literal, np.generic) and not isinstance(literal, float)):
        return np.asarray(literal)
    try:
        array = np.asarray(literal)
    except ValueError as error:
        raise ModelError(f"{what} must be a value, an array or a number, not {literal!r}") from error
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ModelError(f"{what} must be a value, an array or a number, not {type(literal).__name__}")
    if hasattr(literal, "dtype") or not schema.inputs:
        return array
    dtype = _wanted_dtype(schema, index, [dtype for dtype in dtypes if dtype is not None])
    return array.astype(to_numpy(dtype)) if dtype else array


def _wanted_dtype(schema: OpSchema, index: int, beside: Sequence[str]) -> str | None:
    allowed = schema.inputs[min(index, len(schema.inputs) - 1)].types
    for dtype in (*beside, "s64", "f32", *DTYPES):
        if onnx_type_name(dtype) in allowed:
            return dtype
    return None


def _unknown(op_type: str, name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{op_type} has no attribute {name!r}; it has {', '.join(sorted(known)) or 'none'}{hint}"


def _converted(op_type: str, name: str, value: Any, kind: str) -> Any:
    single = _CONVERSIONS.get(kind.removesuffix("S"))
    if single is None:
        raise ModelError(f"{op_type}'s attribute {name!r} is of ONNX's type {kind}, which cannot be given here")
    try:
        return tuple(single(item) for item in value) if kind.endswith("S") else single(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{op_type}'s attribute {name!r} must be {_WORDS[kind]}, not {value!r}") from error


def _as_float(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError(value)
    return float(np.float32(value))  # what ONNX stores


def _as_string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "INT": operator.index,
    "FLOAT": _as_float,
    "STRING": _as_string,
    "TENSOR": np.asarray,
}
_WORDS = {
    "INT": "an integer",
    "INTS": "a list of integers",
    "FLOAT": "a number",
    "FLOATS": "a list of numbers",
    "STRING": "a string",
    "STRINGS": "a list of strings",
    "TENSOR": "an array",
    "TENSORS": "a list of arrays",
}
