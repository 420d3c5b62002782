"""Clips in all their spellings."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from msgspec import Struct

from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.model.graph import Graph, Node
from blocklayout.model.passes.rewrite import Draft

_Bounds = tuple[float, float]
_CLIPS = frozenset(("Clip", "Max", "Min", "Relu"))


class MergeClips(Struct, frozen=True):
    """Makes one Clip or Relu of a run of Relu, Clip, and Min and Max with a scalar; equal for finite data."""

    holds_for_all_extents: ClassVar[bool] = True

    def __call__(self, graph: Graph) -> Graph:
        draft = Draft(graph)
        readers = graph.readers()
        found: dict[str, tuple[Node, _Bounds]] = {}
        for node in graph.nodes:
            clip = bounds_of(graph, node)
            if clip is None:
                continue
            merged, (source, bounds) = node, clip
            if source in found and len(readers[source]) == 1 and source not in graph.outputs:
                first, inner = found[source]
                draft.replace(first)
                low, high = (min(max(limit, bounds[0]), bounds[1]) for limit in inner)
                bounds, source = (low, high), first.inputs[0]
                merged = node.replace(absorbed=(*first.absorbed, first.name, *node.absorbed))
            merged = _spelled(graph, draft, merged, source, bounds)
            draft.replace(node, merged)
            found[node.outputs[0]] = merged, bounds
        return draft.result()


def bounds_of(graph: Graph, node: Node) -> tuple[str, _Bounds] | None:
    """The source of a clip of any spelling, and its limits; ``None`` if it is none or they are not constants."""
    if node.op_type not in _CLIPS or graph.values[node.outputs[0]].dtype not in FLOATS:
        return None
    if node.op_type in ("Clip", "Relu"):
        bounds = clip_bounds(graph, node) if node.op_type == "Clip" else (0.0, math.inf)
        return None if bounds is None else (node.inputs[0], bounds)
    limits = [array for name in node.inputs if (array := graph.constant(name)) is not None]
    sources = [name for name in node.inputs if graph.constant(name) is None]
    if len(limits) != 1 or len(sources) != 1 or limits[0].size != 1:
        return None
    if graph.shape(sources[0]) != graph.shape(node.outputs[0]):
        return None
    limit = float(limits[0].item())
    return sources[0], (limit, math.inf) if node.op_type == "Max" else (-math.inf, limit)


def clip_bounds(graph: Graph, node: Node) -> tuple[float, float] | None:
    """A Clip's lower and upper limit; ``None`` if they are computed at run time."""
    if graph.opset < 11:
        return float(node.attr("min", -math.inf)), float(node.attr("max", math.inf))
    bounds: list[float] = []
    for index, default in ((1, -math.inf), (2, math.inf)):
        name = node.inputs[index] if index < len(node.inputs) else ""
        limit = graph.constant(name)
        if name and (limit is None or limit.size != 1):
            return None
        bounds.append(default if limit is None else float(limit.item()))
    return bounds[0], bounds[1]


def _spelled(graph: Graph, draft: Draft, node: Node, source: str, bounds: _Bounds) -> Node:
    if bounds == (0.0, math.inf):
        return node.replace(op_type="Relu", inputs=(source,), attrs={})
    if node.op_type == "Clip" and node.inputs[0] == source and clip_bounds(graph, node) == bounds:
        return node
    limits = {name: value for name, value in zip(("min", "max"), bounds, strict=True) if math.isfinite(value)}
    if graph.opset < 11:
        return node.replace(op_type="Clip", inputs=(source,), attrs=limits)
    arrays = {name: np.asarray(value, to_numpy(graph.values[source].dtype)) for name, value in limits.items()}
    names = {name: draft.constant(f"{node.name}.{name}", array) for name, array in arrays.items()}
    inputs = (source, names.get("min", ""), *([names["max"]] if "max" in names else []))
    return node.replace(op_type="Clip", inputs=inputs, attrs={})
