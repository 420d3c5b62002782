"""Nodes whose result is one of their inputs."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.rewrite import bypass


class DropNoOps(Struct, frozen=True):
    """Takes out nodes that compute nothing: an Identity, a Reshape to the same shape, a Concat of one.

    Attributes:
        keep: Op types to leave alone.
    """

    keep: frozenset[str] = frozenset()

    def __call__(self, graph: Graph) -> Graph:
        read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
        dropped: dict[str, str] = {}
        for node in graph.nodes:
            index = self._same_as(graph, node) if node.outputs[0] and read.isdisjoint(node.outputs[1:]) else None
            if index is not None and node.inputs[index]:
                dropped[node.outputs[0]] = node.inputs[index]
        return bypass(graph, dropped) if dropped else graph

    def _same_as(self, graph: Graph, node: Node) -> int | None:
        return None if node.op_type in self.keep else node.facts.same_as(graph.info(node))
