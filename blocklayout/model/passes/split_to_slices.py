"""Split, as its parts."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from blocklayout.model.graph import Graph, Node, fresh_name
from blocklayout.model.passes.rewrite import Draft


class SplitToSlices(Struct, frozen=True):
    """Makes a Slice for each part of a Split that somebody reads: a kernel computes one value."""

    def __call__(self, graph: Graph) -> Graph:
        if not any(node.op_type == "Split" for node in graph.nodes):
            return graph
        draft = Draft(graph)
        taken = {node.name for node in graph.nodes}
        nodes: list[Node] = []
        for node in graph.nodes:
            nodes += _slices(graph, draft, node, taken) if node.op_type == "Split" else [node]
        return graph.replace(nodes=tuple(nodes), values=draft.values)


def _slices(graph: Graph, draft: Draft, node: Node, taken: set[str]) -> list[Node]:
    source = node.inputs[0]
    axis = int(node.attr("axis", 0)) % len(graph.shape(source))
    sizes = _sizes(graph, node, axis)
    if sizes is None:
        return [node]
    slices: list[Node] = []
    start = 0
    for index, (size, output) in enumerate(zip(sizes, node.outputs, strict=False)):
        if output:
            name = fresh_name(f"{node.name}.{index}", taken)
            taken.add(name)
            inputs, attrs = slice_bounds(draft, graph.opset, name, (start, start + size, axis))
            absorbed = (node.name, *node.absorbed)
            slices.append(Node(name, "Slice", (source, *inputs), (output,), attrs, absorbed=absorbed))
        start += size
    return slices


def _sizes(graph: Graph, node: Node, axis: int) -> list[int] | None:
    """Extents of the parts along ``axis``; ``None`` where an unread part leaves them unknown."""
    if len(node.inputs) > 1 and node.inputs[1]:
        given = graph.constant(node.inputs[1])
        return None if given is None else [int(size) for size in given]
    if "split" in node.attrs:
        return [int(size) for size in node.attrs["split"]]
    extent = graph.shape(node.inputs[0])[axis]
    n_parts = int(node.attr("num_outputs", len(node.outputs)))
    size = -(-extent // n_parts)
    return [min(size, extent - index * size) for index in range(n_parts)]


def slice_bounds(
    draft: Draft, opset: int, name: str, bounds: tuple[int, int, int]
) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Inputs and attributes of a Slice from ``(start, end, axis)``, in the words of this operator set."""
    keys = ("starts", "ends", "axes")
    if opset < 10:
        return (), {key: (value,) for key, value in zip(keys, bounds, strict=True)}
    arrays = (np.array([value], np.int64) for value in bounds)
    return tuple(draft.constant(f"{name}.{key}", array) for key, array in zip(keys, arrays, strict=True)), {}
