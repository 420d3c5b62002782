"""Expressions to look for in a graph, in a small notation, and how they are found.

A pattern is written as Python writes it: ``x * Sigmoid(alpha * x)``. ``x`` is the value that goes in, a capitalised
call an ONNX operator, one in small letters one of :data:`READINGS`, any other name a number to find out.
``a if x < b else c`` is a comparison and a Where, ``p ** b`` a Sqrt or Pow. Everything around calls is compared as a
polynomial, so that it does not matter how a model spells it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import permutations
from typing import Any

from msgspec import Struct

from blocklayout.ir import Padding
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.expressions import Expressions, Monomial, Terms, combined
from blocklayout.model.passes.merge_clips import clip_bounds

_OPERATORS = {ast.Add: "Add", ast.Sub: "Sub", ast.Mult: "Mul", ast.Div: "Div", ast.Pow: "Pow"}
_COMMUTATIVE = frozenset(("Max",))
_TOLERANCES = {"f16": 2e-3, "bf16": 1e-2}
"""Relative ones: constants of an exported model are rounded to its data type."""
_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


class Call(Struct, frozen=True):
    """A function in a pattern: an op type, or one of :data:`READINGS`, and its arguments."""

    name: str
    args: tuple[Pattern, ...]

    @property
    def op_types(self) -> tuple[str, ...]:
        """Types of the nodes that may compute it."""
        return READINGS[self.name].op_types if self.name in READINGS else (self.name,)

    def readings(self, expressions: Expressions, node: Node) -> Iterator[Reading]:
        """The ways to see a node as this call."""
        if node.op_type not in self.op_types:
            return
        if self.name in READINGS:
            yield from READINGS[self.name].read(expressions, node)
        elif len(node.inputs) == len(self.args):
            orders = permutations(node.inputs) if self.name in _COMMUTATIVE else (node.inputs,)
            yield from (Reading(inputs, frozenset((node.name,))) for inputs in orders)


class Pattern(Struct, frozen=True):
    """A polynomial in ``x`` and the result ``g`` of one call or none; factors are numbers, or names of unknown ones."""

    terms: tuple[tuple[Monomial, float | str], ...]
    call: Call | None


class Match(Struct, frozen=True, eq=False):
    """A pattern as it was found.

    ``x`` is the value that goes in, empty until it is known; numbers are those found out, calls the values that calls
    computed, each before those in its arguments, and nodes the names of those behind ``x``.
    """

    x: str = ""
    numbers: Mapping[str, Any] = {}
    calls: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()


@cache
def parsed(text: str) -> Pattern:
    """A pattern from its notation.

    Example:
        >>> parsed("x * Sigmoid(alpha * x)").terms
        ((('g', 'x'), 1.0),)
        >>> parsed("x * Sigmoid(alpha * x)").call.args[0].terms
        ((('x',), 'alpha'),)
    """
    return _pattern(ast.parse(text, mode="eval").body)


def roots(expressions: Expressions, node: Node, pattern: Pattern) -> Iterator[tuple[str, Match]]:
    """The values that are ``pattern``, by a call that ``node`` computes; those of most nodes first."""
    value = node.outputs[0]
    for reading, inner in calls(expressions, value, pattern.call, Match()):
        for root in expressions.after(value):
            if expressions.graph.shape(root) == expressions.graph.shape(inner.x):
                for match in _compared(expressions, root, pattern, inner, reading.letters(value), scale=reading.scale):
                    yield root, match


def _matches(expressions: Expressions, name: str, pattern: Pattern, match: Match, of: Reading) -> Iterator[Match]:
    """The ways to see a value, an argument of the reading ``of``, as ``pattern``."""
    slope, offset = of.slope, of.offset
    if pattern.call is not None:
        for value in expressions.before(name):
            for reading, inner in calls(expressions, value, pattern.call, match):
                letters, scale = reading.letters(value), reading.scale
                yield from _compared(expressions, name, pattern, inner, letters, slope, offset, scale)
        return
    is_new = not match.x and any("x" in monomial for monomial, _ in pattern.terms)
    for x in reversed(expressions.before(name)) if is_new else (match.x,):
        seen = Match(x, match.numbers, match.calls, match.nodes)
        yield from _compared(expressions, name, pattern, seen, {}, slope, offset)


def calls(expressions: Expressions, value: str, call: Call | None, match: Match) -> Iterator[tuple[Reading, Match]]:
    """The ways to see a value as a call with arguments that match."""
    node = expressions.producers.get(value)
    if node is None or call is None:
        return
    for reading in call.readings(expressions, node):
        if "" in reading.arguments:
            continue  # left out
        states = [Match(match.x, match.numbers, (*match.calls, value), match.nodes | reading.nodes)]
        for argument, pattern in zip(reading.arguments, call.args, strict=True):
            if isinstance(argument, str):
                states = [each for state in states for each in _matches(expressions, argument, pattern, state, reading)]
            else:
                states = [each for state in states for each in _held(argument, pattern, state)]
        yield from ((reading, state) for state in states if state.x)


def _held(argument: Any, pattern: Pattern, match: Match) -> Iterator[Match]:
    """The match, if the number that a node holds, or several, may be the pattern's."""
    ((_, wanted),) = pattern.terms
    numbers = {**match.numbers}
    if argument == (numbers.setdefault(wanted, argument) if isinstance(wanted, str) else wanted):
        yield Match(match.x, numbers, match.calls, match.nodes)


def _compared(
    expressions: Expressions,
    name: str,
    pattern: Pattern,
    match: Match,
    letters: Mapping[str, str],
    slope: float = 1.0,
    offset: float = 0.0,
    scale: float = 1.0,
) -> Iterator[Match]:
    """The match, if ``slope * name + offset`` is the pattern's polynomial in ``x`` and ``scale * g``."""
    expression = expressions.of_alone(name, (match.x, *letters))
    if expression is None:
        return
    found = {
        monomial: factor * slope * scale ** (monomial.count("g") - monomial.count("1/g"))
        for monomial, factor in expression.renamed({**letters, match.x: "x"}).items()
    }
    if offset:
        found[()] = found.get((), 0.0) + offset
    numbers = _numbers(found, pattern, match.numbers, _TOLERANCES.get(expressions.graph.values[name].dtype, 1e-5))
    if numbers is not None:
        yield Match(match.x, numbers, match.calls, match.nodes | expression.nodes)


def _numbers(found: Terms, pattern: Pattern, known: Mapping[str, Any], rel_tol: float) -> dict[str, Any] | None:
    """The numbers known and found out; ``None`` if the terms are not those of the pattern."""
    if found.keys() != {monomial for monomial, _ in pattern.terms}:
        return None
    numbers = dict(known)
    for monomial, wanted in pattern.terms:
        number = numbers.setdefault(wanted, found[monomial]) if isinstance(wanted, str) else wanted
        if not math.isclose(found[monomial], number, rel_tol=rel_tol):
            return None
    return numbers


def _pattern(node: ast.expr) -> Pattern:
    calls: list[Call] = []
    terms = _terms(node, calls)
    if len(calls) > 1:
        raise ValueError(f"a pattern has one call beside x: {ast.unparse(node)}")
    return Pattern(tuple(map(_term, terms, terms.values())), calls[0] if calls else None)


def _term(monomial: Monomial, factor: float) -> tuple[Monomial, float | str]:
    letters = tuple(atom for atom in monomial if atom in ("x", "g", "1/g"))
    names = [atom for atom in monomial if atom not in letters]
    return letters, names[0] if names else factor


def _terms(node: ast.expr, calls: list[Call]) -> Terms:
    match node:
        case ast.Constant(value=int() | float() as number):
            return {(): float(number)}
        case ast.Name(id="pi"):
            return {(): math.pi}
        case ast.Name(id=name):
            return {(name,): 1.0}
        case ast.Call(func=ast.Name(id=name), args=args):
            return _called(Call(name, tuple(map(_pattern, args))), calls)
        case ast.IfExp(test=ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]), body=below, orelse=above):
            return _called(Call("choice", tuple(map(_pattern, (left, right, below, above)))), calls)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(left, right, calls)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            terms = combined(_OPERATORS[type(op)], [_terms(left, calls), _terms(right, calls)])
            if terms is not None:
                return terms
    raise ValueError(f"no pattern: {ast.unparse(node)}")


def _power(base: ast.expr, exponent: ast.expr, calls: list[Call]) -> Terms:
    """A number, a product, or where it is neither the call of a reading."""
    before: list[Call] = []
    operands = [_terms(base, before), _terms(exponent, before)]
    if all(terms.keys() == {()} for terms in operands):
        return {(): operands[0][()] ** operands[1][()]}
    terms = combined("Pow", operands)
    if terms is None:
        return _called(Call("power", (_pattern(base), _pattern(exponent))), calls)
    calls += before
    return terms


def _called(call: Call, calls: list[Call]) -> Terms:
    calls.append(call)
    return {("g",): 1.0}


# --- functions that several nodes or attributes spell


class Reading(Struct, frozen=True):
    """A value as ``scale * f(slope * argument + offset, ...)``, or one divided by that (``is_inverse``).

    Arguments are names of values, and numbers and tuples of numbers that ``nodes``, which compute the value, hold.
    """

    arguments: tuple[Any, ...]
    nodes: frozenset[str]
    slope: float = 1.0
    offset: float = 0.0
    scale: float = 1.0
    is_inverse: bool = False

    def letters(self, value: str) -> dict[str, str]:
        """The letters for ``value`` and its inverse in a polynomial."""
        return {value: "1/g"} if self.is_inverse else {value: "g", f"1/{value}": "1/g"}


class Reader(Struct, frozen=True):
    """A function by name: types of the nodes whose result it may be, and the ways to see a node's result as it."""

    op_types: tuple[str, ...]
    read: Callable[[Expressions, Node], Iterator[Reading]]


def _unit(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``unit(p)``: p limited to 0 and 1."""
    nodes = frozenset((node.name,))
    if node.op_type == "HardSigmoid":
        yield Reading(node.inputs, nodes, slope=node.attr("alpha", 0.2), offset=node.attr("beta", 0.5))
        return
    bounds = clip_bounds(expressions.graph, node)
    if bounds is not None and bounds[0] == 0 and 0 < bounds[1] < math.inf:
        yield Reading(node.inputs[:1], nodes, slope=1 / bounds[1], scale=bounds[1])


def _choice(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``below if p < q else above``: which of the two is taken where p and q are equal is left open."""
    comparison = expressions.producer(node.inputs[0], "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    if comparison is None:
        return
    below, above = node.inputs[1:] if comparison.op_type.startswith("Less") else node.inputs[:0:-1]
    yield Reading((*comparison.inputs, below, above), frozenset((node.name, comparison.name)))


def _root_or_power(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``p ** b`` with a positive b, or its inverse."""
    exponent = 0.5 if node.op_type == "Sqrt" else expressions.number(node.inputs[1])
    if exponent:
        yield Reading((node.inputs[0], abs(exponent)), frozenset((node.name,)), is_inverse=exponent < 0)


def _mean(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``mean(p, axes)``, of p's rank."""
    axes = node.facts.reduced_axes(expressions.graph.info(node))
    if axes and len(expressions.graph.shape(node.outputs[0])) == len(expressions.graph.shape(node.inputs[0])):
        yield Reading((node.inputs[0], axes), frozenset((node.name,)))


def _across(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``across(p, size)``: an AveragePool over an odd number of channels, zeros beyond, that a view made spatial."""
    graph = expressions.graph
    behind, pooled = _through_views(expressions, node.outputs[0])
    pool = expressions.producer(pooled, "AveragePool")
    if pool is None:
        return
    pad = expressions.producer(pool.inputs[0], "Pad")
    window = pool.inputs[0] if pad is None else pad.inputs[0]
    before, source = _through_views(expressions, window)
    size = _n_channels(graph, pool, pad, window)
    shape, seen = graph.shape(source), graph.shape(window)
    if not size or shape != graph.shape(node.outputs[0]) or len(shape) < 2:
        return
    if seen[2] == shape[1] and math.prod(seen[:2]) == shape[0]:  # its dimension 2 holds the channels, in their order
        nodes = (*behind, pool.name, *(() if pad is None else (pad.name,)), *before)
        yield Reading((source, size), frozenset(nodes))


def _through_views(expressions: Expressions, name: str) -> tuple[list[str], str]:
    """The names of the views that make ``name``, and the value that the first of them reads."""
    nodes: list[str] = []
    view = expressions.producer(name, *_VIEWS)
    while view is not None:
        nodes.append(view.name)
        name = view.inputs[0]
        view = expressions.producer(name, *_VIEWS)
    return nodes, name


def _n_channels(graph: Graph, pool: Node, pad: Node | None, window: str) -> int:
    """The odd number of channels that are averaged at each place; 0 if it is anything else."""
    ndims = len(graph.shape(window))
    kernel = tuple(pool.attr("kernel_shape", ()))
    if not kernel or kernel[0] % 2 == 0 or any(extent != 1 for extent in (*kernel[1:], *pool.attr("strides", ()))):
        return 0
    own = tuple(pool.attr("pads", (0,) * (2 * len(kernel))))
    if pool.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or any(
        each != 1 for each in pool.attr("dilations", ())
    ):
        return 0
    if any(own) and not pool.attr("count_include_pad", 0):
        return 0
    padding = Padding((0,) * ndims, (0,) * ndims, 0.0) if pad is None else pad.facts.padding(graph.info(pad))
    if padding is None or padding.value != 0:
        return 0
    begin = [sum(ends) for ends in zip(padding.begin, (0, 0, *own[: len(kernel)]), strict=True)]
    end = [sum(ends) for ends in zip(padding.end, (0, 0, *own[len(kernel) :]), strict=True)]
    wanted = [0, 0, kernel[0] // 2, *(0,) * (ndims - 3)]
    return int(kernel[0]) if begin == wanted == end else 0


READINGS = {
    "across": Reader(("AveragePool", *_VIEWS), _across),
    "choice": Reader(("Where",), _choice),
    "mean": Reader(("ReduceMean",), _mean),
    "power": Reader(("Pow", "Sqrt"), _root_or_power),
    "unit": Reader(("Clip", "HardSigmoid"), _unit),
}
"""The functions that patterns call by names in small letters."""
