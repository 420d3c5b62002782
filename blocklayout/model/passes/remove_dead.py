"""Nodes that nobody reads."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from blocklayout.model.graph import Graph, live_nodes


class RemoveDead(Struct, frozen=True):
    """Removes nodes that no output depends on; unread outputs of the others become ``""``."""

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        return graph.replace(nodes=live_nodes(graph.nodes, graph.outputs))
