"""Channels of groups, interleaved."""

from __future__ import annotations

import math

from msgspec import Struct

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging


class MergeShuffle(Struct, frozen=True):
    """Makes one ChannelShuffle of Reshape, Transpose and Reshape that interleave the channels of ``groups`` groups.

    ONNX has no such operator: this is for kernels, and works in any layout where the three nodes do not.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Transpose" and graph.values[node.outputs[0]].dtype in PRIMITIVE_FLOATS:
                _merge(merging, node)
        return merging.result()


def _merge(merging: Merging, transpose: Node) -> None:
    graph = merging.graph
    reshapes = merging.between_reshapes(transpose)
    if reshapes is None:
        return
    apart, together = reshapes
    x, y = apart.inputs[0], together.outputs[0]
    groups = _n_groups(graph.shape(x), graph.shape(apart.outputs[0]), tuple(transpose.attr("perm", ())))
    if groups and graph.shape(x) == graph.shape(y):
        nodes = {apart.name, transpose.name, together.name}
        merging.merge(y, nodes, "ChannelShuffle", (x,), {"groups": groups})


def _n_groups(shape: tuple[int, ...], apart: tuple[int, ...], perm: tuple[int, ...]) -> int:
    """How many groups of channels become the inner dimension of two; 0 if that is not what happens.

    Example:
        >>> _n_groups((2, 6, 4, 4), (2, 3, 2, 4, 4), (0, 2, 1, 3, 4)), _n_groups((2, 6, 4), (2, 3, 2, 4), (0, 1, 3, 2))
        (3, 0)
    """
    if len(shape) < 2 or 0 in shape or len(apart) < 3 or len(perm) != len(apart):
        return 0
    # the batch may be part of the outer dimensions, or be left out where it is 1
    for axis in range(len(apart) - 1):
        outer = math.prod(apart[:axis])
        if outer == shape[0] and apart[axis] * apart[axis + 1] == shape[1]:
            swapped = [*range(axis), axis + 1, axis, *range(axis + 2, len(apart))]
            return apart[axis] if list(perm) == swapped else 0
    return 0
