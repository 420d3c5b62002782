"""A soft plus that is its argument where that is large."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.expressions import is_close
from blocklayout.model.passes.merging import Merging

_LARGE = 16.0
"""From here on Softplus(x) and x are the same number in f32."""


class MergeSoftplus(Struct, frozen=True):
    """Makes one Softplus of ``Where(x > 20, x, Softplus(x))``, or of the opposite question."""

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Where" and graph.values[node.outputs[0]].dtype in FLOATS:
                _merge(merging, node)
        return merging.result()


def _merge(merging: Merging, node: Node) -> None:
    choice = merging.choice(node)
    if choice is None:
        return
    comparison, other, x = choice
    soft = merging.producer(other, "Softplus")
    limit = merging.expressions.number(comparison.inputs[1])
    if soft is None or limit is None or limit < _LARGE or soft.inputs[0] != x:
        return
    asked = merging.expressions.of(comparison.inputs[0], (x,))
    keeps_extents = merging.graph.shape(x) == merging.graph.shape(node.outputs[0])
    if is_close(asked.in_letters({x: "x"}), {"x": 1.0}, "f32") and keeps_extents:
        nodes = {node.name, comparison.name, soft.name, *asked.nodes}
        merging.merge(node.outputs[0], nodes, "Softplus", (x,), {})
