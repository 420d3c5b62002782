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
        for node in graph.nodes:
            if node.facts.broadcasts_from is None:
                continue
            views: list[Node] = []
            ndims = len(graph.info(node).result.shape)
            for name in node.inputs:
                if name and len(graph.shape(name)) < ndims and (name, ndims) not in reshaped:
                    reshaped[name, ndims], reshape = draft.of_rank(name, ndims)
                    views += [reshape] if reshape else []
            inputs = tuple(reshaped.get((name, ndims), name) for name in node.inputs)
            if inputs != node.inputs:
                draft.replace(node, *views, node.replace(inputs=inputs))
        return draft.result()
