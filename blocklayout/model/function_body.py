"""Operators that ONNX itself defines by simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.ir.value import Value
from blocklayout.model.graph import Node, constant_value
from blocklayout.model.onnx_read import convert_nodes
from blocklayout.model.schemas import find_schema, to_proto
from blocklayout.model.types import type_proto

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def function_body(
    node: Node, inputs: Sequence[Value | None], opset: int
) -> tuple[tuple[Node, ...], tuple[Value, ...]] | None:
    """The nodes that do what ``node`` does, and the constants they read.

    ``None`` where ONNX has no body, or one with subgraphs. Names inside of the body begin with the node's name;
    its inputs and outputs keep theirs.

    Raises:
        ModelError: There is no such operator in this version of the operator set.
    """
    schema: Any = find_schema(node, opset)
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    model = _inlined(node, inputs, opset)
    if model is None or any(each.op_type == node.op_type or _has_subgraph(each) for each in model.graph.node):
        return None
    nodes, arrays = convert_nodes(model.graph, None)
    outside = {"", *node.inputs, *node.outputs}
    inside = [*arrays, *(name for each in nodes for name in each.outputs)]
    names = {name: f"{node.name}.{name}" for name in inside if name not in outside}
    constants = tuple(constant_value(names.get(name, name), array) for name, array in arrays.items())
    return tuple(each.renamed(names).replace(name="") for each in nodes), constants


def _has_subgraph(node: NodeProto) -> bool:
    return any(attribute.HasField("g") for attribute in node.attribute)


def _inlined(node: Node, inputs: Sequence[Value | None], opset: int) -> ModelProto | None:
    from onnx import TypeProto, helper, inliner

    schema = find_schema(node, opset)
    whole = to_proto(node)
    present = {attribute.name for attribute in whole.attribute}
    defaults = (formal.default_value for name, formal in schema.attributes.items() if name not in present)
    # a body refers to attributes that the node leaves to their defaults
    whole.attribute.extend(default for default in defaults if default.name)
    given = {value.name: type_proto(value.dtype, value.shape) for value in inputs if value is not None}
    infos = [helper.make_value_info(name, type_) for name, type_ in given.items()]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.outputs if name]
    graph = helper.make_graph([whole], "body", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        return inliner.inline_selected_functions(model, [("", node.op_type)], inline_schema_functions=True)
    except RuntimeError:  # all that the inliner says of bodies that depend on absent inputs
        return None
