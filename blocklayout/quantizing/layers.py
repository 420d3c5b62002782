"""Which nodes of a graph read bytes, which values are quantised for them, and which of those share a scheme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from blocklayout.model import Graph, Node

if TYPE_CHECKING:
    from blocklayout.quantizing.recipe import QuantizationRecipe

_EXACT_BIAS = 2.0**30
"""A bias is at most so many steps, of the 32 bits that it has."""


class Layer(Struct, frozen=True, eq=False):
    """A product by constant weights.

    Attributes:
        weights: As the node is to read them, factors of a Gemm included.
        bias: One number for each output channel; ``None`` where it has none.
        axis: The dimension of the weights that is the result's channels.
        channels: The dimension of the result.
        adding: The sum behind a MatMul that adds the bias, by name.
    """

    node: Node
    weights: np.ndarray
    bias: np.ndarray | None
    axis: int
    channels: int
    adding: str = ""

    @property
    def source(self) -> str:
        """The name of the value that is multiplied."""
        return self.node.inputs[0]

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel of the result follows from one channel of the source."""
        group = self.node.attr("group", 1)
        return self.node.op_type == "Conv" and group > 1 and self.weights.shape[:2] == (group, 1)

    def quantized(self, source_scale: np.ndarray, *, per_channel: bool) -> LayerInBytes:
        """The same with signed bytes around 0, whose scales leave the bias within 32 bits."""
        others = tuple(dim for dim in range(self.weights.ndim) if dim != self.axis)
        largest = np.abs(self.weights).max(others, initial=0).astype(np.float64)
        least = np.zeros(1) if self.bias is None else np.abs(self.bias).astype(np.float64)
        scales = np.maximum(largest / 127, least / source_scale / _EXACT_BIAS)
        scales = scales if per_channel else scales.max(keepdims=True)
        scales = np.where(scales > np.finfo(np.float32).tiny, scales, 1).astype(np.float32)
        steps = np.clip(np.rint(self.weights / self.spread(scales)), -127, 127)
        return LayerInBytes(self, steps.astype(np.int8), scales)

    def spread(self, scales: np.ndarray) -> np.ndarray:
        """Scales by output channel, or one for all, to be multiplied with weights."""
        return scales.reshape([-1 if dim == self.axis else 1 for dim in range(self.weights.ndim)])


class LayerInBytes(Struct, frozen=True, eq=False):
    """A layer with its weights as bytes, and their scales."""

    layer: Layer
    integers: np.ndarray
    scales: np.ndarray

    @property
    def numbers(self) -> np.ndarray:
        """The numbers that the bytes stand for."""
        numbers: np.ndarray = self.integers.astype(np.float32) * self.layer.spread(self.scales)
        return numbers


def layer_of(graph: Graph, node: Node) -> Layer | None:
    """A node as a product by constant weights in f32; ``None`` if it is none, or of a form that is left as it is."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul") or node.domain:
        return None
    weights = graph.constant(node.inputs[1])
    bias = graph.constant(node.inputs[2]) if any(node.inputs[2:]) else None
    is_computed = graph.constant(node.inputs[0]) is None and graph.values[node.inputs[0]].dtype == "f32"
    if weights is None or weights.dtype != np.float32 or not is_computed or (bias is None and any(node.inputs[2:])):
        return None
    if node.op_type == "MatMul":
        return _matrix_product(graph, node, weights)
    if node.op_type == "Conv":
        return Layer(node, weights, bias, 0, 1)
    if node.op_type == "ConvTranspose":
        return Layer(node, weights, bias, 1, 1) if node.attr("group", 1) == 1 else None
    axis = 0 if node.attr("transB", 0) else 1
    if node.attr("transA", 0) or (bias is not None and bias.size not in (1, weights.shape[axis])):
        return None
    if bias is not None:
        bias = np.broadcast_to(bias.ravel() * np.float32(node.attr("beta", 1.0)), weights.shape[axis : axis + 1])
    attrs = {name: value for name, value in node.attrs.items() if name not in ("alpha", "beta")}
    return Layer(node.replace(attrs=attrs), weights * np.float32(node.attr("alpha", 1.0)), bias, axis, 1)


def _matrix_product(graph: Graph, node: Node, weights: np.ndarray) -> Layer | None:
    if weights.ndim != 2 or len(graph.shape(node.inputs[0])) < 2:
        return None
    bias, adding = None, ""
    readers = [reader for reader in graph.nodes if node.outputs[0] in reader.inputs]
    if len(readers) == 1 and readers[0].op_type == "Add" and node.outputs[0] not in graph.outputs:
        [added] = [name for name in readers[0].inputs if name != node.outputs[0]] or [""]
        array = graph.constant(added)
        if array is not None and array.shape == weights.shape[1:]:
            bias, adding = array, readers[0].name
    return Layer(node, weights, bias, 1, len(graph.shape(node.outputs[0])) - 1, adding)


class Chosen(Struct, frozen=True, eq=False):
    """The part of a graph that is quantised.

    Attributes:
        layers: Products by constant weights, by the name of the node.
        groups: For each quantised value, in the graph's order, the first of those whose scheme is its own as well.
        moved: Values whose elements are those of others in their group.
        by_channel: Values with a scale for each channel: read by depthwise convolutions alone, and in no group.
        apart: Names of the nodes that read real numbers, as the recipe says.
        readers: Names of the nodes that read bytes by themselves, and not since a reader of theirs does, in order.
    """

    layers: Mapping[str, Layer]
    groups: Mapping[str, str]
    moved: frozenset[str]
    by_channel: frozenset[str]
    apart: frozenset[str]
    readers: tuple[str, ...]


def choose(graph: Graph, recipe: QuantizationRecipe, without: Collection[str] = ()) -> Chosen:
    """The nodes that the recipe's operators are, in a form that is quantised, and the values that they read.

    Those ``without`` which it is to be, by name, read real numbers.
    """
    recipe.check_names(*_names(graph))
    layers, wanted, joined, readers = {}, set[str](), [], []
    apart = {*without}
    apart |= {node.name for node in graph.nodes if recipe.otherwise((node.name, *node.absorbed), node.op_type) == "f32"}
    for node in graph.nodes:
        if node.op_type not in recipe.operators or node.name in apart or node.domain:
            continue
        layer = layer_of(graph, node)
        if layer is not None:
            layers[node.name] = layer
        sources = (layer.source,) if layer is not None else _operands(graph, node)
        wanted |= {*sources}
        readers += [node.name] if sources else []
        if node.op_type == "Concat":
            joined.append(sources)
    moved = set[str]()
    for node in reversed(graph.nodes):
        results = [name for name in node.outputs if name in wanted]
        sources = _moved_by(graph, node) if results and node.name not in apart else ()
        wanted |= {*sources}
        if sources:
            joined.append((*sources, *results))
            moved |= {*results}
    order = [*graph.inputs, *(name for node in graph.nodes for name in node.outputs)]
    values = [name for name in dict.fromkeys(order) if name in wanted]
    groups = _grouped(values, joined)
    by_channel = _by_channel(graph, layers, groups) if recipe.depthwise == "channel" else set()
    return Chosen(layers, groups, frozenset(moved), frozenset(by_channel), frozenset(apart), tuple(readers))


def _by_channel(graph: Graph, layers: Mapping[str, Layer], groups: Mapping[str, str]) -> set[str]:
    sizes = Counter(groups.values())
    readers = graph.readers()
    found = {layer.source for layer in layers.values() if layer.is_depthwise}
    depthwise = {name for name, layer in layers.items() if layer.is_depthwise}
    return {
        name for name in found if sizes[groups[name]] == 1 and all(node.name in depthwise for node in readers[name])
    }


def _names(graph: Graph) -> tuple[set[str], set[str]]:
    """Names that an exception may have, and types of operators."""
    nodes = {name for node in graph.nodes for name in (node.name, *node.absorbed)}
    return nodes | {*graph.values}, {node.op_type for node in graph.nodes}


def _is_real(graph: Graph, name: str) -> bool:
    return bool(name) and graph.values[name].dtype == "f32" and not graph.values[name].is_constant


def _operands(graph: Graph, node: Node) -> tuple[str, ...]:
    """The operands of a node without weights; none if one is constant, or of another type."""
    if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return ()
    return node.inputs if all(_is_real(graph, name) for name in node.inputs) else ()


def _moved_by(graph: Graph, node: Node) -> tuple[str, ...]:
    """The values whose elements a node's results are; none if they are others, or some of them known and not 0."""
    indices = node.facts.selects(graph.info(node)) or ()
    names = [node.inputs[index] for index in indices if any(node.inputs[index : index + 1])]
    arrays = [graph.constant(name) for name in names]
    if any(array is not None and array.any() for array in arrays):
        return ()
    computed = tuple(name for name, array in zip(names, arrays, strict=True) if array is None)
    return computed if all(_is_real(graph, name) for name in computed) else ()


def _grouped(values: Iterable[str], joined: Iterable[Iterable[str]]) -> dict[str, str]:
    groups = {name: name for name in values}
    for names in joined:
        together = {groups[name] for name in names}
        first = next((name for name in groups if groups[name] in together), "")
        groups = {name: first if group in together else group for name, group in groups.items()}
    return groups
