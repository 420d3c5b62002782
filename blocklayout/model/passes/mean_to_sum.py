"""The mean of several tensors."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.steps import Steps


class MeanToSum(Struct, frozen=True):
    """Makes a Sum, and a Mul by one over their number, of a Mean; an Identity where that number is one."""

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Mean" and len(node.inputs) == 1:
                merging.replace(node, [node.replace(op_type="Identity")])
            elif node.op_type == "Mean" and graph.values[node.outputs[0]].dtype in FLOATS:
                steps, shape = Steps(merging, node), graph.shape(node.outputs[0])
                total = steps.add("Sum", node.inputs, shape)
                steps.add("Mul", (total, steps.number(1 / len(node.inputs), "share")), shape)
                steps.finish()
        return merging.result()
