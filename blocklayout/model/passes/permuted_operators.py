"""How operators work on permuted sources: one rule for each way in which an operator names dimensions.

A rule puts a node that gives the same, permuted, and says whether it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from blocklayout.model.graph import Node
from blocklayout.model.passes.permuting import (
    Perm,
    Permuted,
    Walk,
    identity,
    inverse,
    moves_nothing,
)

Rule = Callable[[Walk, Node], bool]

_FIRST_OPSET_OF_ONE_SOFTMAX_AXIS = 13


def rule_for(op_type: str) -> Rule | None:
    """The rule of an operator; ``None`` if it insists on the order it was given."""
    return _RULES.get(op_type)


def _elementwise(walk: Walk, node: Node) -> bool:
    """One source, and whatever else it reads are scalars."""
    view = walk.views.get(node.inputs[0])
    if view is None or any(name in walk.views or _is_wide(walk, name) for name in node.inputs[1:] if name):
        return False
    walk.put(node, (view.base, *node.inputs[1:]), dict(node.attrs), view.perm)
    return True


def _is_wide(walk: Walk, name: str) -> bool:
    return prod(walk.shape(name)) != 1


def _broadcasting(walk: Walk, node: Node) -> bool:
    """Sources broadcast against each other: those that are not permuted alike are turned, if that is less work."""
    ndims = len(walk.shape(node.outputs[0]))
    names = [name for name in node.inputs if name]
    views = [walk.views[name] for name in names if name in walk.views]
    if len(names) < len(node.inputs) or any(len(view.perm) != ndims for view in views):
        return False
    perm = _cheapest(walk, names, views)
    if perm is None:
        return False
    walk.put(node, [_as_base(walk, name, perm) for name in node.inputs], dict(node.attrs), perm)
    return True


def _cheapest(walk: Walk, names: list[str], views: list[Permuted]) -> Perm | None:
    """The order in which the least has to be turned; ``None`` if that is the one the node was written in."""
    perms = list(dict.fromkeys([identity(len(views[0].perm)), *(view.perm for view in views)]))
    costs = {perm: sum(_turning_cost(walk, name, perm) for name in names) for perm in perms}
    best = min(perms[1:] if costs[perms[0]] else perms, key=lambda perm: costs[perm])
    return best if costs[best] < costs[perms[0]] else None


def _turning_cost(walk: Walk, name: str, perm: Perm) -> int:
    """Elements that have to move for ``name`` to be permuted by ``perm``; constants move when nobody waits."""
    if walk.constant(name) is not None:
        return 0
    shape = walk.shape(name)
    if name in walk.views:
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


def _concat(walk: Walk, node: Node) -> bool:
    """All sources have the result's rank; the axis is another one."""
    names = list(node.inputs)
    views = [walk.views[name] for name in names if name in walk.views]
    perm = _cheapest(walk, names, views)
    if perm is None or "axis" not in node.attrs:
        return False
    axis = perm[int(node.attrs["axis"]) % len(perm)]
    walk.put(node, [_as_base(walk, name, perm) for name in names], {**node.attrs, "axis": axis}, perm)
    return True


def _along_one_axis(walk: Walk, node: Node) -> bool:
    """Softmax and Split: the axis is another one, the result has the source's rank."""
    view = walk.views.get(node.inputs[0])
    if view is None or any(name in walk.views for name in node.inputs[1:]):
        return False
    is_softmax = node.op_type in _SOFTMAX
    if is_softmax and walk.opset < _FIRST_OPSET_OF_ONE_SOFTMAX_AXIS:
        return False
    axis = int(node.attr("axis", -1 if is_softmax else 0)) % len(view.perm)
    walk.put(node, (view.base, *node.inputs[1:]), {**node.attrs, "axis": view.perm[axis]}, view.perm)
    return True


_SOFTMAX = frozenset(("Softmax", "LogSoftmax", "Hardmax"))


def _axes_of(walk: Walk, node: Node, index: int) -> tuple[int, ...] | None:
    """The dimensions a node names, in its input ``index`` or in its attribute; ``None`` if it names none."""
    if len(node.inputs) > index and node.inputs[index]:
        given = walk.constant(node.inputs[index])
        return None if given is None else tuple(int(axis) for axis in given.reshape(-1))
    given = node.attr("axes", None)
    return None if given is None else tuple(int(axis) for axis in given)


def _with_axes(walk: Walk, node: Node, index: int, axes: tuple[int, ...]) -> tuple[list[str], dict[str, Any]]:
    """The node's inputs and attributes with other axes, where it had them."""
    inputs, attrs = list(node.inputs), dict(node.attrs)
    if "axes" in attrs:
        attrs["axes"] = axes
        return inputs, attrs
    inputs += [""] * (index + 1 - len(inputs))
    inputs[index] = walk.draft.constant(f"{node.name}.axes", np.array(axes, np.int64))
    return inputs, attrs


def _reduce(walk: Walk, node: Node) -> bool:
    """The dimensions to reduce are others; without them, the rest keep their order among themselves."""
    view = walk.views.get(node.inputs[0])
    given = _axes_of(walk, node, 1)
    if view is None or not given:
        return False
    ndims = len(view.perm)
    gone = {axis % ndims for axis in given}
    inputs, attrs = _with_axes(walk, node, 1, tuple(sorted(view.perm[axis] for axis in gone)))
    keeps = bool(node.attr("keepdims", 1))
    perm = view.perm if keeps else _without(view.perm, gone)
    walk.put(node, (view.base, *inputs[1:]), attrs, perm)
    return True


def _arg_reduce(walk: Walk, node: Node) -> bool:
    view = walk.views[node.inputs[0]]
    axis = int(node.attr("axis", 0)) % len(view.perm)
    perm = view.perm if node.attr("keepdims", 1) else _without(view.perm, {axis})
    walk.put(node, (view.base,), {**node.attrs, "axis": view.perm[axis]}, perm)
    return True


def _without(perm: Perm, gone: set[int]) -> Perm:
    """The permutation of what is left without some dimensions of the value."""
    left = [source for dim, source in enumerate(perm) if dim not in gone]
    order = sorted(left)
    return tuple(order.index(source) for source in left)


def _squeeze(walk: Walk, node: Node) -> bool:
    view = walk.views.get(node.inputs[0])
    if view is None:
        return False
    ndims = len(view.perm)
    given = _axes_of(walk, node, 1)
    if given is None:
        return False
    gone = {axis % ndims for axis in given}
    inputs, attrs = _with_axes(walk, node, 1, tuple(sorted(view.perm[axis] for axis in gone)))
    walk.put(node, (view.base, *inputs[1:]), attrs, _without(view.perm, gone))
    return True


def _unsqueeze(walk: Walk, node: Node) -> bool:
    """New dimensions go in front of the base's."""
    view = walk.views.get(node.inputs[0])
    given = _axes_of(walk, node, 1)
    if view is None or given is None:
        return False
    ndims, n_new = len(view.perm) + len(given), len(given)
    new = sorted(axis % ndims for axis in given)
    old = iter(view.perm)
    perm = tuple(new.index(dim) if dim in new else n_new + next(old) for dim in range(ndims))
    inputs, attrs = _with_axes(walk, node, 1, identity(n_new))
    walk.put(node, (view.base, *inputs[1:]), attrs, perm)
    return True


def _slice(walk: Walk, node: Node) -> bool:
    view = walk.views.get(node.inputs[0])
    if view is None or any(name in walk.views for name in node.inputs[1:]):
        return False
    ndims = len(view.perm)
    axes = _axes_of(walk, node, 3)
    if axes is None:
        starts = node.attr("starts", None) if "starts" in node.attrs else walk.constant(node.inputs[1])
        if starts is None or (len(node.inputs) > 3 and node.inputs[3]):
            return False
        axes = identity(len(starts))
    turned = tuple(view.perm[axis % ndims] for axis in axes)
    if "starts" in node.attrs:
        walk.put(node, (view.base,), {**node.attrs, "axes": turned}, view.perm)
        return True
    inputs, attrs = _with_axes(walk, node, 3, turned)
    walk.put(node, (view.base, *inputs[1:]), attrs, view.perm)
    return True


def _pad(walk: Walk, node: Node) -> bool:
    view = walk.views.get(node.inputs[0])
    if view is None or any(name in walk.views for name in node.inputs[1:]):
        return False
    if len(node.inputs) > 3 and node.inputs[3]:
        axes = _axes_of(walk, node, 3)
        if axes is None:
            return False
        inputs, attrs = _with_axes(walk, node, 3, tuple(view.perm[axis % len(view.perm)] for axis in axes))
        walk.put(node, (view.base, *inputs[1:]), attrs, view.perm)
        return True
    pads = node.attrs["pads"] if "pads" in node.attrs else walk.constant(node.inputs[1])
    if pads is None:
        return False
    begins, ends = np.asarray(pads).reshape(2, -1)
    back = inverse(view.perm)
    turned = np.concatenate([begins[list(back)], ends[list(back)]])
    if "pads" in node.attrs:
        walk.put(node, (view.base, *node.inputs[1:]), {**node.attrs, "pads": tuple(map(int, turned))}, view.perm)
        return True
    name = walk.draft.constant(f"{node.name}.pads", turned.astype(np.int64))
    walk.put(node, (view.base, name, *node.inputs[2:]), dict(node.attrs), view.perm)
    return True


def _resize(walk: Walk, node: Node) -> bool:
    """Scales and sizes of every dimension, in the base's order."""
    view = walk.views.get(node.inputs[0])
    if view is None or "axes" in node.attrs:
        return False
    ndims, back = len(view.perm), list(inverse(view.perm))
    inputs, attrs = [view.base], dict(node.attrs)
    if "scales" in attrs:
        attrs["scales"] = tuple(np.asarray(attrs["scales"])[back])
    for name in node.inputs[1:]:
        data = walk.constant(name)
        if name and data is None:
            return False
        if data is None or not data.size:
            inputs.append(name)
            continue
        turned = data.reshape(-1, ndims)[:, back].reshape(-1)
        inputs.append(walk.draft.constant(f"{name}.permuted", np.ascontiguousarray(turned)))
    walk.put(node, inputs, attrs, view.perm)
    return True


def _flatten(walk: Walk, node: Node) -> bool:
    """A permuted image as rows of a matrix: the weights of the only product that reads them are permuted instead."""
    view, flat = walk.views.get(node.inputs[0]), walk.shape(node.outputs[0])
    product = _only_product(walk, node.outputs[0])
    shape = walk.shape(node.inputs[0])
    if view is None or product is None or view.perm[0] != 0 or len(flat) != 2 or flat[0] != shape[0]:
        return False
    is_transposed = bool(product.attr("transB", 0))
    weights = walk.draft.contents(product.inputs[1])
    rows = weights.T if is_transposed else weights
    inner = [dim - 1 for dim in inverse(view.perm)[1:]]
    turned = rows.reshape(*shape[1:], -1).transpose(*inner, len(inner)).reshape(rows.shape)
    array = np.ascontiguousarray(turned.T if is_transposed else turned)
    walk.replace_source(product, 1, walk.draft.constant(f"{product.inputs[1]}.permuted", array))
    extents = walk.draft.constant(f"{node.outputs[0]}.shape", np.array(flat, np.int64))
    walk.nodes.append(node.replace(op_type="Reshape", inputs=(view.base, extents), attrs={}))
    return True


def _only_product(walk: Walk, name: str) -> Node | None:
    """The product with constant weights that alone reads a value, as its first factor."""
    readers = walk.readers[name]
    if len(readers) != 1 or name in walk.graph.outputs or readers[0].op_type not in ("Gemm", "MatMul"):
        return None
    [product] = readers
    weights = walk.constant(product.inputs[1])
    is_first = product.inputs[0] == name and name not in product.inputs[1:]
    is_plain = weights is not None and weights.ndim == 2 and not product.attr("transA", 0)
    return product if is_first and is_plain else None


_UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Cast Ceil Celu Clip Cos Cosh Dropout Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh
    Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu
"""
_BROADCAST = """
    Add And Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor
"""
_REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
KEEP_RANK = frozenset((*_UNARY.split(), *_BROADCAST.split(), "Pad"))
"""Operators whose result has the rank of their one source that is no constant."""

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_UNARY.split(), _elementwise),
    **dict.fromkeys(_BROADCAST.split(), _broadcasting),
    **dict.fromkeys(_REDUCTIONS.split(), _reduce),
    **dict.fromkeys((*_SOFTMAX, "Split"), _along_one_axis),
    **dict.fromkeys(("ArgMax", "ArgMin"), _arg_reduce),
    **dict.fromkeys(("Reshape", "Flatten"), _flatten),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Concat": _concat,
    "Pad": _pad,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
