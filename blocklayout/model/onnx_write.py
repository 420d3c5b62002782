"""Graphs as ONNX models and files that other runtimes can load."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from blocklayout.atomic_write import replacing
from blocklayout.errors import ModelError
from blocklayout.ir import Demands, Names
from blocklayout.ir.value import Value
from blocklayout.model.graph import Graph, Node, former_names, fresh_name
from blocklayout.model.lowering import lower
from blocklayout.model.onnx_read import DEMANDS_KEY
from blocklayout.model.passes import legalize, simplify
from blocklayout.model.reading import weights_nbytes
from blocklayout.model.schemas import to_proto, value_info
from blocklayout.model.tensors import FORMAT_KEY
from blocklayout.model.types import to_elem_type

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, TensorProto

MAX_INLINE_NBYTES = 1 << 30
"""Weights beyond this go to a file beside the model; protobuf itself ends at 2 GiB."""

_ALIGNMENT = 4096
_FUNCTIONS_SINCE = 8
"""Version of the format that has functions."""


def to_model(graph: Graph, functions: Sequence[FunctionProto] = ()) -> ModelProto:
    """A graph as a checked ``ModelProto`` with its weights inside, and the functions that its nodes name.

    Raises:
        ModelError: The weights exceed protobuf's limit, or the graph is against ONNX's specification.
    """
    graph = _with_stored_bytes(graph)
    if weights_nbytes(graph) > MAX_INLINE_NBYTES:
        what = f"the weights are {weights_nbytes(graph)} bytes"
        raise ModelError(f"{what}, too much for one ModelProto; write the model to a path")
    model = _model(graph, [_tensor(value, raw_data=array.tobytes()) for value, array in _constants(graph)], functions)
    _check(model)
    return model


def write(
    graph: Graph | Any,
    path: str | os.PathLike[str],
    *,
    external_nbytes: int = MAX_INLINE_NBYTES,
    functions: Sequence[FunctionProto] = (),
) -> None:
    """Write a model, as a whole or not at all: it appears under its name when it is complete.

    Args:
        graph: A graph, or a :class:`blocklayout.model.Builder`.
        path: Of the ``.onnx`` file; large weights go to ``<path>.data``.
        external_nbytes: Weights of more bytes than this altogether go to that second file.
        functions: Those that nodes of the graph name.

    Raises:
        ModelError: The graph is against ONNX's specification, or the file cannot be written.
    """
    graph = _with_stored_bytes(graph if isinstance(graph, Graph) else graph.to_graph())
    target = Path(path)
    try:
        if weights_nbytes(graph) <= external_nbytes:
            _replace(target, [to_model(graph, functions).SerializeToString()])
        else:
            _write_external(graph, target, functions)
    except OSError as error:
        raise ModelError(f"cannot write {target}: {error}") from error


def stating(graph: Graph, demands: Demands) -> Graph:
    """A graph that states demands besides its own; these precede those.

    Raises:
        ModelError: One is a function, which no file can hold.
        PlanError: A key selects nothing, or something of another kind.
    """
    both = {}
    for option in demands.__struct_fields__:
        own, asked = getattr(graph.demands, option), getattr(demands, option)
        if callable(asked):
            raise ModelError(f"{option} is a function, which no file can hold: give names, patterns or operator types")
        both[option] = {key: wanted for key, wanted in {**own, **asked}.items() if wanted is not None}
    stated = Demands(**both)
    demands.settled(stated, Names.of(lower(legalize(simplify(graph)))))
    return graph.replace(demands=stated)


def _with_stored_bytes(graph: Graph) -> Graph:
    """The graph with nodes that make constants of the bytes that stand for them, where these are known."""
    values, nodes = dict(graph.values), list[Node]()
    for value in graph.values.values():
        given = None if value.data is None or value.name in graph.inputs else value.quantization
        if given is None or given.integers is None:
            continue
        inputs, zero = [], given.zero_point
        if zero is not None and zero.data is not None and zero.shape != given.scale.shape:  # ONNX wants equally many
            zero = replace(zero, shape=given.scale.shape, data=np.full(given.scale.shape, zero.data.flat[0]))
        for part in filter(None, (given.integers, given.scale, zero)):
            name = part.name if values.get(part.name, part).data is part.data else fresh_name(part.name, values)
            values[name] = replace(part, name=name)
            inputs.append(name)
        values[value.name] = replace(value, data=None, quantization=None)
        attrs = {} if given.is_of_whole else {"axis": given.axis}
        name = fresh_name(f"{value.name}.dequantized", {node.name for node in (*graph.nodes, *nodes)})
        nodes.append(Node(name, "DequantizeLinear", tuple(inputs), (value.name,), attrs))
    return graph.replace(nodes=(*nodes, *graph.nodes), values=values) if nodes else graph


def _write_external(graph: Graph, target: Path, functions: Sequence[FunctionProto]) -> None:
    fed = [value.name for value, _ in _constants(graph) if value.name not in graph.inputs]
    # no ModelProto holds the weights: it is checked as if the caller fed them
    _check(_model(graph.replace(inputs=(*graph.inputs, *fed)), [], functions))
    data_path = target.with_name(f"{target.name}.data")
    tensors: list[TensorProto] = []
    offset = 0
    for value, array in _constants(graph):
        tensors.append(_external(value, array.nbytes, data_path.name, offset))
        offset += array.nbytes + _padding(array.nbytes)
    model = _model(graph, tensors, functions)
    _replace(data_path, (array.tobytes() + bytes(_padding(array.nbytes)) for _, array in _constants(graph)))
    _replace(target, [model.SerializeToString()])


def _model(graph: Graph, tensors: list[TensorProto], functions: Sequence[FunctionProto]) -> ModelProto:
    from onnx import helper

    protos = [to_proto(node) for node in graph.nodes]
    inputs = [value_info(graph.values[name]) for name in graph.inputs]
    outputs = [value_info(graph.values[name]) for name in graph.outputs]
    written = {name for node in graph.nodes for name in node.outputs if name} - set(graph.outputs)
    between = [value_info(graph.values[name]) for name in sorted(written)]
    for tensor in tensors:
        if tensor.name in graph.formats:
            tensor.metadata_props.add(key=FORMAT_KEY, value=graph.formats[tensor.name])
    proto = helper.make_graph(protos, graph.name, inputs, outputs, tensors, value_info=between)
    domains = sorted({node.domain for node in graph.nodes} - {""})
    opsets = [helper.make_opsetid("", graph.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    # the oldest format that has this operator set: the more runtimes can read it
    version = max(helper.find_min_ir_version_for(opsets[:1]), _FUNCTIONS_SINCE if functions else 4)
    header: Any = {"opset_imports": opsets, "ir_version": version, "producer_name": "blocklayout"}
    model = helper.make_model(proto, functions=functions, **header)
    if graph.demands:
        model.metadata_props.add(key=DEMANDS_KEY, value=demands_text(_by_present_names(graph)))
    return model


def demands_text(demands: Demands) -> str:
    """Demands without functions, as the text of a model's metadata."""
    record = {option: getattr(demands, option) for option in demands.__struct_fields__ if getattr(demands, option)}
    return msgspec.json.encode(record, order="sorted").decode()


def _by_present_names(graph: Graph) -> Demands:
    """The demands on a graph, by the names that nodes and values have after passes; none may be on one that is gone."""
    aliases, gone = former_names(graph, graph.nodes)
    present = {name: heir for heir, names in aliases.items() for name in names}
    present |= {name: node.name for node in graph.nodes for name in node.absorbed}
    found = {}
    for option in graph.demands.__struct_fields__:
        asked = getattr(graph.demands, option)
        lost = [name for name in asked if name in gone]
        if lost:
            raise ModelError(f"{option} {lost[0]}={asked[lost[0]]} cannot be kept: {gone[lost[0]]}")
        found[option] = {present.get(key, key): wanted for key, wanted in asked.items() if wanted is not None}
    return Demands(**found)


def _check(model: ModelProto) -> None:
    from onnx import checker

    try:
        checker.check_model(model)
    except checker.ValidationError as error:
        raise ModelError(f"the graph is against ONNX's specification: {error}") from error


def _constants(graph: Graph) -> Iterator[tuple[Value, np.ndarray]]:
    return ((value, value.data) for value in graph.values.values() if value.data is not None)


def _tensor(value: Value, **data: Any) -> TensorProto:
    from onnx import TensorProto

    return TensorProto(name=value.name, data_type=to_elem_type(value.dtype), dims=value.shape, **data)


def _external(value: Value, nbytes: int, location: str, offset: int) -> TensorProto:
    from onnx import StringStringEntryProto, TensorProto

    entries = {"location": location, "offset": str(offset), "length": str(nbytes)}
    data = [StringStringEntryProto(key=key, value=text) for key, text in entries.items()]
    return _tensor(value, data_location=TensorProto.EXTERNAL, external_data=data)


def _padding(nbytes: int) -> int:
    return -nbytes % _ALIGNMENT


def _replace(target: Path, chunks: Iterable[bytes]) -> None:
    with replacing(target) as beside, beside.open("wb") as file:
        file.writelines(chunks)
