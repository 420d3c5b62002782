"""Operands of different ranks."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.rewrite import Draft


class AlignRanks(Struct, frozen=True):
    """Gives every operand of a broadcasting operator the rank of the result, with extents of 1 in front.

    A constant is reshaped; a computed value gets a Reshape, which moves no byte.
    """

    def __call__(self, graph: Graph) -> Graph:
        draft = Draft(graph)
        reshaped: dict[tuple[str, int], str] = {}
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.facts.broadcasts_from is None:
                nodes.append(node)
                continue
            ndims = len(graph.info(node).result.shape)
            for name in node.inputs:
                if name and len(graph.shape(name)) < ndims and (name, ndims) not in reshaped:
                    reshaped[name, ndims], reshape = draft.of_rank(name, ndims)
                    nodes += [reshape] if reshape else []
            inputs = tuple(reshaped.get((name, ndims), name) for name in node.inputs)
            nodes.append(node if inputs == node.inputs else node.replace(inputs=inputs))
        return graph.replace(nodes=tuple(nodes), values=draft.values)
