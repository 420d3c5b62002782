"""A value times the hyperbolic tangent of its soft plus."""

from __future__ import annotations

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.expressions import is_close
from blocklayout.model.passes.merging import Merging


class MergeMish(Struct, frozen=True):
    """Makes one Mish of ``x * Tanh(Softplus(x))``; Softplus may be spelled ``Log(1 + Exp(x))``.

    ONNX has Mish from operator set 18; this is for kernels, whatever the operator set.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for gate in graph.nodes:
            if gate.op_type == "Tanh" and graph.values[gate.outputs[0]].dtype in FLOATS:
                _merge(merging, gate)
        return merging.result()


def _merge(merging: Merging, gate: Node) -> None:
    soft = _soft_plus(merging, gate.inputs[0])
    if soft is None:
        return
    g, (x, nodes) = gate.outputs[0], soft
    for root in merging.expressions.after(g):
        product = merging.expressions.of(root, (x, g))
        if is_close(product.in_letters({x: "x", g: "g"}), {"gx": 1.0}, merging.graph.values[g].dtype):
            merging.merge(root, nodes | product.nodes | {gate.name}, "Mish", (x,), {})


def _soft_plus(merging: Merging, name: str) -> tuple[str, frozenset[str]] | None:
    """The value whose soft plus this is, and the names of the nodes that compute it."""
    whole = merging.producer(name, "Softplus")
    if whole is not None:
        return whole.inputs[0], frozenset((whole.name,))
    log = merging.producer(name, "Log")
    for e in merging.expressions.before(log.inputs[0]) if log is not None else ():
        exponential = merging.producer(e, "Exp")
        if log is not None and exponential is not None:
            total = merging.expressions.of(log.inputs[0], (e,))
            if is_close(total.in_letters({e: "e"}), {"": 1.0, "e": 1.0}, merging.graph.values[e].dtype):
                return exponential.inputs[0], total.nodes | {log.name, exponential.name}
    return None
