"""Choices that are made already."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.rewrite import bypass


class FoldWhere(Struct, frozen=True):
    """Takes out a Where whose condition is the same constant everywhere, and whose choice needs no broadcasting."""

    def __call__(self, graph: Graph) -> Graph:
        chosen = {node.outputs[0]: _chosen(graph, node) for node in graph.nodes if node.op_type == "Where"}
        known = {name: source for name, source in chosen.items() if source}
        return bypass(graph, known) if known else graph


def _chosen(graph: Graph, node: Node) -> str:
    condition = graph.constant(node.inputs[0])
    if condition is None or not condition.size or bool(condition.any()) != bool(condition.all()):
        return ""
    source = node.inputs[1 if condition.all() else 2]
    return source if graph.shape(source) == graph.shape(node.outputs[0]) else ""
