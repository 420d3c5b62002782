"""Operators on sources from before a Transpose, by the ways in which they name dimensions."""

from __future__ import annotations

import numpy as np

from blocklayout.ir import NodeInfo, Transposed
from blocklayout.layout.permutation import Perm, without


def along_axis(node: NodeInfo, perm: Perm, default: int) -> Transposed:
    """An operator with the attribute ``axis`` whose results have the source's rank."""
    axis = int(node.attrs.get("axis", default)) % len(perm)
    return Transposed(perm, {**node.attrs, "axis": perm[axis]})


def over_axis(node: NodeInfo, perm: Perm, *, keeps_axis: bool) -> Transposed:
    """An operator with the attribute ``axis``, by default 0, of whose dimension nothing is left unless it keeps it."""
    axis = int(node.attrs.get("axis", 0)) % len(perm)
    result = perm if keeps_axis else without(perm, {axis})
    return Transposed(result, {**node.attrs, "axis": perm[axis]})


def per_channel(node: NodeInfo, perm: Perm) -> Transposed | None:
    """An operator that treats all dimensions behind the channels alike."""
    if perm[:2] != (0, 1) or any(node.outputs[1:]):
        return None
    return Transposed(perm, node.attrs)


def trailing(node: NodeInfo, perm: Perm) -> Transposed | None:
    """An operator that treats all dimensions before the attribute ``axis``, by default the last, alike."""
    ndims = len(perm)
    axis = int(node.attrs.get("axis", -1)) % ndims
    has_wide_vector = any(len(node.shape(index)) > ndims - axis for index in range(1, len(node.inputs)))
    if perm[axis:] != tuple(range(axis, ndims)) or has_wide_vector:
        return None
    return Transposed(perm, {**node.attrs, "axis": axis})


def with_axes(
    node: NodeInfo, index: int, axes: tuple[int, ...], result: Perm, *, attribute: str = "axes"
) -> Transposed:
    """A node that names other dimensions: in the attribute ``axes`` if it has ``attribute``, else in an input."""
    if attribute in node.attrs:
        return Transposed(result, {**node.attrs, "axes": axes})
    return Transposed(result, node.attrs, {index: np.array(axes, np.int64)})


def in_order(numbers: np.ndarray, order: Perm) -> np.ndarray:
    """One number, or several in turn, for each dimension, with the dimensions in another order."""
    if not numbers.size:
        return numbers
    return np.ascontiguousarray(numbers.reshape(-1, len(order))[:, list(order)].reshape(-1))
