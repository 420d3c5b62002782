"""ONNX's operator specifications: nodes and arguments of operators against them, and nodes as protobuf."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import ModelError, did_you_mean
from blocklayout.model.graph import Node
from blocklayout.model.types import DTYPES, onnx_type_name, type_proto

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto
    from onnx.defs import OpSchema

    from blocklayout.ir.value import Value


def to_proto(node: Node) -> NodeProto:
    """A node as protobuf."""
    from onnx import helper, numpy_helper

    def as_attribute(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return numpy_helper.from_array(value)
        return list(value) if isinstance(value, tuple) else value

    op_type = node.op_type.removeprefix(f"{node.domain}.")
    proto = helper.make_node(op_type, node.inputs, node.outputs, name=node.name, domain=node.domain)
    for name, value in node.attrs.items():
        # an empty list has no type of its own
        kind = _attribute_type(node.op_type, name) if isinstance(value, tuple) and not value else None
        proto.attribute.append(helper.make_attribute(name, as_attribute(value), attr_type=kind))
    return proto


def value_info(value: Value) -> ValueInfoProto:
    """A value's name and type as protobuf."""
    from onnx import ValueInfoProto

    return ValueInfoProto(name=value.name, type=type_proto(value.dtype, value.shape))


def with_named_outputs(node: Node) -> Node:
    """The node with names also for unread outputs: the checker refuses a first one without."""
    if all(node.outputs):
        return node
    return node.replace(outputs=tuple(name or f"unread output {index}" for index, name in enumerate(node.outputs)))


def find_schema(node: Node, opset: int) -> OpSchema:
    """The operator's specification at ``opset``.

    Raises:
        ModelError: There is no such operator in this version of the operator set.
    """
    schema = schema_or_none(node.op_type, opset)
    if schema is None or schema.deprecated:
        raise ModelError(f"node {node.name!r}: ONNX's operator set {opset} has no operator {node.op_type!r}")
    return schema


@lru_cache(maxsize=4096)
def schema_or_none(op_type: str, opset: int) -> OpSchema | None:
    """The newest specification of an operator up to ``opset``, if there is one."""
    from onnx import defs

    try:
        return defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None


def specified_op_types() -> tuple[str, ...]:
    """Every operator that ONNX's own set has today."""
    from onnx import defs

    return tuple({schema.name for schema in defs.get_all_schemas() if not schema.domain and not schema.deprecated})


def least_arity(op_type: str) -> tuple[int, int]:
    """How many inputs and outputs an operator of ONNX's has at least; one of each for others."""
    from onnx import defs

    schema = defs.get_schema(op_type) if defs.has(op_type) else None
    return (1, 1) if schema is None else (max(1, schema.min_input), max(1, schema.min_output))


def _attribute_kind(schema: OpSchema, name: str) -> str:
    """ONNX's name for the type of an attribute: ``INTS``."""
    return str(schema.attributes[name].type).rpartition(".")[2]


def _attribute_type(op_type: str, name: str) -> int:
    from onnx import AttributeProto, defs

    schema = defs.get_schema(op_type) if defs.has(op_type) else None
    kind = _attribute_kind(schema, name) if schema is not None and name in schema.attributes else "INTS"
    return int(AttributeProto.AttributeType.Value(kind))


def opset_with(op_type: str, usual: int) -> int:
    """The version of the operator set to write an operator in: the usual one, if that has it.

    Example:
        >>> opset_with("Relu", 20), opset_with("Upsample", 20), opset_with("unheard of", 20)
        (20, 9, 20)
    """
    from onnx import defs

    if not defs.has(op_type):
        return usual
    schema = defs.get_schema(op_type)
    return schema.since_version - 1 if schema.deprecated else max(usual, schema.since_version)


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
            known, hint = sorted(schema.attributes), did_you_mean(name, list(schema.attributes))
            raise ModelError(f"{op_type} has no attribute {name!r}; it has {', '.join(known) or 'none'}{hint}")
        converted[name] = _converted(op_type, name, value, _attribute_kind(schema, name))
    return converted


def attributes_as_given(op_type: str, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """``attrs`` of an operator without specification, as ONNX stores them; those that are ``None`` are left out.

    Raises:
        ModelError: One is no number, string, or row of them.
    """
    return {name: _as_stored(op_type, name, value) for name, value in attrs.items() if value is not None}


def _as_stored(op_type: str, name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, Integral | np.bool_):
        return int(value)
    if isinstance(value, Real):
        return _as_float(value)
    if isinstance(value, Sequence | np.ndarray) and np.ndim(cast("Any", value)) == 1:
        return tuple(_as_stored(op_type, name, item) for item in value)
    raise ModelError(f"{op_type}'s attribute {name!r} must be a number, a string, or a list of them, not {value!r:.60}")


def literal_as_array(
    literal: Any, what: str, schema: OpSchema | None, index: int, dtypes: Sequence[str | None]
) -> np.ndarray:
    """A number, list or array that stands for input ``index``.

    An array keeps its type. Numbers and lists take the type of the values beside them (``dtypes``) where the operator
    allows it, else the one the operator asks for; without a specification they keep numpy's.

    Raises:
        ModelError: It is not numeric; the message calls it ``what``.
    """
    if isinstance(literal, np.ndarray) or (isinstance(literal, np.generic) and not isinstance(literal, float)):
        return np.asarray(literal)
    try:
        array = np.asarray(literal)
    except ValueError as error:
        raise ModelError(f"{what} must be a value, an array or a number, not {literal!r}") from error
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise ModelError(f"{what} must be a value, an array or a number, not {type(literal).__name__}")
    if hasattr(literal, "dtype") or schema is None or not schema.inputs:
        return array
    allowed = schema.inputs[min(index, len(schema.inputs) - 1)].types
    tried = filter(None, (*dtypes, "s64", "f32", *DTYPES))
    dtype = next((each for each in tried if onnx_type_name(each) in allowed), None)
    return array.astype(to_numpy(dtype)) if dtype else array


def _converted(op_type: str, name: str, value: Any, kind: str) -> Any:
    if kind.removesuffix("S") not in _CONVERSIONS:
        raise ModelError(f"{op_type}'s attribute {name!r} is of ONNX's type {kind}, which cannot be given here")
    single, *words = _CONVERSIONS[kind.removesuffix("S")]
    is_list = kind.endswith("S")
    try:
        return tuple(single(item) for item in value) if is_list else single(value)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{op_type}'s attribute {name!r} must be {words[is_list]}, not {value!r}") from error


def _as_float(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError(value)
    return float(np.float32(value))  # as ONNX stores it


def _as_string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


_CONVERSIONS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "INT": (operator.index, "an integer", "a list of integers"),
    "FLOAT": (_as_float, "a number", "a list of numbers"),
    "STRING": (_as_string, "a string", "a list of strings"),
    "TENSOR": (np.asarray, "an array", "a list of arrays"),
}
"""By type of an attribute: the conversion of one value, and words for one and several."""
