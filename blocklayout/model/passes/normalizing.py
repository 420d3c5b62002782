"""Scales and shifts behind a normalisation."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from blocklayout.model.graph import Graph
from blocklayout.model.passes.expressions import Expression, Monomial


def scale_and_shift(
    graph: Graph, result: Expression, normal: Collection[Monomial], shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray] | None:
    """What a polynomial does to a normalised value: it multiplies by constants along ``axes``, and adds some.

    Args:
        graph: Holds the constants.
        result: The polynomial.
        normal: The terms that make the value up; ``x`` and minus ``m``, both times ``1/s``. The sign of all
            but the first is negative.
        shape: Extents of the value.
        axes: Dimensions along which the constants may vary.

    Returns:
        Scale and shift, in float64; ``None`` if the polynomial is anything else.
    """
    scales: list[np.ndarray] = []
    shift = np.zeros(tuple(shape[axis] for axis in axes))
    rest = dict(result.terms)
    for index, part in enumerate(normal):
        found = [monomial for monomial in rest if _contains(monomial, part)]
        if len(found) != 1:
            return None
        factor = rest.pop(found[0]) * (-1 if index else 1)
        array = _constant(graph, _without(found[0], part), shape, axes)
        if array is None:
            return None
        scales.append(factor * array)
    for monomial, factor in rest.items():
        array = _constant(graph, monomial, shape, axes)
        if array is None:
            return None
        shift = shift + factor * array
    is_one = all(np.allclose(each, scales[0], rtol=1e-6, atol=0) for each in scales[1:])
    return (scales[0], shift) if is_one else None


def _contains(monomial: Monomial, part: Monomial) -> bool:
    return all(monomial.count(atom) == part.count(atom) for atom in part)


def _without(monomial: Monomial, part: Monomial) -> Monomial:
    return tuple(atom for atom in monomial if atom not in part)


def _constant(graph: Graph, monomial: Monomial, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray | None:
    """The product of at most one constant."""
    if not monomial:
        return np.ones(tuple(shape[axis] for axis in axes))
    if len(monomial) > 1 or monomial[0] not in graph.values:
        return None
    return _spread(graph, monomial[0], shape, axes)


def _spread(graph: Graph, name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray | None:
    """A constant operand of a tensor of ``shape`` as numbers along ``axes``; ``None`` if it varies along others."""
    array = graph.constant(name)
    if array is None or array.ndim > len(shape):
        return None
    extents = (1,) * (len(shape) - array.ndim) + array.shape
    if any(extent not in ((1, shape[axis]) if axis in axes else (1,)) for axis, extent in enumerate(extents)):
        return None
    kept = tuple(extents[axis] for axis in axes)
    return np.broadcast_to(array.astype(np.float64).reshape(kept), tuple(shape[axis] for axis in axes))
