"""Einsum as products of matrices: the equation, and the steps that compute it."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.errors import ModelError

if TYPE_CHECKING:
    from blocklayout.model.graph import Node
    from blocklayout.model.passes.decompose import Steps

_FIRST_OPSET_OF_AXES_INPUT = 13


class Term(Struct, frozen=True):
    """An operand: a value, and a letter for each of its dimensions."""

    name: str
    letters: str


def parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand's dimensions, and of the result's; an ellipsis becomes letters that nobody uses.

    Example:
        >>> parsed("...ij, jk", (3, 2))
        (['Aij', 'jk'], 'Aik')
    """
    given, arrow, result = equation.replace(" ", "").partition("->")
    operands = given.split(",")
    unused = [letter for letter in string.ascii_uppercase + string.ascii_lowercase if letter not in equation]
    n_hidden = [
        rank - len(each.replace("...", "")) if "..." in each else 0 for each, rank in zip(operands, ranks, strict=True)
    ]
    hidden = "".join(unused[: max(n_hidden)])
    letters = [each.replace("...", hidden[len(hidden) - n :]) for each, n in zip(operands, n_hidden, strict=True)]
    if arrow:
        return letters, result.replace("...", hidden)
    named = "".join(letters)
    return letters, hidden + "".join(each for each in sorted(set(named) - set(hidden)) if named.count(each) == 1)


def einsum(steps: Steps, node: Node) -> None:
    """Sums along what only one operand has, and products of two at a time, from left to right.

    None where an operand has a letter twice, or an extent of 1 meets another one in a sum: ``onnx.reference`` does it.

    Raises:
        ModelError: Extents contradict the equation, or its result has letters that no operand has.
    """
    shapes = [steps.shape(name) for name in node.inputs]
    letters, result = parsed(str(node.attr("equation", "")), [len(shape) for shape in shapes])
    extents: dict[str, set[int]] = {}
    for each, shape in zip(letters, shapes, strict=True):
        for letter, extent in zip(each, shape, strict=True):
            extents.setdefault(letter, set()).add(extent)
    _check_letters(node, extents, result)
    summed = [letter for letter in extents if letter not in result]
    if any(len(set(each)) < len(each) for each in letters) or any(len(extents[letter]) > 1 for letter in summed):
        return
    terms = [Term(name, each) for name, each in zip(node.inputs, letters, strict=True)]
    whole, *others = terms
    for index, other in enumerate(others, start=2):
        wanted = set(result).union(*(each.letters for each in terms[index:]))
        whole = _product(steps, _summed(steps, whole, wanted | {*other.letters}), other, wanted)
    whole = _summed(steps, whole, set(result))
    if whole.letters != result:
        steps.transpose(whole.name, tuple(whole.letters.index(each) for each in result))
    elif whole.name == node.inputs[0]:
        steps.add("Identity", (whole.name,), steps.shape(whole.name))


def _check_letters(node: Node, extents: Mapping[str, set[int]], result: str) -> None:
    """Refuse what shape inference passes over.

    Raises:
        ModelError: The message names the letter.
    """
    where = f"node {node.name!r}: Einsum {node.attr('equation', '')!r}"
    for letter, found in extents.items():
        if len(found - {1}) > 1:
            raise ModelError(f"{where}: {letter!r} has the extents {sorted(found)}; they must be equal, or 1")
    for letter in result:
        if letter not in extents or result.count(letter) > 1:
            raise ModelError(f"{where}: each letter of the result must be one of an operand, once; {letter!r} is not")


def _summed(steps: Steps, term: Term, wanted: set[str]) -> Term:
    """The sum along the dimensions that nobody wants any more."""
    axes = tuple(axis for axis, letter in enumerate(term.letters) if letter not in wanted)
    if not axes:
        return term
    shape = steps.shape(term.name)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    inputs: tuple[str, ...] = (term.name,)
    attrs: dict[str, Any] = {"keepdims": 0}
    if steps.graph.opset < _FIRST_OPSET_OF_AXES_INPUT:
        attrs["axes"] = axes
    else:
        inputs = (term.name, steps.constant(np.array(axes, np.int64), "axes"))
    name = steps.add("ReduceSum", inputs, tuple(shape[axis] for axis in kept), attrs)
    return Term(name, "".join(term.letters[axis] for axis in kept))


def _product(steps: Steps, a: Term, b: Term, wanted: set[str]) -> Term:
    """The product of two operands, summed along what nobody else wants of it."""
    b = _summed(steps, b, wanted | {*a.letters})
    shared = [letter for letter in a.letters if letter in b.letters]
    batch = "".join(letter for letter in shared if letter in wanted)
    inner = "".join(letter for letter in shared if letter not in wanted)
    rows = "".join(letter for letter in a.letters if letter not in shared)
    columns = "".join(letter for letter in b.letters if letter not in shared)
    if not inner:
        names = [_spread(steps, each, batch + rows + columns) for each in (a, b)]
        shape = np.broadcast_shapes(*(steps.shape(name) for name in names))
        return Term(steps.add("Mul", names, shape), batch + rows + columns)
    left = _matrices(steps, a, batch, rows, inner)
    right = _matrices(steps, b, batch, inner, columns)
    of_batch = np.broadcast_shapes(steps.shape(left)[:-2], steps.shape(right)[:-2])
    product = steps.add("MatMul", (left, right), (*of_batch, steps.shape(left)[-2], steps.shape(right)[-1]))
    extents = {**_extents(steps, a), **_extents(steps, b)}
    shape = (*of_batch, *(extents[letter] for letter in rows + columns))
    return Term(steps.reshape(product, shape), batch + rows + columns)


def _extents(steps: Steps, term: Term) -> dict[str, int]:
    return dict(zip(term.letters, steps.shape(term.name), strict=True))


def _in_order(steps: Steps, term: Term, letters: str) -> str:
    perm = tuple(term.letters.index(letter) for letter in letters)
    return term.name if letters == term.letters else steps.transpose(term.name, perm)


def _matrices(steps: Steps, term: Term, batch: str, rows: str, columns: str) -> str:
    """An operand as a batch of matrices."""
    extents = _extents(steps, term)
    sizes = (prod(extents[letter] for letter in side) for side in (rows, columns))
    return steps.reshape(_in_order(steps, term, batch + rows + columns), (*(extents[each] for each in batch), *sizes))


def _spread(steps: Steps, term: Term, letters: str) -> str:
    """An operand with extents of 1 where it has none of these dimensions."""
    extents = _extents(steps, term)
    own = "".join(letter for letter in letters if letter in term.letters)
    return steps.reshape(_in_order(steps, term, own), tuple(extents.get(letter, 1) for letter in letters))
