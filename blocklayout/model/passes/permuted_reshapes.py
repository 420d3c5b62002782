"""Reshape and Flatten on permuted sources."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Node
from blocklayout.model.passes.permuting import Perm, Permuted, Walk, identity, inverse


def reshape(walk: Walk, node: Node) -> bool:
    """Weights are turned for a flat image; else each dimension is split, and neighbours are merged, where they are."""
    return _flatten(walk, node) or _regroup(walk, node)


class Group(Struct, frozen=True):
    """Dimensions before and after a Reshape that hold the same elements."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def groups_of(before: tuple[int, ...], after: tuple[int, ...]) -> list[Group]:
    """The smallest groups of dimensions that a Reshape keeps apart, without extents of 1.

    Args:
        before: Extents without a 0.
        after: As many elements.

    Example:
        >>> groups_of((2, 4, 5, 6), (2, 20, 1, 3, 2))
        [Group(before=(0,), after=(0,)), Group(before=(1, 2), after=(1,)), Group(before=(3,), after=(3, 4))]
    """
    olds = [dim for dim, extent in enumerate(before) if extent != 1]
    news = [dim for dim, extent in enumerate(after) if extent != 1]
    groups: list[Group] = []
    while olds:
        old, new = [olds.pop(0)], [news.pop(0)]
        n_old, n_new = before[old[0]], after[new[0]]
        while n_old != n_new:
            if n_old < n_new:
                old.append(olds.pop(0))
                n_old *= before[old[-1]]
            else:
                new.append(news.pop(0))
                n_new *= after[new[-1]]
        groups.append(Group(tuple(old), tuple(new)))
    return groups


def _regroup(walk: Walk, node: Node) -> bool:
    """The Reshape of the base: its groups stay where they are, and the result is permuted as a whole.

    Dimensions to be merged that are no neighbours in the base are brought together first, which moves no more
    than to turn the whole. Where the result would not be permuted then, nothing is gained.
    """
    view = walk.views.get(node.inputs[0])
    before, after = walk.shape(node.inputs[0]), walk.shape(node.outputs[0])
    if view is None or 0 in before or not after:
        return False
    groups = groups_of(before, after)
    groups.sort(key=lambda group: min(view.perm[dim] for dim in group.before))
    ones = [dim for dim, extent in enumerate(after) if extent == 1]
    dims = [*ones, *(dim for group in groups for dim in group.after)]
    perm = inverse(tuple(dims))
    order = [view.perm[dim] for group in groups for dim in group.before]
    if order != sorted(order) and perm == identity(len(perm)):
        return False
    source = view.base if order == sorted(order) else _together(walk, node.inputs[0], view, order)
    extents = walk.draft.constant(f"{node.outputs[0]}.shape", np.array([after[dim] for dim in dims], np.int64))
    walk.put(node.replace(op_type="Reshape"), (source, extents), {}, perm)
    return True


def _together(walk: Walk, name: str, view: Permuted, order: list[int]) -> str:
    """The base with its dimensions in ``order``, behind those of extent 1."""
    ones = [dim for dim in range(len(view.perm)) if dim not in order]
    turn: Perm = tuple(view.perm.index(dim) for dim in (*ones, *order))
    return walk.turned(name, turn)


def _flatten(walk: Walk, node: Node) -> bool:
    """A permuted image as rows of a matrix: the weights of the only product that reads them are permuted instead."""
    view, flat = walk.views.get(node.inputs[0]), walk.shape(node.outputs[0])
    product = _only_product(walk, node.outputs[0])
    shape = walk.shape(node.inputs[0])
    if view is None or product is None or view.perm[0] != 0 or len(flat) != 2 or flat[0] != shape[0] or 0 in shape:
        return False
    inner = tuple(dim - 1 for dim in inverse(view.perm)[1:])
    is_transposed = bool(product.attr("transB", 0))
    rows = _Rows(walk.draft.contents(product.inputs[1]), shape[1:], inner, is_transposed)
    turned = walk.make_constant(product.inputs[1], (shape[1:], inner, is_transposed), rows.turned)
    walk.replace_source(product, 1, turned)
    extents = walk.draft.constant(f"{node.outputs[0]}.shape", np.array(flat, np.int64))
    walk.put(node.replace(op_type="Reshape"), (view.base, extents), {}, identity(2))
    return True


class _Rows(Struct, frozen=True, eq=False):
    """Weights of a product with a row for every element of a flat image."""

    weights: np.ndarray
    extents: tuple[int, ...]
    perm: Perm
    is_transposed: bool

    def turned(self) -> np.ndarray:
        """The weights for the image permuted by ``perm``."""
        rows = self.weights.T if self.is_transposed else self.weights
        turned = rows.reshape(*self.extents, -1).transpose(*self.perm, len(self.perm)).reshape(rows.shape)
        return turned.T if self.is_transposed else turned


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
