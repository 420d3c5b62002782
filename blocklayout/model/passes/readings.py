"""Functions that several nodes or attributes spell, as patterns call them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from blocklayout.ir import Padding
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.expressions import Expressions
from blocklayout.model.passes.merge_clips import clip_bounds

_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


class Reading(Struct, frozen=True):
    """A value as ``scale * f(slope * argument + offset, ...)``, or one divided by that.

    Attributes:
        arguments: Names of values; numbers and tuples of numbers that the nodes hold.
        nodes: Names of the nodes that compute it from the arguments.
        slope: Of the arguments.
        offset: Of the arguments.
        scale: Of the result.
        is_inverse: The value is one divided by the function.
    """

    arguments: tuple[Any, ...]
    nodes: frozenset[str]
    slope: float = 1.0
    offset: float = 0.0
    scale: float = 1.0
    is_inverse: bool = False

    @staticmethod
    def of(node: Node, *arguments: Any) -> Reading:
        """A node that computes the function as it is."""
        return Reading(arguments, frozenset((node.name,)))

    def letters(self, value: str) -> dict[str, str]:
        """The letters for ``value`` and its inverse in a polynomial."""
        return {value: "1/g"} if self.is_inverse else {value: "g", f"1/{value}": "1/g"}


class Reader(Struct, frozen=True):
    """A function by name.

    Attributes:
        op_types: Types of the nodes whose result it may be.
        read: The ways to see a node's result as the function.
    """

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


def _power(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``p ** b`` with a positive b, or its inverse."""
    exponent = 0.5 if node.op_type == "Sqrt" else expressions.number(node.inputs[1])
    if exponent:
        yield Reading((node.inputs[0], abs(exponent)), frozenset((node.name,)), is_inverse=exponent < 0)


def _mean(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``mean(p, axes)``, of p's rank."""
    axes = node.facts.reduced_axes(expressions.graph.info(node))
    if axes and len(expressions.graph.shape(node.outputs[0])) == len(expressions.graph.shape(node.inputs[0])):
        yield Reading.of(node, node.inputs[0], axes)


def _across(expressions: Expressions, node: Node) -> Iterator[Reading]:
    """``across(p, size)``: the mean of p over an odd number of neighbouring channels, with zeros beyond them.

    It is an AveragePool, behind a Reshape or Unsqueeze that makes a spatial dimension of the channels.
    """
    graph = expressions.graph
    behind, pooled = _through_views(expressions, node.outputs[0])
    pool = expressions.producer(pooled, "AveragePool")
    if pool is None:
        return
    pad = expressions.producer(pool.inputs[0], "Pad")
    window = pool.inputs[0] if pad is None else pad.inputs[0]
    before, source = _through_views(expressions, window)
    size = _n_channels(graph, pool, pad, window)
    if size and graph.shape(source) == graph.shape(node.outputs[0]) and _are_channels(graph, source, window):
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


def _are_channels(graph: Graph, source: str, window: str) -> bool:
    """Whether dimension 2 of ``window`` holds the channels of ``source``, in the same order of elements."""
    shape, seen = graph.shape(source), graph.shape(window)
    return len(shape) >= 2 and seen[2] == shape[1] and math.prod(seen[:2]) == shape[0]


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
    "power": Reader(("Pow", "Sqrt"), _power),
    "unit": Reader(("Clip", "HardSigmoid"), _unit),
}
"""The functions that patterns call by names in small letters."""
