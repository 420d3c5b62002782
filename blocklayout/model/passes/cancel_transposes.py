"""Transposes in a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from blocklayout.layout.permutation import Perm, identity, permuted
from blocklayout.model.graph import Graph, Node, live_nodes
from blocklayout.model.passes.push_transposes import permutation
from blocklayout.model.passes.rewrite import bypass


class CancelTransposes(Struct, frozen=True):
    """Makes one Transpose of several in a row, and none of those that undo each other."""

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        transposes: dict[str, tuple[Node, Perm]] = {}
        nodes: list[Node] = []
        undone: dict[str, str] = {}
        for node in graph.nodes:
            merged, perm = _merged(graph, node, transposes)
            nodes.append(merged)
            if perm is None:
                continue
            transposes[node.outputs[0]] = merged, perm
            if perm == identity(len(perm)):
                undone[node.outputs[0]] = merged.inputs[0]
        short = bypass(graph.replace(nodes=tuple(nodes)), undone)
        return short.replace(nodes=live_nodes(short.nodes, short.outputs))


def _merged(graph: Graph, node: Node, transposes: Mapping[str, tuple[Node, Perm]]) -> tuple[Node, Perm | None]:
    """A node, with the Transpose it reads, and its permutation if it is a Transpose."""
    perm = permutation(graph, node)
    if perm is None or node.inputs[0] not in transposes:
        return node, perm
    first, inner = transposes[node.inputs[0]]
    perm = permuted(inner, perm)
    absorbed = (first.name, *first.absorbed, *node.absorbed)
    return node.replace(inputs=first.inputs, attrs={"perm": perm}, absorbed=absorbed), perm
