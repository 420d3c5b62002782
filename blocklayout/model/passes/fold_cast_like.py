"""Casts to a type that is known."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.dtypes import to_numpy
from blocklayout.model.graph import Graph, Node


class FoldCastLike(Struct, frozen=True):
    """Takes out a CastLike of a constant, whatever the value is computed from whose type it takes.

    Function bodies are full of them: their constants have the type of their input.
    """

    def __call__(self, graph: Graph) -> Graph:
        values = dict(graph.values)
        kept: list[Node] = []
        for node in graph.nodes:
            known = values[node.inputs[0]].data if node.op_type == "CastLike" else None
            if known is None:
                kept.append(node)
                continue
            cast = values[node.outputs[0]]
            values[cast.name] = replace(cast, data=known.astype(to_numpy(cast.dtype)))
        return graph.replace(nodes=tuple(kept), values=values) if len(kept) < len(graph.nodes) else graph
