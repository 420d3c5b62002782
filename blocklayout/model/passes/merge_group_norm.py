"""Group normalisation, written as the instance normalisation of groups."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.normalizing import scale_and_shift

_FIRST_OPSET_OF_CHANNELS = 21


class MergeGroupNorm(Struct, frozen=True):
    """Makes one GroupNormalization of Reshape, InstanceNormalization and Reshape, and scale and shift behind.

    The node is what GroupNormalization means in the graph's operator set: from 21 on there is a scale and a shift
    for each channel. Before, they are for groups, and those for channels stay behind the node. Exporters to these
    sets write what this pass reads; it is for kernels.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "InstanceNormalization" and graph.values[node.outputs[0]].dtype in FLOATS:
                _merge(merging, node)
        return merging.result()


def _merge(merging: Merging, norm: Node) -> None:
    graph = merging.graph
    reshapes = merging.between_reshapes(norm)
    per_group = [graph.constant(name) for name in norm.inputs[1:3]]
    if reshapes is None or any(each is None for each in per_group):
        return
    apart, together = reshapes
    x, y = apart.inputs[0], together.outputs[0]
    shape, groups = graph.shape(x), graph.shape(norm.inputs[0])[:2]
    if len(shape) < 3 or graph.shape(y) != shape or groups[0] != shape[0] or not groups[1] or shape[1] % groups[1]:
        return
    nodes = {apart.name, norm.name, together.name}
    attrs = {"num_groups": groups[1], "epsilon": norm.attr("epsilon", 1e-5)}
    if graph.opset < _FIRST_OPSET_OF_CHANNELS:
        merging.merge(y, nodes, "GroupNormalization", (x, *norm.inputs[1:3]), attrs)
        return
    scale, shift = (np.repeat(each.astype(np.float64), shape[1] // groups[1]) for each in per_group if each is not None)
    for root in merging.expressions.after(y):
        result = merging.expressions.of(root, (y,))
        found = scale_and_shift(graph, result, ((y,),), shape, (1,)) if graph.shape(root) == shape else None
        if found is None:
            continue
        dtype = to_numpy(graph.values[root].dtype)
        arrays = {"scale": scale * found[0], "shift": shift * found[0] + found[1]}
        names = [merging.draft.constant(f"{root}.{key}", array.astype(dtype)) for key, array in arrays.items()]
        if merging.merge(root, nodes | result.nodes, "GroupNormalization", (x, *names), attrs):
            return
