"""Nodes against ONNX's operator specifications, and as protobuf."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.errors import ModelError
from blocklayout.model.graph import Node

if TYPE_CHECKING:
    from onnx import NodeProto
    from onnx.defs import OpSchema


def to_proto(node: Node) -> NodeProto:
    """A node as protobuf."""
    from onnx import helper, numpy_helper

    def as_attribute(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return numpy_helper.from_array(value)
        return list(value) if isinstance(value, tuple) else value

    proto = helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name, domain=node.domain)
    for name, value in node.attrs.items():
        # an empty list has no type of its own
        kind = _attribute_type(node.op_type, name) if isinstance(value, tuple) and not value else None
        proto.attribute.append(helper.make_attribute(name, as_attribute(value), attr_type=kind))
    return proto


def with_named_outputs(node: Node) -> Node:
    """The node with names also for outputs that nobody reads: the checker refuses a first one without."""
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


def attribute_kind(schema: OpSchema, name: str) -> str:
    """ONNX's name for the type of an attribute: ``INTS``."""
    return str(schema.attributes[name].type).rpartition(".")[2]


def _attribute_type(op_type: str, name: str) -> int:
    from onnx import AttributeProto, defs

    schema = defs.get_schema(op_type) if defs.has(op_type) else None
    kind = attribute_kind(schema, name) if schema is not None and name in schema.attributes else "INTS"
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
