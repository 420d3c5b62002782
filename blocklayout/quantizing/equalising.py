"""Cross-layer equalisation: weights on both sides of a channel between two layers get like ranges.

Source: M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

import numpy as np

from blocklayout.model import Graph, Node
from blocklayout.model.passes.rewrite import Draft
from blocklayout.quantizing.layers import Layer

_POOLS = {"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"}
_HOMOGENEOUS = {"Identity", "Relu", "LeakyRelu", "PRelu", *_POOLS}
"""Functions of the first input with ``f(c * x) == c * f(x)`` for each c above 0."""

_LARGEST_EXPONENT = 13
"""Of a channel's factor, some 1e4."""

_MOST_SWEEPS = 20


class _Scaled:
    """A layer whose channels are scaled: weights by group, output and input channel of the group, and place."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self._moved = np.moveaxis(layer.weights, layer.axis, 0)
        groups = layer.node.attr("group", 1)
        n_outputs, n_inputs = self._moved.shape[:2]
        self.weights = self._moved.reshape(groups, n_outputs // groups, n_inputs, -1).copy()
        self.bias = None if layer.bias is None else layer.bias.copy()

    def ranges(self, *, of_inputs: bool) -> np.ndarray:
        """The largest magnitude of the weights of each output or input channel."""
        largest: np.ndarray = np.abs(self.weights).max((1 if of_inputs else 2, 3), initial=0).ravel()
        return largest

    def divide_outputs(self, scales: np.ndarray) -> None:
        """Divide what the layer writes, by channel."""
        self.weights /= scales.reshape(*self.weights.shape[:2], 1, 1)
        if self.bias is not None:
            self.bias /= scales

    def multiply_inputs(self, scales: np.ndarray) -> None:
        """Multiply weights, by the channel that they read."""
        self.weights *= scales.reshape(self.weights.shape[0], 1, -1, 1)

    def write(self, draft: Draft) -> None:
        """Put the scaled layer in place of its node, and of the sum that adds its bias."""
        node, bias = self.layer.node, self.bias
        weights = np.moveaxis(self.weights.reshape(self._moved.shape), 0, self.layer.axis)
        inputs = [node.inputs[0], draft.constant(f"{node.inputs[1]}_equalised", np.ascontiguousarray(weights))]
        if bias is not None and self.layer.adding:
            adding = draft.nodes[self.layer.adding]
            [known] = [name for name in adding.inputs if name != node.outputs[0]]
            draft.replace(adding, adding.renamed({known: draft.constant(f"{known}_equalised", bias)}))
        elif bias is not None:
            inputs.append(draft.constant(f"{node.inputs[2]}_equalised", bias))
        draft.replace(node, node.replace(inputs=tuple(inputs)))


class _Pair:
    """Two layers, the second of which alone reads what the first writes: for each channel one or more of its inputs."""

    def __init__(self, first: _Scaled, second: _Scaled) -> None:
        self.first, self.second = first, second
        self.exponents = np.zeros(first.layer.weights.shape[first.layer.axis], np.int32)

    def equalise(self) -> bool:
        """Scale channels by powers of two; whether any was changed."""
        written = self.first.ranges(of_inputs=False)
        read = self.second.ranges(of_inputs=True).reshape(written.size, -1)
        largest = read.max(1)
        some = (np.minimum(written, largest) > 0) & np.isfinite(np.maximum(written, largest))
        apart = np.log2(np.where(some, written, 1)) - np.log2(np.where(some, largest, 1))
        wanted = self.exponents + np.rint(apart / 2).astype(np.int32)
        exponents = np.clip(wanted, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        steps, self.exponents = exponents - self.exponents, exponents
        scales = np.ldexp(np.float32(1), steps)
        self.first.divide_outputs(scales)
        self.second.multiply_inputs(scales.repeat(read.shape[1]))
        return bool(steps.any())


def equalised(graph: Graph, layers: Mapping[str, Layer]) -> Graph:
    """The same function, with like ranges of weights on both sides of channels between pairs of ``layers``.

    Factors are powers of two, which change no number's digits, and leave ranges at most a factor of two apart; channels
    that are 0 on either side keep theirs. A layer may be in two pairs: all are gone through until nothing changes.
    """
    found = [*_pairs(graph, {name: each for name, each in layers.items() if each.weights.size})]
    scaled = {name: _Scaled(layers[name]) for name in dict.fromkeys(chain.from_iterable(found))}
    pairs = [_Pair(scaled[first], scaled[second]) for first, second in found]
    for _ in range(_MOST_SWEEPS):
        if not sum(pair.equalise() for pair in pairs):
            break
    draft = Draft(graph)
    for each in dict.fromkeys(each for pair in pairs if pair.exponents.any() for each in (pair.first, pair.second)):
        each.write(draft)
    return draft.result()


def _pairs(graph: Graph, layers: Mapping[str, Layer]) -> Iterator[tuple[str, str]]:
    readers = graph.readers()
    writers = {node.name: node for node in graph.nodes}
    for first in layers.values():
        [name] = writers[first.adding or first.node.name].outputs
        while name not in graph.outputs and len(readers[name]) == 1:
            [reader] = readers[name]
            summed = len(graph.shape(name)) - 1 if reader.op_type == "MatMul" else 1
            if reader.name in layers and first.channels == summed:
                yield first.node.name, reader.name
            if reader.inputs[0] != name or not _keeps_channels(graph, reader, first.channels):
                break
            name = reader.outputs[0]


def _keeps_channels(graph: Graph, node: Node, channels: int) -> bool:
    """Whether a node is homogeneous, and dimension 1 of its result, if ``channels`` is that, has them in order."""
    if node.domain or any(node.outputs[1:]):
        return False
    if node.op_type in ("Flatten", "Reshape", "Squeeze"):
        before, after = (graph.shape(name) for name in (node.inputs[0], node.outputs[0]))
        return channels == 1 and len(after) == 2 and after[0] == before[0]
    return node.op_type in _HOMOGENEOUS and (channels == 1 or node.op_type not in _POOLS)
