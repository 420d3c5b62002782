"""Activations of which a primitive computes the parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.steps import Steps
from blocklayout.model.types import FLOATS

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


@dataclass(frozen=True)
class ActivationsToParts:
    """Makes Elu and Mul of Selu, and Abs, Add and Div of Softsign, unless a primitive computes them whole.

    ONNX's own function bodies of these need operators that no primitive computes, or came late.

    Attributes:
        is_native: Whether a node of a graph runs as it is.
    """

    is_native: Callable[[Graph, Node], bool]

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            write = _PARTS.get(node.op_type)
            if write and graph.values[node.outputs[0]].dtype in FLOATS and not self.is_native(graph, node):
                write(Steps(merging, node), node, graph.shape(node.outputs[0]))
        return merging.result()


def _selu(steps: Steps, node: Node, shape: tuple[int, ...]) -> None:
    elu = steps.add("Elu", node.inputs, shape, {"alpha": node.attr("alpha", _SELU_ALPHA)})
    steps.add("Mul", (elu, steps.number(node.attr("gamma", _SELU_GAMMA), "gamma")), shape)
    steps.finish()


def _softsign(steps: Steps, node: Node, shape: tuple[int, ...]) -> None:
    size = steps.add("Add", (steps.add("Abs", node.inputs, shape), steps.number(1.0, "one")), shape)
    steps.add("Div", (node.inputs[0], size), shape)
    steps.finish()


_PARTS = {"Selu": _selu, "Softsign": _softsign}
