"""Padding into the window behind it."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.merge_clips import clip_bounds
from blocklayout.model.passes.paddings import Padding, read_padding

_FIRST_OPSET_OF_COUNTED_PADS = 7
_NOT_NEGATIVE = frozenset(("Abs", "Exp", "HardSigmoid", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt"))
_OF_ITS_SOURCES = frozenset(("AveragePool", "Concat", "Dropout", "GlobalAveragePool", "Identity", "MaxPool", "Reshape"))
_MAX_DEPTH = 8


class FoldPads(Struct, frozen=True):
    """Folds a Pad of spatial dimensions into every Conv, AveragePool and MaxPool that reads it, if all can take it.

    A convolution takes zeros. So does an average that counts its padding, or has none of its own. A maximum
    takes negative infinity, and zeros where no element of the source is negative.
    """

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        producers = graph.producers()
        folded: dict[str, tuple[Node, Padding]] = {}
        for node in graph.nodes:
            padding = read_padding(graph, node) if node.op_type == "Pad" and _is_inner(graph, node) else None
            if padding is None or not padding.is_spatial:
                continue
            takers = readers[node.outputs[0]]
            is_low = padding.value <= _lowest(graph, node) or (
                padding.value == 0 and _is_positive(graph, producers, node)
            )
            if takers and all(_takes(graph, taker, node.outputs[0], padding, is_low=is_low) for taker in takers):
                folded[node.outputs[0]] = node, padding
        if not folded:
            return graph
        gone = {node.name for node, _ in folded.values()}
        nodes = tuple(_padded(node, folded) for node in graph.nodes if node.name not in gone)
        return graph.replace(nodes=nodes)


def _is_inner(graph: Graph, pad: Node) -> bool:
    value = graph.values[pad.outputs[0]]
    return pad.outputs[0] not in graph.outputs and value.dtype in FLOATS and len(value.shape) >= 3


def _lowest(graph: Graph, pad: Node) -> float:
    """Exporters write the lowest number of a type where they mean negative infinity."""
    return -65504.0 if graph.values[pad.outputs[0]].dtype == "f16" else float(np.finfo(np.float32).min)


def _is_positive(graph: Graph, producers: dict[str, Node], pad: Node) -> bool:
    """Whether the source has no negative element, as far as its producers tell."""
    waiting = [(pad.inputs[0], _MAX_DEPTH)]
    while waiting:
        name, depth = waiting.pop()
        node = producers.get(name)
        if node is None or depth == 0:
            return False
        if node.op_type in _NOT_NEGATIVE or (node.op_type == "Clip" and _is_clipped_at_zero(graph, node)):
            continue
        if node.op_type not in _OF_ITS_SOURCES:
            return False
        sources = node.inputs if node.op_type == "Concat" else node.inputs[:1]
        waiting += [(source, depth - 1) for source in sources]
    return True


def _is_clipped_at_zero(graph: Graph, clip: Node) -> bool:
    bounds = clip_bounds(graph, clip)
    return bounds is not None and 0 <= bounds[0] <= bounds[1]


def _takes(graph: Graph, node: Node, name: str, padding: Padding, *, is_low: bool) -> bool:
    if node.inputs.count(name) != 1 or node.inputs[0] != name:
        return False
    if node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return False
    if node.op_type == "Conv":
        return padding.value == 0
    if node.op_type not in ("AveragePool", "MaxPool") or node.attr("ceil_mode", 0) or any(node.outputs[1:]):
        return False
    pads = _sum(padding, node)
    kernel = tuple(node.attr("kernel_shape", ()))
    dilations = tuple(node.attr("dilations", (1,) * len(kernel)))
    reach = [(extent - 1) * dilation + 1 for extent, dilation in zip(kernel, dilations, strict=True)]
    if any(pad >= extent for pad, extent in zip(pads, reach * 2, strict=True)):
        return False
    if node.op_type == "MaxPool":
        return is_low
    counts = bool(node.attr("count_include_pad", 0)) or not any(node.attr("pads", ()))
    return padding.value == 0 and counts and graph.opset >= _FIRST_OPSET_OF_COUNTED_PADS


def _sum(padding: Padding, node: Node) -> tuple[int, ...]:
    own = tuple(node.attr("pads", ())) or (0,) * len(padding.pads)
    return tuple(int(a) + int(b) for a, b in zip(padding.pads, own, strict=True))


def _padded(node: Node, folded: dict[str, tuple[Node, Padding]]) -> Node:
    if not node.inputs or node.inputs[0] not in folded:
        return node
    pad, padding = folded[node.inputs[0]]
    attrs: dict[str, Any] = {key: value for key, value in node.attrs.items() if key != "auto_pad"}
    attrs["pads"] = _sum(padding, node)
    if node.op_type == "AveragePool":
        attrs["count_include_pad"] = 1
    absorbed = (pad.name, *pad.absorbed, *node.absorbed)
    return node.replace(inputs=(pad.inputs[0], *node.inputs[1:]), attrs=attrs, absorbed=absorbed)
