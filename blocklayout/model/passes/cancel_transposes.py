"""Transposes in a row."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node, live_nodes
from blocklayout.model.passes.permuting import keeps_order, perm_of
from blocklayout.model.passes.rewrite import bypass


class CancelTransposes(Struct, frozen=True):
    """Makes one Transpose of several in a row, and none of those that undo each other."""

    def __call__(self, graph: Graph) -> Graph:
        producers: dict[str, Node] = {}
        nodes: list[Node] = []
        undone: dict[str, str] = {}
        for node in graph.nodes:
            merged = _merged(graph, node, producers) if node.op_type == "Transpose" else node
            nodes.append(merged)
            producers.update({name: merged for name in merged.outputs if name})
            if merged.op_type == "Transpose" and keeps_order(graph, merged):
                undone[merged.outputs[0]] = merged.inputs[0]
        short = bypass(graph.replace(nodes=tuple(nodes)), undone)
        return short.replace(nodes=live_nodes(short.nodes, short.outputs))


def _merged(graph: Graph, node: Node, producers: dict[str, Node]) -> Node:
    first = producers.get(node.inputs[0])
    if first is None or first.op_type != "Transpose":
        return node
    inner = perm_of(graph, first)
    perm = tuple(inner[axis] for axis in perm_of(graph, node))
    return node.replace(
        inputs=first.inputs, attrs={"perm": perm}, absorbed=(first.name, *first.absorbed, *node.absorbed)
    )
