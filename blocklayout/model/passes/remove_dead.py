"""Nodes that nobody reads."""

from __future__ import annotations

from dataclasses import dataclass

from blocklayout.model.graph import Graph, live_nodes


@dataclass(frozen=True)
class RemoveDead:
    """Removes nodes that no output depends on; unread outputs of the others become ``""``."""

    def __call__(self, graph: Graph) -> Graph:
        return graph.replace(nodes=live_nodes(graph.nodes, graph.outputs))
