"""Nodes that scale and shift each channel by constants."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node


class Affine(Struct, frozen=True, eq=False):
    """What a node does to the channels (dimension 1) of its source: ``source * scale + shift``.

    Attributes:
        source: The value it reads.
        scale: Shape (channels,), float64.
        shift: Shape (channels,), float64.
    """

    source: str
    scale: np.ndarray
    shift: np.ndarray

    @property
    def is_finite(self) -> bool:
        """Whether folding it keeps numbers numbers."""
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())


def read_affine(graph: Graph, node: Node) -> Affine | None:
    """How a node scales and shifts channels; ``None`` if it does anything else."""
    if not node.outputs or not node.outputs[0] or graph.values[node.outputs[0]].dtype not in FLOATS:
        return None
    if len(graph.shape(node.outputs[0])) < 2:
        return None
    if node.op_type == "BatchNormalization":
        return _batch_normalization(graph, node)
    if node.op_type in ("Add", "Sub", "Mul", "Div") and len(node.inputs) == 2:
        return _arithmetic(graph, node)
    return None


def _batch_normalization(graph: Graph, node: Node) -> Affine | None:
    arrays = [graph.constant(name) for name in node.inputs[1:5]]
    if node.attr("training_mode", 0) or not node.attr("spatial", 1) or any(node.outputs[1:]):
        return None
    channels = graph.shape(node.outputs[0])[1:2]
    known = [array.astype(np.float64) for array in arrays if array is not None and array.shape == channels]
    if len(known) != 4:
        return None
    scale, shift, mean, variance = known
    with np.errstate(all="ignore"):  # whoever folds asks is_finite
        factor = scale / np.sqrt(variance + node.attr("epsilon", 1e-5))
        return Affine(node.inputs[0], factor, shift - mean * factor)


def _arithmetic(graph: Graph, node: Node) -> Affine | None:
    left, right = (graph.constant(name) for name in node.inputs)
    if (left is None) == (right is None):
        return None
    operand, source = (right, node.inputs[0]) if left is None else (left, node.inputs[1])
    vector = per_channel(operand, graph.shape(node.outputs[0])) if operand is not None else None
    if vector is None or graph.shape(source) != graph.shape(node.outputs[0]):
        return None
    one, zero = np.ones_like(vector), np.zeros_like(vector)
    if node.op_type == "Add":
        return Affine(source, one, vector)
    if node.op_type == "Mul":
        return Affine(source, vector, zero)
    if node.op_type == "Sub":
        return Affine(source, one, -vector) if left is None else Affine(source, -one, vector)
    if left is not None:
        return None
    with np.errstate(all="ignore"):
        return Affine(source, 1 / vector, zero)


def per_channel(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand as one number for each channel of ``shape``; ``None`` where it varies otherwise.

    Example:
        >>> per_channel(np.array([[[1.0]], [[2.0]]]), (5, 2, 7, 7))
        array([1., 2.])
    """
    if array.ndim > len(shape):
        return None
    extents = (1,) * (len(shape) - array.ndim) + array.shape
    if any(extent != 1 for axis, extent in enumerate(extents) if axis != 1) or extents[1] not in (1, shape[1]):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (shape[1],))
