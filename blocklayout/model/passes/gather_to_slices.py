"""Gather of neighbours, as a Slice."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.split_to_slices import slice_bounds
from blocklayout.model.passes.steps import Steps


class GatherToSlices(Struct, frozen=True):
    """Makes a Slice of a Gather whose constant indices are neighbours in order, and a Reshape behind it of one number.

    Exporters write ``x[:, 0]`` that way.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Gather":
                _write(merging, node)
        return merging.result()


def _write(merging: Merging, node: Node) -> None:
    shape, indices = merging.graph.shape(node.inputs[0]), merging.graph.constant(node.inputs[1])
    axis = int(node.attr("axis", 0)) % len(shape)
    if indices is None or indices.ndim > 1 or not indices.size or 0 in shape:
        return
    chosen = np.where(indices < 0, indices + shape[axis], indices).reshape(-1).astype(np.int64)
    start, end = int(chosen[0]), int(chosen[-1]) + 1
    if start < 0 or end > shape[axis] or not np.array_equal(chosen, np.arange(start, end)):
        return
    steps = Steps(merging, node)
    inputs, attrs = slice_bounds(merging.draft, merging.graph.opset, node.name, (start, end, axis))
    part = steps.add("Slice", (node.inputs[0], *inputs), (*shape[:axis], end - start, *shape[axis + 1 :]), attrs)
    steps.reshape(part, merging.graph.shape(node.outputs[0]))
    steps.finish()
