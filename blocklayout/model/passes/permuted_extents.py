"""Operators that give a number for every dimension, on permuted sources: the numbers change places."""

from __future__ import annotations

import numpy as np

from blocklayout.model.graph import Node
from blocklayout.model.passes.permuting import Perm, Walk, inverse


def pad(walk: Walk, node: Node) -> bool:
    """Pads of every dimension, or of those it names."""
    view = walk.views.get(node.inputs[0])
    if view is None or any(name in walk.views for name in node.inputs[1:]):
        return False
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = walk.constant(node.inputs[3])
        if axes is None:
            return False
        turned = np.array([view.perm[axis] for axis in axes], np.int64)
        name = walk.draft.constant(f"{node.name}.axes", turned)
        walk.put(node, (view.base, *node.inputs[1:3], name), dict(node.attrs), view.perm)
        return True
    pads = node.attrs["pads"] if "pads" in node.attrs else walk.constant(node.inputs[1])
    if pads is None:
        return False
    turned = np.asarray(pads).reshape(2, -1)[:, list(inverse(view.perm))].reshape(-1)
    if "pads" in node.attrs:
        walk.put(node, (view.base, *node.inputs[1:]), {**node.attrs, "pads": tuple(map(int, turned))}, view.perm)
        return True
    name = walk.draft.constant(f"{node.name}.pads", turned.astype(np.int64))
    walk.put(node, (view.base, name, *node.inputs[2:]), dict(node.attrs), view.perm)
    return True


def resize(walk: Walk, node: Node) -> bool:
    """Scales and sizes, and the corners of the region, of every dimension or of those it names."""
    view = walk.views.get(node.inputs[0])
    others = node.inputs[1:]
    if view is None or any(name and walk.constant(name) is None for name in others):
        return False
    if _is_of_images(walk, node) and not _is_of_images(walk, node, view.perm):
        return False
    attrs = dict(node.attrs)
    if "axes" in attrs:
        attrs["axes"] = tuple(view.perm[axis] for axis in attrs["axes"])
        walk.put(node, (view.base, *others), attrs, view.perm)
        return True
    back = list(inverse(view.perm))
    if "scales" in attrs:
        attrs["scales"] = tuple(np.asarray(attrs["scales"])[back].tolist())
    walk.put(node, (view.base, *(_turned(walk, name, back) for name in others)), attrs, view.perm)
    return True


def _is_of_images(walk: Walk, node: Node, perm: Perm | None = None) -> bool:
    """Whether batch and channels, the first two dimensions, keep their extents: there are primitives for that."""
    before, after = walk.shape(node.inputs[0]), walk.shape(node.outputs[0])
    dims = (dim for dim, extent in enumerate(before) if extent != after[dim])
    return all((perm[dim] if perm else dim) > 1 for dim in dims)


def _turned(walk: Walk, name: str, order: list[int]) -> str:
    """A constant with a number, or several, for every dimension, in another order."""
    data = walk.constant(name)
    if data is None or not data.size:
        return name
    turned = data.reshape(-1, len(order))[:, order].reshape(-1)
    return walk.draft.constant(f"{name}.permuted", np.ascontiguousarray(turned))


def expand(walk: Walk, node: Node) -> bool:
    """Extents of the result, counted from the last."""
    return _per_dimension(walk, node)


def tile(walk: Walk, node: Node) -> bool:
    """How often each dimension is repeated."""
    return _per_dimension(walk, node)


def _per_dimension(walk: Walk, node: Node) -> bool:
    view, numbers = walk.views.get(node.inputs[0]), walk.constant(node.inputs[1])
    if view is None or numbers is None or numbers.size > len(view.perm):
        return False
    full = np.concatenate([np.ones(len(view.perm) - numbers.size, np.int64), numbers])
    name = walk.draft.constant(f"{node.inputs[1]}.permuted", full[list(inverse(view.perm))])
    walk.put(node, (view.base, name), dict(node.attrs), view.perm)
    return True
