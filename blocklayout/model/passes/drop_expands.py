"""Expansion in front of what broadcasts by itself."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Graph, Node, resolve
from blocklayout.model.passes.rewrite import bypass


class DropExpands(Struct, frozen=True):
    """Takes out an Expand whose readers all broadcast, to the same extents without it."""

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        dropped: dict[str, str] = {}
        for node in graph.nodes:
            if node.op_type != "Expand" or node.outputs[0] in graph.outputs:
                continue
            tried = dropped | {node.outputs[0]: node.inputs[0]}
            if all(_broadcasts(graph, reader, tried) for reader in readers[node.outputs[0]]):
                dropped = tried
        return bypass(graph, dropped) if dropped else graph


def _broadcasts(graph: Graph, node: Node, dropped: dict[str, str]) -> bool:
    first = node.facts.broadcasts_from
    if first is None or any(name in dropped for name in node.inputs[:first]):
        return False
    shapes = [graph.shape(resolve(dropped, name)) for name in node.inputs]
    return np.broadcast_shapes(*shapes) == graph.shape(node.outputs[0])
