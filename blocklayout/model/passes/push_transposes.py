"""Transposes, moved behind what can do without them."""

from __future__ import annotations

from dataclasses import dataclass

from blocklayout.model.graph import Graph, live_nodes
from blocklayout.model.passes.permuted_operators import KEEP_RANK, rule_for
from blocklayout.model.passes.permuting import Perm, Walk


@dataclass(frozen=True)
class PushTransposes:
    """Lets Transposes sink through the operators that can work in any order of dimensions.

    Networks exported from channels-last frameworks wrap each convolution in two of them. Behind a convolution
    they sink until they meet the next one's and cancel; so the operators between come to stand beside the
    convolution, where they can be folded into it or run with it. What is left stands where an operator insists
    on an order, or at the outputs. Where operands disagree, the smaller ones are turned.
    """

    def __call__(self, graph: Graph) -> Graph:
        if not any(node.op_type == "Transpose" for node in graph.nodes):
            return graph
        walk = Walk(graph)
        for name in graph.inputs:
            perm = _order_wanted(walk, name)
            if perm is not None:
                walk.enter(name, perm)
        for old in graph.nodes:
            node = walk.current(old)
            if node.op_type == "Transpose":
                walk.hold(node)
                continue
            rule = rule_for(node.op_type) if any(name in walk.views for name in node.inputs) else None
            if rule is None or not rule(walk, node):
                walk.keep(node)
        for name in graph.outputs:
            walk.give(name)
        nodes = live_nodes(walk.nodes, graph.outputs)
        return graph.replace(nodes=nodes, values=walk.draft.values)


def _order_wanted(walk: Walk, name: str) -> Perm | None:
    """How an input is transposed behind operators that can work in any order; ``None`` if it is not."""
    is_behind = False
    while name not in walk.graph.outputs and len(walk.readers[name]) == 1:
        [reader] = walk.readers[name]
        if reader.op_type == "Transpose":
            perm = reader.attr("perm", None)
            return tuple(perm) if perm and is_behind else None
        has_one_source = all(walk.constant(other) is not None for other in reader.inputs if other not in ("", name))
        if reader.op_type not in KEEP_RANK or not has_one_source:
            return None
        name, is_behind = reader.outputs[0], True
    return None
