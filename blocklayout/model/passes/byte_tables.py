"""Functions of one quantised tensor, between bytes and bytes, as tables: 256 numbers say all there is to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.ir.value import Value
from blocklayout.model.graph import Graph, Node, live_nodes
from blocklayout.model.infer import evaluate
from blocklayout.model.passes.quantized import Scheme
from blocklayout.model.passes.rewrite import Draft


class _Function(Struct, frozen=True, eq=False):
    """The result for each byte of a value, and the nodes that compute it."""

    source: str
    results: np.ndarray
    nodes: tuple[str, ...]


class TabulateBytes(Struct, frozen=True):
    """Reads bytes off a table where each follows from one other: from numbers that are made of bytes on to the next.

    Where several quantisations follow each other so, each is one of the first bytes. Tables take an executor in C.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        if not dnnl.has_native_executor():
            return graph
        found: dict[str, _Function] = {}
        draft, made = Draft(graph), dict[str, _Function]()
        for node in graph.nodes:
            function = _function(graph, node, found)
            if function is None:
                continue
            found[node.outputs[0]] = function
            if graph.values[node.outputs[0]].dtype != "f32":
                made[node.name] = function
                table = draft.constant(f"{node.name}.table", function.results)
                draft.replace(node, Node(node.name, "ByteTable", (function.source, table), node.outputs))
        if not made:
            return graph
        after = draft.result()
        nodes = live_nodes(after.nodes, after.outputs)
        return after.replace(nodes=tuple(_with_absorbed(graph, nodes, made)))


def _with_absorbed(graph: Graph, nodes: tuple[Node, ...], made: Mapping[str, _Function]) -> list[Node]:
    """The nodes, tables with the names of those that they stand for: each with those that none before has."""
    before = {node.name: node for node in graph.nodes}
    gone = before.keys() - {node.name for node in nodes}
    result = []
    for node in nodes:
        if node.name in made:
            mine = [before[name] for name in made[node.name].nodes if name in gone]
            gone -= {each.name for each in mine}
            absorbed = (name for each in mine for name in (each.name, *each.absorbed))
            result.append(node.replace(absorbed=(*before[node.name].absorbed, *absorbed)))
        else:
            result.append(node)
    return result


def _function(graph: Graph, node: Node, found: Mapping[str, _Function]) -> _Function | None:
    """The node's result as a function of one value of bytes; ``None`` where it is none."""
    facts = node.facts
    if len(node.outputs) != 1 or facts.is_random or not (facts.is_elementwise or facts.broadcasts_from == 0):
        return None
    scheme = Scheme.of_dequantizing(graph, node)
    if scheme is not None and node.inputs[0] not in found:
        integers = np.arange(256).astype(np.uint8).view(to_numpy(scheme.dtype))
        return _Function(node.inputs[0], _numbers(scheme, integers), (node.name,))
    read = [name for name in node.inputs if name and graph.constant(name) is None]
    functions = {name: found[name] for name in read if name in found}
    if not read or len(functions) < len({*read}) or len({each.source for each in functions.values()}) != 1:
        return None
    source = functions[read[0]].source
    if graph.shape(node.outputs[0]) != graph.shape(source):
        return None
    results = _results(graph, node, {name: each.results for name, each in functions.items()})
    names = dict.fromkeys(name for each in functions.values() for name in each.nodes)
    return None if results is None else _Function(source, results, (*names, node.name))


def _results(graph: Graph, node: Node, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The node's result of 256 elements each; ``None`` where it is neither in f32 nor bytes of numbers."""
    scheme = Scheme.of_dequantizing(graph, node)
    if scheme is not None:
        return _numbers(scheme, given[node.inputs[0]])
    scheme = Scheme.of_quantizing(graph, node)
    if scheme is not None:
        numbers = given[node.inputs[0]]
        return None if np.isnan(numbers).any() else scheme.nearest(numbers).astype(to_numpy(scheme.dtype))
    if graph.values[node.outputs[0]].dtype != "f32":
        return None
    inputs: list[Value | None] = []
    for name in node.inputs:
        value = graph.values[name] if name else None
        if value is not None and value.data is None:
            value = Value(name, given[name].shape, value.dtype, given[name])
        elif value is not None and value.data is not None:
            if value.data.size != 1:
                return None
            value = replace(value, shape=(), data=value.data.reshape(()))
        inputs.append(value)
    [result] = evaluate(node, inputs, graph.opset)
    return None if result is None or result.data is None or result.data.shape != (256,) else result.data


def _numbers(scheme: Scheme, integers: np.ndarray) -> np.ndarray:
    return scheme.numbers(integers.astype(np.int32)).astype(np.float32, copy=False)
