"""How large a network is, and how much it computes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.model.graph import Graph, Node

_N_LEARNT = {"BatchNormalization": 3}
"""Inputs up to which parameters are learnt; a batch normalisation's mean and variance are counted by nobody."""

_SETTINGS = frozenset(("Clip", "Expand", "Pad", "Resize", "Reshape", "Slice", "Split", "ReduceMean"))
"""Operators whose constants say what to do and are not learnt."""


def parameters(graph: Graph) -> int:
    """How many numbers training would learn."""
    learnt = {
        name
        for node in graph.nodes
        if node.op_type not in _SETTINGS
        for name in node.inputs[: _N_LEARNT.get(node.op_type)]
        if graph.values[name].is_constant
    }
    return sum(math.prod(graph.shape(name)) for name in learnt)


def multiply_adds(graph: Graph) -> int:
    """Multiplications of convolutions and matrix products; what else there is, is left out, as usual."""
    return sum(_multiply_adds(graph, node) for node in graph.nodes)


def _multiply_adds(graph: Graph, node: Node) -> int:
    shapes = [graph.shape(name) for name in (*node.inputs[:2], node.outputs[0])]
    match node.op_type:
        case "Conv":
            return math.prod(shapes[2]) * math.prod(shapes[1][1:])
        case "ConvTranspose":
            return math.prod(shapes[0]) * math.prod(shapes[1][1:])
        case "Gemm":
            return math.prod(shapes[2]) * shapes[0][0 if node.attrs.get("transA") else 1]
        case "MatMul":
            return math.prod(shapes[2]) * shapes[0][-1]
    return 0
