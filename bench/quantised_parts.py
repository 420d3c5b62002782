"""Parts of quantised ONNX files, by which runtimes are compared where activations are quantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

BYTES = (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)
CHANNELS = 1


def save_up_to_quantised(source: Path, path: Path) -> list[np.ndarray]:
    """Write a quantised file up to where its results are quantised last, and dequantised there.

    Returns:
        For each output the scale, in a shape that broadcasts.
    """
    model = onnx.load(source)
    scales = {tensor.name: tensor for tensor in model.graph.initializer}
    last = last_dequantised(model.graph)
    outputs = [helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None) for node in last]
    save_part(model, path, model.graph.input, outputs)
    return [along_axis(node, numpy_helper.to_array(scales[node.input[1]])) for node in last]


def save_with_all_quantised(source: Path, path: Path) -> list[str]:
    """Write a quantised file whose outputs are all activations that it has in 8 bits; returns their names."""
    model = onnx.load(source)
    values = quantised_values(model.graph)
    outputs = [helper.make_tensor_value_info(name, elem_type, None) for name, elem_type in values.items()]
    save_part(model, path, model.graph.input, outputs)
    return [*values]


def save_taken_apart(source: Path, path: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Write a quantised file in which activations in 8 bits are read from inputs; they are outputs as before.

    So everything between one quantisation and the next is computed by itself.

    Args:
        source: The quantised file.
        path: What is written.
        arrays: The activations, in the order of the outputs.

    Returns:
        The arrays by input; without those that nobody reads.
    """
    model = onnx.load(source)
    values = quantised_values(model.graph)
    given = {name: f"{name}_given" for name in values}
    for node in model.graph.node:
        node.input[:] = [given.get(name, name) for name in node.input]
    shapes = {name: array.shape for name, array in arrays.items()}
    inputs = [helper.make_tensor_value_info(given[name], values[name], shapes[name]) for name in values]
    outputs = [helper.make_tensor_value_info(name, values[name], shapes[name]) for name in values]
    read = save_part(model, path, [*model.graph.input, *inputs], outputs)
    return {given[name]: array for name, array in arrays.items() if given[name] in read}


def save_part(
    model: onnx.ModelProto,
    path: Path,
    inputs: Iterable[onnx.ValueInfoProto],
    outputs: Iterable[onnx.ValueInfoProto],
) -> set[str]:
    """Write what computes these outputs, with those of the inputs that it reads; returns all values that it has."""
    graph, by_name = model.graph, producers(model.graph)
    waiting, known = [value.name for value in outputs], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in known:
            known.add(name)
            waiting += by_name[name].input if name in by_name else []
    nodes = [node for node in graph.node if not known.isdisjoint(node.output)]
    constants = [tensor for tensor in graph.initializer if tensor.name in known]
    fed = [value for value in inputs if value.name in known]
    part = helper.make_graph(nodes, graph.name, fed, [*outputs], constants)
    onnx.save(helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version), path)
    return known


def quantised_values(graph: onnx.GraphProto) -> dict[str, int]:
    """Activations that are quantised, in order, with their types: those of the last of zero points, the result's."""
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {
        node.output[0]: [types[name] for name in node.input if types.get(name) in BYTES][-1]
        for node in graph.node
        if node.op_type == "QGemm" or node.op_type.startswith(("QLinear", "QuantizeLinear"))
    }


def last_dequantised(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes that dequantise activations and stand nearest before the graph's outputs."""
    by_name = producers(graph)
    found: dict[str, onnx.NodeProto] = {}
    waiting, known = [value.name for value in graph.output], set[str]()
    while waiting:
        name = waiting.pop()
        if name in known or name not in by_name:
            continue
        known.add(name)
        node = by_name[name]
        if node.op_type != "DequantizeLinear":
            waiting += node.input
        elif node.input[0] in by_name:
            found[name] = node
    return [*found.values()]


def producers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Nodes by the values that they compute."""
    return {name: node for node in graph.node for name in node.output}


def along_axis(node: onnx.NodeProto, scale: np.ndarray) -> np.ndarray:
    """A node's scales along its axis, of four dimensions; of a single one, that."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), CHANNELS)
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    return scale if scale.size == 1 else scale.reshape(shape)
