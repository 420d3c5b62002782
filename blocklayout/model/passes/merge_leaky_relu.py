"""The larger of a value and a fraction of it."""

from __future__ import annotations

from dataclasses import dataclass

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.types import FLOATS


@dataclass(frozen=True)
class MergeLeakyRelu:
    """Makes one LeakyRelu of ``Max(x, alpha * x)``, with alpha between 0 and 1."""

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Max" and len(node.inputs) == 2 and graph.values[node.outputs[0]].dtype in FLOATS:
                for x, smaller in (node.inputs, node.inputs[::-1]):
                    _merge(merging, node, x, smaller)
        return merging.result()


def _merge(merging: Merging, node: Node, x: str, smaller: str) -> None:
    fraction = merging.expressions.of(smaller, (x,))
    alpha = fraction.in_letters({x: "x"})
    if alpha.keys() == {"x"} and 0 <= alpha["x"] < 1 and merging.graph.shape(x) == merging.graph.shape(node.outputs[0]):
        merging.merge(node.outputs[0], fraction.nodes | {node.name}, "LeakyRelu", (x,), {"alpha": alpha["x"]})
