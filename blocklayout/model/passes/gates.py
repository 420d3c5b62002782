"""Functions of a value that are combined with the value itself: how activations are spelled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Node
from blocklayout.model.passes.merging import Merging


class Gated(Struct, frozen=True, eq=False):
    """``root`` computed from ``x`` and ``g``, which a node computes from an expression of ``x`` alone.

    Attributes:
        x: The value.
        gate: The node that gives ``g``.
        root: What comes out; of the extents of ``x``.
        inner: The gate's argument, a polynomial in ``x``.
        outer: The root, a polynomial in ``g`` and ``x``.
        nodes: Names of all nodes between ``x`` and ``root``.
        dtype: Data type of the root.
    """

    x: str
    gate: Node
    root: str
    inner: Mapping[str, float]
    outer: Mapping[str, float]
    nodes: frozenset[str]
    dtype: str


def gated(merging: Merging, *op_types: str) -> Iterator[Gated]:
    """All ways to see the gates among ``op_types`` as parts of such a computation, the largest first."""
    for gate in merging.graph.nodes:
        if gate.op_type in op_types and merging.graph.values[gate.outputs[0]].dtype in FLOATS:
            for x in reversed(merging.expressions.before(gate.inputs[0])):
                yield from _of_value(merging, gate, x)


def _of_value(merging: Merging, gate: Node, x: str) -> Iterator[Gated]:
    graph, expressions = merging.graph, merging.expressions
    argument = expressions.of(gate.inputs[0], (x,))
    inner = argument.in_letters({x: "x"})
    if not any("x" in term for term in inner):
        return
    g = gate.outputs[0]
    for root in expressions.after(g):
        result = expressions.of(root, (x, g))
        outer = result.in_letters({x: "x", g: "g"})
        if graph.shape(root) == graph.shape(x) and any("g" in term for term in outer):
            nodes = argument.nodes | result.nodes | {gate.name}
            yield Gated(x, gate, root, inner, outer, nodes, graph.values[root].dtype)
