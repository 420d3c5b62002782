"""Arithmetic as polynomials: one sum of products for all ways to write it down."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import product

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Graph, Node

Monomial = tuple[str, ...]
"""Names of the values that are multiplied, sorted; ``1/s`` stands for the reciprocal of ``s``."""

Terms = Mapping[Monomial, float]
"""The factor of each product."""

_ARITHMETIC = frozenset(("Add", "Div", "Mul", "Neg", "Pow", "Reciprocal", "Sub", "Sum"))
_MAX_TERMS = 12
_MAX_DEPTH = 10
_MAX_VALUES = 16


class Expression(Struct, frozen=True):
    """A polynomial in values of a graph: the factor of each product, and names of the nodes that compute it."""

    terms: Mapping[Monomial, float]
    nodes: frozenset[str] = frozenset()

    def renamed(self, letters: Mapping[str, str]) -> dict[Monomial, float]:
        """The terms with a letter for each value.

        Example:
            >>> Expression({("a",): 0.5, ("a", "b"): 0.25}).renamed({"a": "x", "b": "g"})
            {('x',): 0.5, ('g', 'x'): 0.25}
        """
        return {tuple(sorted(letters[atom] for atom in monomial)): factor for monomial, factor in self.terms.items()}


class Expressions:
    """Reads a graph's arithmetic."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.readers = graph.readers()

    def producer(self, name: str, *op_types: str) -> Node | None:
        """The node that writes a value, if it is one of ``op_types``."""
        node = self.producers.get(name)
        return node if node is not None and node.op_type in op_types else None

    def of(self, name: str, atoms: Collection[str]) -> Expression:
        """A value as a polynomial in ``atoms``, which stay as they are, and values that no arithmetic computes."""
        return self._of(name, atoms, _MAX_DEPTH, is_closed=False) or Expression({(name,): 1.0})

    def of_alone(self, name: str, atoms: Collection[str]) -> Expression | None:
        """A value as a polynomial in ``atoms``; ``None`` if there are other values in it."""
        return self._of(name, atoms, _MAX_DEPTH, is_closed=True)

    def before(self, name: str) -> list[str]:
        """A value, and those it is computed from by arithmetic alone, the nearest first."""
        return _walk(name, self._operands)

    def after(self, name: str) -> list[str]:
        """The values computed from a value by arithmetic, the farthest first; the value itself is the last."""
        return _walk(name, self._results)[::-1]

    def number(self, name: str) -> float | None:
        """The one number that a constant is full of."""
        array = self.graph.constant(name)
        if array is None or array.size == 0 or array.dtype == bool:
            return None
        first = array.reshape(-1)[0]
        return float(first) if array.size == 1 or bool((array == first).all()) else None

    def _operands(self, name: str) -> Iterator[str]:
        node = self.producers.get(name)
        if node is not None and node.op_type in _ARITHMETIC:
            yield from (each for each in node.inputs if self.graph.constant(each) is None)

    def _results(self, name: str) -> Iterator[str]:
        yield from (node.outputs[0] for node in self.readers[name] if node.op_type in _ARITHMETIC)

    def _of(self, name: str, atoms: Collection[str], depth: int, *, is_closed: bool) -> Expression | None:
        number = self.number(name)
        if number is not None:
            return Expression({(): number})
        itself = Expression({(name,): 1.0}) if name in atoms or not is_closed else None
        node = self.producers.get(name)
        if node is None or name in atoms or depth == 0 or node.op_type not in _ARITHMETIC:
            return itself
        operands: list[Expression] = []
        for each in node.inputs:
            operand = self._of(each, atoms, depth - 1, is_closed=is_closed)
            if operand is None:
                return None
            operands.append(operand)
        terms = combined(node.op_type, [operand.terms for operand in operands])
        if terms is None or len(terms) > _MAX_TERMS:
            return itself
        return Expression(terms, frozenset((node.name,)).union(*(operand.nodes for operand in operands)))


def combined(op_type: str, operands: list[Terms]) -> Terms | None:
    """The polynomial that an operator of arithmetic makes of others; ``None`` if it is none, or a large one.

    Example:
        >>> combined("Mul", [{("x",): 2.0}, {("x",): 1.0, (): 3.0}])
        {('x', 'x'): 2.0, ('x',): 6.0}
    """
    if op_type in ("Add", "Sum"):
        return _sum(operands)
    if op_type == "Sub":
        return _sum([operands[0], _scaled(operands[1], -1.0)])
    if op_type == "Neg":
        return _scaled(operands[0], -1.0)
    if op_type == "Mul":
        return _product(operands)
    if op_type == "Pow":
        return _power(*operands)
    inverse = _inverse(operands[-1])
    return inverse and _product([*operands[:-1], inverse])


def _walk(name: str, neighbours: Callable[[str], Iterable[str]]) -> list[str]:
    """Breadth first, up to a bound."""
    found = [name]
    for each in found:
        found += [other for other in dict.fromkeys(neighbours(each)) if other not in found]
        if len(found) >= _MAX_VALUES:
            break
    return found


def _sum(operands: list[Terms]) -> Terms:
    total: dict[Monomial, float] = {}
    for terms in operands:
        for monomial, factor in terms.items():
            total[monomial] = total.get(monomial, 0.0) + factor
    return {monomial: factor for monomial, factor in total.items() if factor}


def _scaled(terms: Terms, scale: float) -> Terms:
    return {monomial: factor * scale for monomial, factor in terms.items()}


def _product(operands: list[Terms]) -> Terms:
    """One term for each choice of one term of every operand; those of the same values are added."""
    return _sum(
        [
            {tuple(sorted(sum((monomial for monomial, _ in chosen), ()))): math.prod(factor for _, factor in chosen)}
            for chosen in product(*(terms.items() for terms in operands))
        ]
    )


def _power(base: Terms, exponent: Terms) -> Terms | None:
    number = exponent.get((), 0.0) if exponent.keys() == {()} else 0.0
    if number in (1.0, 2.0, 3.0) and len(base) <= 3:
        return _product([base] * int(number))
    return _inverse(base) if number == -1 else None


def _inverse(terms: Terms) -> Terms | None:
    """One divided by a number or by one value."""
    if len(terms) != 1:
        return None
    ((monomial, factor),) = terms.items()
    if not factor or len(monomial) > 1 or any(atom.startswith("1/") for atom in monomial):
        return None
    return {tuple(f"1/{atom}" for atom in monomial): 1 / factor}


def scale_and_shift(
    graph: Graph, result: Expression, normal: Collection[Monomial], shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray] | None:
    """A normalised value times constants along ``axes``, plus others, as a polynomial has it: in float64.

    ``normal`` are the terms that make the value of extents ``shape`` up; ``x`` and minus ``m``, both times ``1/s``. The
    sign of all but the first is negative. ``None`` if the polynomial is anything else.
    """
    scales: list[np.ndarray] = []
    shift = np.zeros(tuple(shape[axis] for axis in axes))
    rest = dict(result.terms)
    for index, part in enumerate(normal):
        found = [each for each in rest if all(each.count(atom) == part.count(atom) for atom in part)]
        if len(found) != 1:
            return None
        factor = rest.pop(found[0]) * (-1 if index else 1)
        array = _constant(graph, tuple(atom for atom in found[0] if atom not in part), shape, axes)
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


def _constant(graph: Graph, monomial: Monomial, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray | None:
    """The product of at most one constant, as numbers along ``axes``; ``None`` if it varies along others."""
    along = tuple(shape[axis] for axis in axes)
    if not monomial:
        return np.ones(along)
    array = graph.constant(monomial[0]) if len(monomial) == 1 and monomial[0] in graph.values else None
    if array is None or array.ndim > len(shape):
        return None
    extents = (1,) * (len(shape) - array.ndim) + array.shape
    if any(extent not in ((1, shape[axis]) if axis in axes else (1,)) for axis, extent in enumerate(extents)):
        return None
    kept = tuple(extents[axis] for axis in axes)
    return np.broadcast_to(array.astype(np.float64).reshape(kept), along)
