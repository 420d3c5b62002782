"""Normalisation by mean and variance, written out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.expressions import Expression, is_close
from blocklayout.model.passes.merging import Merging
from blocklayout.model.passes.normalizing import scale_and_shift
from blocklayout.model.passes.reductions import reduced_axes

_SQUARE = {"xx": 1.0, "mx": -2.0, "mm": 1.0}


class MergeLayerNorm(Struct, frozen=True):
    """Makes one LayerNormalization of ``(x - mean) / sqrt(variance + epsilon) * scale + shift``.

    Mean and variance are ReduceMeans over trailing dimensions, of which each number has a scale and a shift
    of its own. Where these belong to channels, and what is reduced is all spatial dimensions, it is an
    InstanceNormalization. ONNX has LayerNormalization from operator set 17; this is for kernels.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for node in graph.nodes:
            if node.op_type in ("Sqrt", "Pow") and graph.values[node.outputs[0]].dtype in FLOATS:
                for deviation in _deviations(merging, node):
                    _merge(merging, deviation)
        return merging.result()


class _Deviation(Struct, frozen=True, eq=False):
    """The square root of a variance, or its inverse.

    Attributes:
        x: What varies.
        m: Its mean.
        s: The root.
        inverse: The atom that is the root's inverse.
        axes: Dimensions that are reduced.
        nodes: Names of all nodes behind ``x``.
    """

    x: str
    m: str
    s: str
    inverse: str
    axes: tuple[int, ...]
    epsilon: float
    nodes: frozenset[str]


def _deviations(merging: Merging, root: Node) -> Iterator[_Deviation]:
    expressions, s = merging.expressions, root.outputs[0]
    exponent = expressions.number(root.inputs[1]) if root.op_type == "Pow" else 0.5
    if exponent not in (0.5, -0.5):
        return
    for v in expressions.before(root.inputs[0]):
        variance = merging.producer(v, "ReduceMean")
        total = expressions.of(root.inputs[0], (v,))
        terms = {"": 0.0, **total.in_letters({v: "v"})}
        if variance is None or terms.keys() != {"", "v"} or not is_close({"v": terms["v"]}, {"v": 1.0}, "f32"):
            continue
        for x, m, square in _squares(merging, variance):
            axes = reduced_axes(merging.graph, variance) or ()
            nodes = square.nodes | total.nodes | {root.name, variance.name, expressions.producers[m].name}
            yield _Deviation(x, m, s, f"1/{s}" if exponent > 0 else s, axes, terms[""], nodes)


def _squares(merging: Merging, variance: Node) -> Iterator[tuple[str, str, Expression]]:
    """Value and mean whose squared difference is averaged."""
    graph, expressions = merging.graph, merging.expressions
    for m in expressions.before(variance.inputs[0]):
        mean = merging.producer(m, "ReduceMean")
        if mean is None or reduced_axes(graph, mean) != reduced_axes(graph, variance):
            continue
        x = mean.inputs[0]
        square = expressions.of(variance.inputs[0], (x, m))
        keeps_rank = len(graph.shape(m)) == len(graph.shape(variance.outputs[0])) == len(graph.shape(x))
        if keeps_rank and is_close(square.in_letters({x: "x", m: "m"}), _SQUARE, "f32"):
            yield x, m, square


def _merge(merging: Merging, deviation: _Deviation) -> None:
    x, m, inverse = deviation.x, deviation.m, deviation.inverse
    shape = merging.graph.shape(x)
    for root in merging.expressions.after(deviation.s):
        if merging.graph.shape(root) != shape:
            continue
        result = merging.expressions.of(root, (x, m, deviation.s))
        for op_type, axes in _readings(deviation.axes, len(shape)):
            normal = tuple(tuple(sorted((each, inverse))) for each in (x, m))
            found = scale_and_shift(merging.graph, result, normal, shape, axes)
            if found is not None and _replaced(merging, deviation, root, result, (op_type, axes, found)):
                return


def _readings(axes: tuple[int, ...], ndims: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The operators that reduce these dimensions, and the dimensions along which they scale."""
    if ndims >= 3 and axes == tuple(range(2, ndims)):
        yield "InstanceNormalization", (1,)
    if axes and axes == tuple(range(axes[0], ndims)):
        yield "LayerNormalization", axes


def _replaced(
    merging: Merging,
    deviation: _Deviation,
    root: str,
    result: Expression,
    reading: tuple[str, tuple[int, ...], tuple[np.ndarray, np.ndarray]],
) -> bool:
    op_type, axes, arrays = reading
    dtype = to_numpy(merging.graph.values[root].dtype)
    names = [
        merging.draft.constant(f"{root}.{name}", array.astype(dtype))
        for name, array in zip(("scale", "shift"), arrays, strict=True)
    ]
    attrs: dict[str, float] = {"epsilon": deviation.epsilon}
    if op_type == "LayerNormalization":
        attrs["axis"] = axes[0]
    return merging.merge(root, deviation.nodes | result.nodes, op_type, (deviation.x, *names), attrs)
