"""A value times its own sigmoid."""

from __future__ import annotations

import math
from dataclasses import dataclass

from blocklayout.model.graph import Graph, Node

_GATES = {"Sigmoid": "Swish", "HardSigmoid": "HardSwish"}


@dataclass(frozen=True)
class MergeSwish:
    """Makes one Swish of ``x * Sigmoid(x)``, and one HardSwish of ``x * HardSigmoid(x)``.

    Exporters spell both that way. ONNX has Swish from operator set 24 and HardSwish from 14, so this is
    for kernels, whatever the operator set; it is no part of what is written to files.
    """

    def __call__(self, graph: Graph) -> Graph:
        producers = graph.producers()
        readers = graph.readers()
        gone: set[str] = set()
        nodes: list[Node] = []
        for node in graph.nodes:
            gate = _gate(node, producers)
            if gate is None or len(readers[gate.outputs[0]]) != 1 or gate.outputs[0] in graph.outputs:
                nodes.append(node)
                continue
            gone.add(gate.name)
            absorbed = (*node.absorbed, gate.name, *gate.absorbed)
            nodes.append(node.replace(op_type=_GATES[gate.op_type], inputs=gate.inputs, attrs={}, absorbed=absorbed))
        return graph.replace(nodes=tuple(node for node in nodes if node.name not in gone))


def _gate(node: Node, producers: dict[str, Node]) -> Node | None:
    """The sigmoid of a product's other factor, if it is one."""
    if node.op_type != "Mul":
        return None
    for factor, other in (node.inputs, node.inputs[::-1]):
        gate = producers.get(factor)
        if gate is not None and gate.op_type in _GATES and gate.inputs == (other,) and _is_standard(gate):
            return gate
    return None


def _is_standard(gate: Node) -> bool:
    """HardSwish is specified with a slope of 1/6; HardSigmoid's own default is 0.2."""
    if gate.op_type == "Sigmoid":
        return True
    return math.isclose(gate.attr("alpha", 0.2), 1 / 6, rel_tol=1e-6) and bool(gate.attr("beta", 0.5) == 0.5)
