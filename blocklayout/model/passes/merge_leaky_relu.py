"""The larger of a value and a fraction of it."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging


class MergeLeakyRelu(Struct, frozen=True):
    """Makes one LeakyRelu of ``Max(x, alpha * x)``, or of ``Where(x < 0, alpha * x, x)``."""

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Max" and len(node.inputs) == 2 and graph.values[node.outputs[0]].dtype in FLOATS:
                for x, fraction in (node.inputs, node.inputs[::-1]):
                    _merge(merging, node, x, fraction)
            elif node.op_type == "Where" and graph.values[node.outputs[0]].dtype in FLOATS:
                _merge_choice(merging, node)
        return merging.result()


def _merge_choice(merging: Merging, node: Node) -> None:
    choice = merging.choice(node)
    if choice is None:
        return
    comparison, fraction, x = choice
    if comparison.inputs[0] == x and merging.expressions.number(comparison.inputs[1]) == 0:
        _merge(merging, node, x, fraction, comparison.name)


def _merge(merging: Merging, node: Node, x: str, fraction: str, *others: str) -> None:
    part = merging.expressions.of(fraction, (x,))
    slope = part.in_letters({x: "x"})
    is_smaller = bool(others) or 0 <= slope.get("x", 0.0) < 1
    if slope.keys() == {"x"} and is_smaller and merging.graph.shape(x) == merging.graph.shape(node.outputs[0]):
        nodes = {node.name, *part.nodes, *others}
        merging.merge(node.outputs[0], nodes, "LeakyRelu", (x,), {"alpha": slope["x"]})
