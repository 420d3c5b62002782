"""Nodes that nobody reads."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, live_nodes


class RemoveDead(Struct, frozen=True):
    """Removes nodes that no output depends on; unread outputs of the others become ``""``."""

    def __call__(self, graph: Graph) -> Graph:
        return graph.replace(nodes=live_nodes(graph.nodes, graph.outputs))
