"""Gemm, as its parts."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.lowering import is_native
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.steps import Steps


class GemmToMatMul(Struct, frozen=True):
    """Makes Transpose, MatMul, Mul and Add of a Gemm that no primitive computes as it is.

    Attributes:
        is_native: Whether a node of a graph runs as it is.
    """

    is_native: Callable[[Graph, Node], bool] = is_native

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            is_gemm = node.op_type == "Gemm" and graph.values[node.outputs[0]].dtype in FLOATS
            if is_gemm and not self.is_native(graph, node):
                _write(Steps(merging, node), node, graph.shape(node.outputs[0]))
        return merging.result()


def _write(steps: Steps, node: Node, shape: tuple[int, ...]) -> None:
    a, b = (
        steps.transpose(name, (1, 0)) if node.attr(key, 0) else name
        for name, key in zip(node.inputs, ("transA", "transB"), strict=False)
    )
    result = _scaled(steps, steps.add("MatMul", (a, b), shape), node.attr("alpha", 1.0), "alpha")
    beta = node.attr("beta", 1.0)
    if len(node.inputs) > 2 and node.inputs[2] and beta:
        c = steps.shape(node.inputs[2])
        matrix = steps.reshape(node.inputs[2], (1,) * (2 - len(c)) + c)
        steps.add("Add", (result, _scaled(steps, matrix, beta, "beta")), shape)
    steps.finish()


def _scaled(steps: Steps, name: str, scale: float, what: str) -> str:
    return name if scale == 1 else steps.add("Mul", (name, steps.number(scale, what)), steps.shape(name))
