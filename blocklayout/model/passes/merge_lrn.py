"""Local response normalisation, written as an average over neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.kernels import Padding
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.expressions import Expression
from blocklayout.model.passes.merging import Merging

_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")


class MergeLrn(Struct, frozen=True):
    """Makes one LRN of ``x / (k + alpha * average(x * x)) ** beta``.

    The average is an AveragePool over an odd number of channels, which a Reshape or Unsqueeze made a spatial
    dimension, with zeros padded. An even number is left as it is: oneDNN and ONNX disagree there.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type == "Pow" and graph.values[node.outputs[0]].dtype in FLOATS:
                _merge(merging, node)
        return merging.result()


def _merge(merging: Merging, power: Node) -> None:
    exponent = merging.expressions.number(power.inputs[1]) or 0.0
    inverse = f"1/{power.outputs[0]}" if exponent > 0 else power.outputs[0]
    for average in _averages(merging, power.inputs[0]):
        total = merging.expressions.of(power.inputs[0], (average.name,))
        terms = total.in_letters({average.name: "p"})
        if terms.keys() != {"", "p"}:
            continue
        for x, square in _squares(merging, average.source):
            alpha = terms["p"] * square.terms[x, x]
            attrs = {"size": average.size, "alpha": alpha, "beta": abs(exponent), "bias": terms[""]}
            for root, product in _products(merging, (x, inverse), power.outputs[0]):
                nodes = {power.name}.union(average.nodes, total.nodes, square.nodes, product.nodes)
                merging.merge(root, nodes, "LRN", (x,), attrs)


def _squares(merging: Merging, name: str) -> Iterator[tuple[str, Expression]]:
    """The values of which ``name`` is a multiple of the square, and how it is computed from them."""
    for x in merging.expressions.before(name):
        square = merging.expressions.of(name, (x,))
        if square.terms.keys() == {(x, x)}:
            yield x, square


def _products(merging: Merging, factors: tuple[str, str], power: str) -> Iterator[tuple[str, Expression]]:
    """What is computed from ``power`` as the product of both factors, and how."""
    for root in merging.expressions.after(power):
        product = merging.expressions.of(root, (factors[0], power))
        if product.terms == {tuple(sorted(factors)): 1.0}:
            yield root, product


class _Average(Struct, frozen=True):
    """A mean over channels.

    Attributes:
        name: The value.
        source: What it is the mean of; both of equal extents.
        size: Channels, an odd number.
        nodes: Names of all nodes between.
    """

    name: str
    source: str
    size: int
    nodes: tuple[str, ...]


def _averages(merging: Merging, total: str) -> Iterator[_Average]:
    """The averages over channels that ``total`` is computed from."""
    graph = merging.graph
    for name in merging.expressions.before(total):
        behind, pooled = _through_views(merging, name)
        pool = merging.producer(pooled, "AveragePool")
        if pool is None:
            continue
        pad = merging.producer(pool.inputs[0], "Pad")
        window = pool.inputs[0] if pad is None else pad.inputs[0]
        before, source = _through_views(merging, window)
        size = _n_channels(graph, pool, pad, window)
        if size and graph.shape(source) == graph.shape(name) and _are_channels(graph, source, window):
            nodes = (*behind, pool.name, *(() if pad is None else (pad.name,)), *before)
            yield _Average(name, source, size, nodes)


def _through_views(merging: Merging, name: str) -> tuple[list[str], str]:
    """The names of the views that give ``name``, and what the first of them reads."""
    nodes: list[str] = []
    view = merging.producer(name, *_VIEWS)
    while view is not None:
        nodes.append(view.name)
        name = view.inputs[0]
        view = merging.producer(name, *_VIEWS)
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
