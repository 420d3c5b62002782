"""Nodes that give back what they take."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.permuting import keeps_order
from blocklayout.model.passes.rewrite import bypass

_SAME_IF_SAME_SHAPE = frozenset(("Cast", "CastLike", "Expand", "Flatten", "Reshape", "Squeeze", "Tile", "Unsqueeze"))
_OF_ONE_INPUT = frozenset(("Concat", "Max", "Mean", "Min", "Sum"))


class DropNoOps(Struct, frozen=True):
    """Takes out Identity, Dropout, and what changes neither extents nor order nor type: Reshape to the same shape.

    Attributes:
        keep: Op types to leave alone.
    """

    keep: frozenset[str] = frozenset()

    def __call__(self, graph: Graph) -> Graph:
        read = {name for node in graph.nodes for name in node.inputs} | set(graph.outputs)
        dropped = {
            node.outputs[0]: node.inputs[0]
            for node in graph.nodes
            if node.op_type not in self.keep and _has_one_result(node, read) and _is_no_op(graph, node)
        }
        return bypass(graph, dropped) if dropped else graph


def _has_one_result(node: Node, read: set[str]) -> bool:
    return bool(node.inputs and node.inputs[0] and node.outputs[0]) and not read.intersection(node.outputs[1:])


def _is_no_op(graph: Graph, node: Node) -> bool:
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        return not _is_training(graph, node)
    if node.op_type == "Transpose":
        return keeps_order(graph, node)
    if node.op_type in _OF_ONE_INPUT:
        return len(node.inputs) == 1
    if node.op_type in _SAME_IF_SAME_SHAPE:
        return _keeps_shape_and_type(graph, node)
    if node.op_type == "Pad":
        return _pads_nothing(graph, node)
    return node.op_type == "Slice" and _keeps_shape_and_type(graph, node) and _steps_forward(graph, node)


def _keeps_shape_and_type(graph: Graph, node: Node) -> bool:
    before, after = graph.values[node.inputs[0]], graph.values[node.outputs[0]]
    return before.shape == after.shape and before.dtype == after.dtype


def _is_training(graph: Graph, node: Node) -> bool:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return False
    training = graph.constant(node.inputs[2])
    return training is None or bool(np.any(training))


def _pads_nothing(graph: Graph, node: Node) -> bool:
    pads = graph.constant(node.inputs[1]) if len(node.inputs) > 1 else np.asarray(node.attr("pads", (1,)))
    return pads is not None and not np.any(pads)


def _steps_forward(graph: Graph, node: Node) -> bool:
    if len(node.inputs) < 5 or not node.inputs[4]:
        return True
    steps = graph.constant(node.inputs[4])
    return steps is not None and bool(np.all(steps > 0))
