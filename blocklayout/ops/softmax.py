"""Softmax and its logarithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from blocklayout import dnnl
from blocklayout.kernels import BaseOperator, Lowered, NodeInfo, Problem, Recipe, Role, Wish
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._reading import axis_attr, bound, require_float, require_ndims, required, unsupported

_ALGORITHMS = {"Softmax": "softmax_accurate", "LogSoftmax": "softmax_log"}
_FIRST_OPSET_OF_ONE_AXIS = 13


@dataclass(frozen=True)
class Softmax(BaseOperator):
    """Normalised exponentials along one dimension.

    Attributes:
        algorithm: oneDNN's name of the softmax or its logarithm.
        axis: The dimension, not negative.
    """

    op_types: ClassVar[tuple[str, ...]] = tuple(_ALGORITHMS)
    role: ClassVar[Role] = Role.FOLLOWER

    algorithm: str
    axis: int

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        src = require_ndims(node, require_float(node, required(node, 0, "input")), 1, 12)
        axis = _axis(node, src.shape)
        return bound(cls(_ALGORITHMS[node.op_type], axis), {"src": src})

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None:
            return None
        spec = dnnl.softmax(*descs, axis=self.axis, algorithm=self.algorithm, attr=attr, n_threads=problem.n_threads)
        return Recipe.single(spec)


def _axis(node: NodeInfo, shape: tuple[int, ...]) -> int:
    if node.opset >= _FIRST_OPSET_OF_ONE_AXIS:
        return axis_attr(node, "axis", len(shape), -1)
    # Before opset 13 everything from the axis on was flattened into one dimension (a 1-D source has axis 0 only).
    first = axis_attr(node, "axis", len(shape), min(1, len(shape) - 1))
    wide = [axis for axis in range(first, len(shape)) if shape[axis] != 1]
    if len(wide) > 1:
        what = f"opset {node.opset} normalises over dimensions {first} to {len(shape) - 1} of {list(shape)} together"
        raise unsupported(node, what, "flatten them before it, or convert the model to opset 13")
    return wide[0] if wide else first
