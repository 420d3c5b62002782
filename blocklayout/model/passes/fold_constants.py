"""Nodes whose inputs are all known."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph
from blocklayout.model.shapes import walk


class FoldConstants(Struct, frozen=True):
    """Computes, with the reference evaluator, every node that reads nothing but constants and extents."""

    def __call__(self, graph: Graph) -> Graph:
        if not any(_may_fold(graph, node.inputs, node.op_type) for node in graph.nodes):
            return graph
        values = dict(graph.values)
        nodes = walk(graph.nodes, values, graph.opset)
        return graph.replace(nodes=nodes, values=values)


def _may_fold(graph: Graph, inputs: tuple[str, ...], op_type: str) -> bool:
    return op_type in ("Shape", "Size") or all(graph.constant(name) is not None for name in inputs if name)
