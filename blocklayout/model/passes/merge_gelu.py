"""GELU, exact and by hyperbolic tangent."""

from __future__ import annotations

import math

from msgspec import Struct

from blocklayout.model.graph import Graph
from blocklayout.model.passes.expressions import is_close
from blocklayout.model.passes.gates import gated
from blocklayout.model.passes.merging import Merging

_SLOPE = math.sqrt(2 / math.pi)
_ARGUMENTS = {
    "Erf": {"x": 1 / math.sqrt(2)},
    "Tanh": {"x": _SLOPE, "xxx": _SLOPE * 0.044715},
}


class MergeGelu(Struct, frozen=True):
    """Makes one Gelu of ``0.5 * x * (1 + Erf(x / sqrt(2)))`` in any order, or of its approximation by Tanh.

    ONNX has Gelu from operator set 20; this is for kernels, whatever the operator set.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for each in gated(merging, *_ARGUMENTS):
            is_argument = is_close(each.inner, _ARGUMENTS[each.gate.op_type], each.dtype)
            if is_argument and is_close(each.outer, {"x": 0.5, "gx": 0.5}, each.dtype):
                attrs = {"approximate": "tanh"} if each.gate.op_type == "Tanh" else {}
                merging.merge(each.root, each.nodes, "Gelu", (each.x,), attrs)
        return merging.result()
