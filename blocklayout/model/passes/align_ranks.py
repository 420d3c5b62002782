"""Operands of different ranks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.kernels.value import Value
from blocklayout.model.graph import Graph, Node, fresh_name
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
            ndims = len(graph.shape(next(filter(None, node.outputs))))
            for name in node.inputs:
                if name and len(graph.shape(name)) < ndims and (name, ndims) not in reshaped:
                    reshaped[name, ndims] = _reshape(draft, graph.values[name], ndims, nodes)
            inputs = tuple(reshaped.get((name, ndims), name) for name in node.inputs)
            nodes.append(node if inputs == node.inputs else node.replace(inputs=inputs))
        return graph.replace(nodes=tuple(nodes), values=draft.values)


def _reshape(draft: Draft, value: Value, ndims: int, nodes: list[Node]) -> str:
    shape = (1,) * (ndims - len(value.shape)) + value.shape
    name = fresh_name(f"{value.name}.{ndims}d", draft.values)
    if value.data is not None:
        draft.values[name] = Value(name, shape, value.dtype, value.data.reshape(shape))
        return name
    draft.values[name] = Value(name, shape, value.dtype)
    extents = draft.constant(f"{name}.shape", np.array(shape, np.int64))
    nodes.append(Node(name, "Reshape", (value.name, extents), (name,), _allow_zero(shape)))
    return name


def _allow_zero(shape: tuple[int, ...]) -> dict[str, int]:
    """Without it a Reshape reads 0 as "the extent before"; with batch 0 that need not be the same."""
    return {"allowzero": 1} if 0 in shape else {}
