"""Nodes whose inputs are all known."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.shapes import walk


class FoldConstants(Struct, frozen=True):
    """Computes, with the reference evaluator, every node that reads nothing but constants and extents."""

    def __call__(self, graph: Graph) -> Graph:
        if not any(_may_fold(graph, node) for node in graph.nodes):
            return graph
        values = dict(graph.values)
        nodes = walk(graph.nodes, values, graph.opset)
        return graph.replace(nodes=nodes, values=values)


def _may_fold(graph: Graph, node: Node) -> bool:
    return all(graph.constant(name) is not None for name in node.elements_read)
