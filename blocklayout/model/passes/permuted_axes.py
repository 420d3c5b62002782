"""Operators that name dimensions, on permuted sources: they name others."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklayout.model.graph import Node
from blocklayout.model.passes.permuting import Perm, Permuted, Walk, identity

_FIRST_OPSET_OF_ONE_SOFTMAX_AXIS = 13


def softmax(walk: Walk, node: Node) -> bool:
    """Along one dimension; in old versions along that and all behind it."""
    view = walk.views[node.inputs[0]]
    if walk.opset >= _FIRST_OPSET_OF_ONE_SOFTMAX_AXIS:
        return _along_one_axis(walk, node, -1)
    ndims = len(view.perm)
    first = int(node.attr("axis", 1)) % ndims
    axis = _where_trailing(walk.draft.values[view.base].shape, set(view.perm[first:]))
    if axis is None:
        return False
    walk.put(node, (view.base,), {**node.attrs, "axis": axis}, view.perm)
    return True


def _where_trailing(shape: tuple[int, ...], dims: set[int]) -> int | None:
    """Where ``dims`` begin, if they are the last ones but for extents of 1."""
    wide = {dim for dim, extent in enumerate(shape) if extent != 1}
    first = min(wide & dims, default=len(shape) - 1)
    return first if wide & set(range(first, len(shape))) == wide & dims else None


def split(walk: Walk, node: Node) -> bool:
    """Parts along another dimension."""
    return _along_one_axis(walk, node, 0)


def lp_normalization(walk: Walk, node: Node) -> bool:
    """Along another dimension."""
    return _along_one_axis(walk, node, -1)


def _along_one_axis(walk: Walk, node: Node, default: int) -> bool:
    """The axis is another one; the result has the source's rank."""
    view = _only_view(walk, node)
    if view is None:
        return False
    axis = int(node.attr("axis", default)) % len(view.perm)
    walk.put(node, (view.base, *node.inputs[1:]), {**node.attrs, "axis": view.perm[axis]}, view.perm)
    return True


def reduce(walk: Walk, node: Node) -> bool:
    """The dimensions to reduce are others; without them, the rest keep their order among themselves."""
    view, given = _only_view(walk, node), _axes_of(walk, node, 1)
    if view is None or (given is None and any(node.inputs[1:])):
        return False
    keeps = bool(node.attr("keepdims", 1))
    if not given:
        is_noop = bool(node.attr("noop_with_empty_axes", 0))
        walk.put(node, (view.base, *node.inputs[1:]), dict(node.attrs), view.perm if keeps or is_noop else ())
        return True
    gone = {axis % len(view.perm) for axis in given}
    perm = view.perm if keeps else _without(view.perm, gone)
    _put_with_axes(walk, node, 1, tuple(sorted(view.perm[axis] for axis in gone)), perm)
    return True


def arg_reduce(walk: Walk, node: Node) -> bool:
    """Where the largest or smallest stands along another dimension."""
    view = walk.views[node.inputs[0]]
    axis = int(node.attr("axis", 0)) % len(view.perm)
    perm = view.perm if node.attr("keepdims", 1) else _without(view.perm, {axis})
    walk.put(node, (view.base,), {**node.attrs, "axis": view.perm[axis]}, perm)
    return True


def gather(walk: Walk, node: Node) -> bool:
    """Known places along another dimension, which stays or goes."""
    view, places = walk.views.get(node.inputs[0]), walk.constant(node.inputs[1])
    if view is None or places is None or places.ndim > 1:
        return False
    axis = int(node.attr("axis", 0)) % len(view.perm)
    perm = view.perm if places.ndim else _without(view.perm, {axis})
    walk.put(node, (view.base, node.inputs[1]), {**node.attrs, "axis": view.perm[axis]}, perm)
    return True


def squeeze(walk: Walk, node: Node) -> bool:
    """Other dimensions go."""
    view, given = _only_view(walk, node), _axes_of(walk, node, 1)
    if view is None or given is None:
        return False
    gone = {axis % len(view.perm) for axis in given}
    _put_with_axes(walk, node, 1, tuple(sorted(view.perm[axis] for axis in gone)), _without(view.perm, gone))
    return True


def unsqueeze(walk: Walk, node: Node) -> bool:
    """New dimensions go in front of the base's."""
    view, given = _only_view(walk, node), _axes_of(walk, node, 1)
    if view is None or given is None:
        return False
    ndims, n_new = len(view.perm) + len(given), len(given)
    new = sorted(axis % ndims for axis in given)
    old = iter(view.perm)
    perm = tuple(new.index(dim) if dim in new else n_new + next(old) for dim in range(ndims))
    _put_with_axes(walk, node, 1, identity(n_new), perm)
    return True


def slice_(walk: Walk, node: Node) -> bool:
    """Bounds along other dimensions."""
    view, axes = _only_view(walk, node), _sliced_axes(walk, node)
    if view is None or axes is None:
        return False
    turned = tuple(view.perm[axis % len(view.perm)] for axis in axes)
    _put_with_axes(walk, node, 3, turned, view.perm, key="starts")
    return True


def _sliced_axes(walk: Walk, node: Node) -> tuple[int, ...] | None:
    axes = _axes_of(walk, node, 3)
    if axes is not None or (len(node.inputs) > 3 and node.inputs[3]):
        return axes
    if "starts" in node.attrs:
        return identity(len(node.attrs["starts"]))
    return identity(walk.shape(node.inputs[1])[0])


def _only_view(walk: Walk, node: Node) -> Permuted | None:
    """What the first source is a permutation of, if no other is one."""
    is_alone = not any(name in walk.views for name in node.inputs[1:])
    return walk.views.get(node.inputs[0]) if is_alone else None


def _axes_of(walk: Walk, node: Node, index: int) -> tuple[int, ...] | None:
    """The dimensions a node names, in its input ``index`` or in its attribute; ``None`` if it names none."""
    if len(node.inputs) > index and node.inputs[index]:
        given = walk.constant(node.inputs[index])
        return None if given is None else tuple(int(axis) for axis in given.reshape(-1))
    given = node.attr("axes", None)
    return None if given is None else tuple(int(axis) for axis in given)


def _put_with_axes(walk: Walk, node: Node, index: int, axes: tuple[int, ...], perm: Perm, *, key: str = "axes") -> None:
    """Put a node that names ``axes``: in an attribute if it has the attribute ``key``, else in its input ``index``."""
    inputs, attrs = list(node.inputs), dict[str, Any](node.attrs)
    if key in attrs:
        attrs["axes"] = axes
    else:
        inputs += [""] * (index + 1 - len(inputs))
        inputs[index] = walk.draft.constant(f"{node.name}.axes", np.array(axes, np.int64))
    walk.put(node, (walk.views[inputs[0]].base, *inputs[1:]), attrs, perm)


def _without(perm: Perm, gone: set[int]) -> Perm:
    """The permutation of what is left without some dimensions of the value.

    Example:
        >>> _without((0, 2, 3, 1), {1, 2}), _without((0, 3, 2, 1), {3})
        ((0, 1), (0, 2, 1))
    """
    left = [source for dim, source in enumerate(perm) if dim not in gone]
    order = sorted(left)
    return tuple(order.index(source) for source in left)
