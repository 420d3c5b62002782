"""Depth to space and back, as views."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.steps import Steps

_Views = tuple[tuple[int, ...], tuple[int, ...]]
"""The extents of the first Reshape, and the permutation behind it."""


class SpaceToViews(Struct, frozen=True):
    """Makes Reshape, Transpose and Reshape of DepthToSpace and SpaceToDepth: one reorder at most."""

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type in ("DepthToSpace", "SpaceToDepth"):
                steps = Steps(merging, node)
                apart, perm = _views(graph, node)
                moved = steps.transpose(steps.reshape(node.inputs[0], apart), perm)
                steps.reshape(moved, graph.shape(node.outputs[0]))
                steps.finish()
        return merging.result()


def _views(graph: Graph, node: Node) -> _Views:
    n, c, h, w = graph.shape(node.inputs[0])
    b = int(node.attr("blocksize", 1))
    depth_first = node.attr("mode", "DCR") == "DCR"
    if node.op_type == "SpaceToDepth":
        return (n, c, h // b, b, w // b, b), (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4)
    if depth_first:
        return (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    return (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
