"""Activations of which a primitive computes the parts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.lowering import is_native
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.steps import Steps

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


class ActivationsToParts(Struct, frozen=True):
    """Makes Elu and Mul of Selu, Abs, Add and Div of Softsign, Max and Min of Clip, Clip and Sub of Shrink.

    Only where no primitive computes them whole: a Clip whose limits are computed at run time. ONNX's own
    function bodies of these need operators that no primitive computes, or came late.

    Attributes:
        is_native: Whether a node of a graph runs as it is.
    """

    is_native: Callable[[Graph, Node], bool] = is_native

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            write = _PARTS.get(node.op_type)
            if write and graph.values[node.outputs[0]].dtype in FLOATS and not self.is_native(graph, node):
                steps = Steps(merging, node)
                if write(steps, node, graph.shape(node.outputs[0])):
                    steps.finish()
        return merging.result()


def _selu(steps: Steps, node: Node, shape: tuple[int, ...]) -> str:
    elu = steps.add("Elu", node.inputs, shape, {"alpha": node.attr("alpha", _SELU_ALPHA)})
    return steps.add("Mul", (elu, steps.number(node.attr("gamma", _SELU_GAMMA), "gamma")), shape)


def _softsign(steps: Steps, node: Node, shape: tuple[int, ...]) -> str:
    size = steps.add("Add", (steps.add("Abs", node.inputs, shape), steps.number(1.0, "one")), shape)
    return steps.add("Div", (node.inputs[0], size), shape)


def _clip(steps: Steps, node: Node, shape: tuple[int, ...]) -> str:
    result = ""
    for op_type, limit in zip(("Max", "Min"), node.inputs[1:], strict=False):
        if limit:
            result = steps.add(op_type, (result or node.inputs[0], limit), shape)
    return result


def _shrink(steps: Steps, node: Node, shape: tuple[int, ...]) -> str:
    """A soft one: what is beyond the limits."""
    limit = node.attr("lambd", 0.5)
    if node.attr("bias", 0.0) != limit or limit < 0:
        return ""
    upper = steps.add("Max", (node.inputs[0], steps.number(-limit, "lower")), shape)
    inner = steps.add("Min", (upper, steps.number(limit, "upper")), shape)
    return steps.add("Sub", (node.inputs[0], inner), shape)


_PARTS = {"Clip": _clip, "Selu": _selu, "Shrink": _shrink, "Softsign": _softsign}
