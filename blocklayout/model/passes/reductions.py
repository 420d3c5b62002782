"""Dimensions of reductions, and constants along them."""

from __future__ import annotations

import numpy as np

from blocklayout.model.graph import Graph, Node


def reduced_axes(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The dimensions that a reduction reduces, ascending; ``None`` where they are not known."""
    return node.facts.reduced_axes(graph.info(node))


def spread(graph: Graph, name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand of a tensor of ``shape`` as numbers along ``axes``; ``None`` if it varies along others."""
    array = graph.constant(name)
    if array is None or array.ndim > len(shape):
        return None
    extents = (1,) * (len(shape) - array.ndim) + array.shape
    if any(extent not in ((1, shape[axis]) if axis in axes else (1,)) for axis, extent in enumerate(extents)):
        return None
    kept = tuple(extents[axis] for axis in axes)
    return np.broadcast_to(array.astype(np.float64).reshape(kept), tuple(shape[axis] for axis in axes))
