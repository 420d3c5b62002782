"""Concatenations that begin as others do."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from blocklayout.model.graph import Graph, Node


class ChainConcats(Struct, frozen=True):
    """Reads what an earlier concatenation wrote in place of the inputs that both begin with.

    Networks that concatenate all features so far before each layer become chains: each concatenation reads
    the one before and what is new. The bytes are the same; who needs what is plainer, and the features so
    far can stay where they are.
    """

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        written: dict[tuple[int, tuple[str, ...]], str] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.op_type != "Concat":
                nodes.append(node)
                continue
            axis = _axis(graph, node)
            lengths = range(len(node.inputs) - 1, 1, -1)
            n_shared = next((n for n in lengths if (axis, node.inputs[:n]) in written), 0)
            before = (written[axis, node.inputs[:n_shared]],) if n_shared else ()
            nodes.append(node.replace(inputs=(*before, *node.inputs[n_shared:])))
            written.setdefault((axis, node.inputs), node.outputs[0])
        return graph.replace(nodes=tuple(nodes))


def _axis(graph: Graph, node: Node) -> int:
    axis = int(node.attr("axis", 1))
    return axis if axis >= 0 else axis + len(graph.shape(node.outputs[0]))
