"""The masks of Dropout, which keeps everything in inference."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.model.graph import Graph, Node

_FIRST_OPSET_OF_TRAINING_INPUT = 12


class FoldMasks(Struct, frozen=True):
    """Makes a constant of the mask of a Dropout that drops nothing: all of it is true."""

    def __call__(self, graph: Graph) -> Graph:
        values = dict(graph.values)
        nodes: list[Node] = []
        for node in graph.nodes:
            mask = node.outputs[1] if node.op_type == "Dropout" and len(node.outputs) > 1 else ""
            if mask and _keeps_all(graph, node):
                values[mask] = replace(values[mask], data=np.ones(values[mask].shape, bool))
                nodes += [node.replace(outputs=node.outputs[:1])] if node.outputs[0] else []
            else:
                nodes.append(node)
        return graph.replace(nodes=tuple(nodes), values=values)


def _keeps_all(graph: Graph, node: Node) -> bool:
    if graph.opset < _FIRST_OPSET_OF_TRAINING_INPUT:
        return False
    training = node.inputs[2] if len(node.inputs) > 2 else ""
    if not training:
        return True
    is_training = graph.constant(training)
    return is_training is not None and not is_training.any()
