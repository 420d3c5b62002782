"""Operators that insist on the order of some dimensions, on sources of which only others are permuted."""

from __future__ import annotations

from blocklayout.model.graph import Node
from blocklayout.model.passes.permuting import Walk, identity


def per_channel(walk: Walk, node: Node) -> bool:
    """What treats all dimensions behind the channels alike."""
    view = walk.views.get(node.inputs[0])
    if view is None or view.perm[:2] != (0, 1) or any(node.outputs[1:]):
        return False
    walk.put(node, (view.base, *map(walk.read, node.inputs[1:])), dict(node.attrs), view.perm)
    return True


def normalize_trailing(walk: Walk, node: Node) -> bool:
    """What treats all dimensions in front of an axis alike, and gives moments beside its result."""
    view = walk.views.get(node.inputs[0])
    if view is None:
        return False
    ndims = len(view.perm)
    axis = int(node.attr("axis", -1)) % ndims
    if view.perm[axis:] != identity(ndims)[axis:] or any(name in walk.views for name in node.inputs[1:]):
        return False
    if any(len(walk.shape(name)) > ndims - axis for name in node.inputs[1:] if name):
        return False
    walk.put(node, (view.base, *node.inputs[1:]), {**node.attrs, "axis": axis}, view.perm)
    return True


def multiply_rows(walk: Walk, node: Node) -> bool:
    """A product of the last dimension with a matrix."""
    view, matrix = walk.views.get(node.inputs[0]), node.inputs[1]
    if view is None or len(walk.shape(matrix)) != 2 or view.perm[-1] != len(view.perm) - 1 or len(view.perm) < 2:
        return False
    walk.put(node, (view.base, walk.read(matrix)), dict(node.attrs), view.perm)
    return True
