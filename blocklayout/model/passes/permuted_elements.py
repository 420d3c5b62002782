"""Operators that combine elements in the same place, on permuted sources."""

from __future__ import annotations

from math import prod

from blocklayout.model.graph import Node
from blocklayout.model.passes.permuting import Perm, Walk, identity, inverse, moves_nothing


def elementwise(walk: Walk, node: Node) -> bool:
    """One source, and whatever else it reads are scalars."""
    view = walk.views.get(node.inputs[0])
    if view is None or any(name in walk.views or _is_wide(walk, name) for name in node.inputs[1:] if name):
        return False
    walk.put(node, (view.base, *node.inputs[1:]), dict(node.attrs), view.perm)
    return True


def _is_wide(walk: Walk, name: str) -> bool:
    return prod(walk.shape(name)) != 1


def broadcasting(walk: Walk, node: Node) -> bool:
    """Sources broadcast against each other: those that are not permuted alike are turned, if that is less work."""
    ndims = len(walk.shape(node.outputs[0]))
    names = [name for name in node.inputs if name]
    perm = _cheapest(walk, names, ndims)
    if len(names) < len(node.inputs) or perm is None:
        return False
    walk.put(node, [_as_base(walk, name, perm) for name in names], dict(node.attrs), perm)
    return True


def concat(walk: Walk, node: Node) -> bool:
    """All sources have the result's rank; the axis is another one."""
    names = list(node.inputs)
    perm = _cheapest(walk, names, len(walk.shape(node.outputs[0])))
    if perm is None or "axis" not in node.attrs:
        return False
    axis = perm[int(node.attrs["axis"]) % len(perm)]
    walk.put(node, [_as_base(walk, name, perm) for name in names], {**node.attrs, "axis": axis}, perm)
    return True


def _cheapest(walk: Walk, names: list[str], ndims: int) -> Perm | None:
    """The order in which the least has to be turned; ``None`` if that is the one the node was written in."""
    views = [walk.views[name] for name in names if name in walk.views]
    perms = list(dict.fromkeys(view.perm for view in views if len(view.perm) == ndims))
    if not perms:
        return None
    as_written, *costs = (sum(_turning_cost(walk, name, perm) for name in names) for perm in (identity(ndims), *perms))
    return perms[costs.index(min(costs))] if min(costs) < as_written else None


def _turning_cost(walk: Walk, name: str, perm: Perm) -> int:
    """Elements that have to move for ``name`` to be permuted by ``perm``; constants move when nobody waits."""
    if walk.constant(name) is not None:
        return 0
    shape = walk.shape(name)
    if name in walk.views and len(shape) == len(perm):
        return 0 if walk.views[name].perm == perm else prod(shape)
    full = (1,) * (len(perm) - len(shape)) + shape
    return 0 if moves_nothing(full, inverse(perm)) else prod(shape)


def _as_base(walk: Walk, name: str, perm: Perm) -> str:
    """What a node reads in place of ``name`` so that its result, permuted by ``perm``, is as before."""
    view = walk.views.get(name)
    if view is not None and view.perm == perm:
        return view.base
    shape = walk.shape(name)
    if prod(shape) == 1 and len(shape) <= len(perm):
        return walk.read(name)
    if len(shape) < len(perm):
        return walk.turned(walk.of_rank(name, len(perm)), inverse(perm))
    return walk.turned(name, inverse(perm))
