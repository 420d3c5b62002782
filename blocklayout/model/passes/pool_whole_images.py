"""Means and maxima of whole images."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.reductions import reduced_axes
from blocklayout.model.passes.steps import Steps

_OF_REDUCTION = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}
_OF_POOL = {"AveragePool": "GlobalAveragePool", "MaxPool": "GlobalMaxPool"}


class PoolWholeImages(Struct, frozen=True):
    """Makes a global pool of ReduceMean and ReduceMax over all spatial dimensions, and of pools with one window.

    Pooling keeps the layout that its source has; the reduction primitive does not. Where the reduction drops
    the dimensions, a Reshape does that.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type in _OF_REDUCTION and _is_of_images(graph, node) and _reduces_space(graph, node):
                steps, shape = Steps(merging, node), graph.shape(node.inputs[0])
                pooled = (*shape[:2], *(1,) * (len(shape) - 2))
                name = steps.add(_OF_REDUCTION[node.op_type], node.inputs[:1], pooled)
                steps.reshape(name, graph.shape(node.outputs[0]))
                steps.finish()
            elif node.op_type in _OF_POOL and _is_of_images(graph, node) and _has_one_window(graph, node):
                merging.replace(node, [node.replace(op_type=_OF_POOL[node.op_type], attrs={})])
        return merging.result()


def _is_of_images(graph: Graph, node: Node) -> bool:
    source = graph.values[node.inputs[0]]
    return source.dtype in PRIMITIVE_FLOATS and 3 <= len(source.shape) <= 5 and 0 not in source.shape


def _reduces_space(graph: Graph, node: Node) -> bool:
    return reduced_axes(graph, node) == tuple(range(2, len(graph.shape(node.inputs[0]))))


def _has_one_window(graph: Graph, node: Node) -> bool:
    spatial = graph.shape(node.inputs[0])[2:]
    is_padded = any(node.attr("pads", ())) or any(each != 1 for each in node.attr("dilations", ()))
    if is_padded or any(node.outputs[1:]) or tuple(node.attr("kernel_shape", ())) != spatial:
        return False
    return graph.shape(node.outputs[0])[2:] == (1,) * len(spatial)
