"""Matrix products of vectors, and of batches of different ranks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.steps import Steps


class AlignMatMul(Struct, frozen=True):
    """Gives both operands of a MatMul the rank of the product: vectors become matrices of one row or column.

    A constant is reshaped; a computed value gets a Reshape, which moves no byte. So does the product of a vector.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "MatMul":
                _align(merging, node)
        return merging.result()


def _align(merging: Merging, node: Node) -> None:
    a, b = (merging.graph.shape(name) for name in node.inputs)
    matrix_a, matrix_b = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    batch = np.broadcast_shapes(matrix_a[:-2], matrix_b[:-2])
    ndims = len(batch) + 2
    if len(a) == len(b) == ndims:
        return
    steps = Steps(merging, node)
    operands = [
        steps.reshape(name, (1,) * (ndims - len(shape)) + shape)
        for name, shape in zip(node.inputs, (matrix_a, matrix_b), strict=True)
    ]
    result = steps.add("MatMul", operands, (*batch, matrix_a[-2], matrix_b[-1]))
    steps.reshape(result, merging.graph.shape(node.outputs[0]))
    steps.finish()
