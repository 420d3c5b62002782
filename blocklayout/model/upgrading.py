"""Models of operator sets that are no longer read, or with operators since renamed: converted by ``onnx``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OLDEST_OPSET = 7
"""Of ONNX's own operator sets that are read as they are."""
OWN_DOMAINS = ("", "ai.onnx")
_RENAMED_IN = {"Scatter": 11}
"""Operator sets in which an operator got another name; the reference knows the new one only."""


def upgraded(proto: ModelProto) -> ModelProto:
    """The model in an operator set that can be read; the model itself if it is, or cannot be converted."""
    from onnx import version_converter

    if not is_outdated(proto):
        return proto
    try:
        return version_converter.convert_version(_with_aligned_slopes(proto), _wanted(proto))
    except Exception:  # noqa: BLE001  # the C++ converter raises several types; the model then stays too old
        return proto


def is_outdated(proto: ModelProto) -> bool:
    """Whether the model is to be converted, which takes its weights."""
    versions = [opset.version for opset in proto.opset_import if opset.domain in OWN_DOMAINS]
    return bool(versions) and 1 <= versions[0] < _wanted(proto)


def _wanted(proto: ModelProto) -> int:
    """The oldest operator set that can be read, or that has all operators of the model, some by a later name."""
    return max([OLDEST_OPSET, *(_RENAMED_IN.get(node.op_type, 0) for node in proto.graph.node)])


def _with_aligned_slopes(proto: ModelProto) -> ModelProto:
    """A copy whose PRelu slopes, of channels before version 7, broadcast by later rules, which no converter does."""
    from onnx import ModelProto, shape_inference

    if not any(node.op_type == "PRelu" for node in proto.graph.node):
        return proto
    graph = shape_inference.infer_shapes(proto).graph
    infos = [*graph.input, *graph.value_info, *graph.output]
    shapes = {info.name: [dim.dim_value for dim in info.type.tensor_type.shape.dim] for info in infos}
    shapes |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    copy = ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.node[:]
    for node in proto.graph.node:
        copy.graph.node.extend(_aligned(node, shapes) if node.op_type == "PRelu" else [node])
    return copy


def _aligned(node: NodeProto, shapes: dict[str, list[int]]) -> list[NodeProto]:
    from onnx import helper

    source, slope = node.input
    axes = list(range(1, len(shapes[source]) - 1))
    if not axes or shapes[slope] == [1]:
        return [node]
    name = f"{node.output[0]}_slope"
    aligned = helper.make_node("PRelu", [source, name], list(node.output), name=node.name)
    return [helper.make_node("Unsqueeze", [slope], [name], axes=axes), aligned]
