"""Padding into the window behind it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS
from blocklayout.ir import Padding
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.rewrite import Draft

_MAX_DEPTH = 8


class FoldPads(Struct, frozen=True):
    """Folds spatial padding into every convolution and pooling that reads it, if all can take it.

    A convolution takes zeros. So does an average that counts its padding, or has none of its own. A maximum
    takes negative infinity, and zeros where no element of the source is negative.
    """

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.readers()
        producers = graph.producers()
        draft = Draft(graph)
        for node in graph.nodes:
            padding = node.facts.padding(graph.info(node)) if _is_inner(graph, node) else None
            if padding is None or not padding.is_spatial:
                continue
            is_lowest = padding.value <= _lowest(graph, node) or (
                padding.value == 0 and _is_never_negative(graph, producers, node.inputs[0])
            )
            takers = readers[node.outputs[0]]
            padded = [_padded(graph, taker, node, padding, is_lowest=is_lowest) for taker in takers]
            found = {taker.name: taker for taker in padded if taker is not None}
            if found and len(found) == len(takers):
                draft.replace(node)
                for taker in found.values():
                    draft.replace(taker, taker)
        return draft.result()


def _is_inner(graph: Graph, pad: Node) -> bool:
    value = graph.values.get(pad.outputs[0])
    return value is not None and pad.outputs[0] not in graph.outputs and value.dtype in FLOATS and len(value.shape) >= 3


def _lowest(graph: Graph, pad: Node) -> float:
    """Exporters write the lowest number of a type where they mean negative infinity."""
    return -65504.0 if graph.values[pad.outputs[0]].dtype == "f16" else float(np.finfo(np.float32).min)


def _is_never_negative(graph: Graph, producers: Mapping[str, Node], name: str) -> bool:
    """Whether a value has no negative element, as far as its producers tell."""
    waiting = [(name, _MAX_DEPTH)]
    while waiting:
        each, depth = waiting.pop()
        node = producers.get(each)
        sources = None if node is None or depth == 0 else node.facts.not_negative_if(graph.info(node))
        if node is None or sources is None:
            return False
        waiting += [(node.inputs[index], depth - 1) for index in sources]
    return True


def _padded(graph: Graph, node: Node, pad: Node, padding: Padding, *, is_lowest: bool) -> Node | None:
    """A reader of a Pad that pads its source itself."""
    if node.inputs.count(pad.outputs[0]) != 1 or node.inputs[0] != pad.outputs[0]:
        return None
    attrs = node.facts.padded(graph.info(node), padding, is_lowest=is_lowest)
    if attrs is None:
        return None
    absorbed = (pad.name, *pad.absorbed, *node.absorbed)
    return node.replace(inputs=(pad.inputs[0], *node.inputs[1:]), attrs=attrs, absorbed=absorbed)
