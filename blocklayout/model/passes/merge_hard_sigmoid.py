"""A line between two limits."""

from __future__ import annotations

import math

from msgspec import Struct

from blocklayout.model.graph import Graph
from blocklayout.model.passes.gates import Gated, gated
from blocklayout.model.passes.merge_clips import clip_bounds
from blocklayout.model.passes.merging import Merging


class MergeHardSigmoid(Struct, frozen=True):
    """Makes one HardSigmoid of ``clip(x + 3, 0, 6) / 6``, in any spelling and with any slope and offset."""

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for each in gated(merging, "Clip"):
            scale = each.outer.get("g", 0.0)
            line = line_in_unit(graph, each, scale)
            if each.outer.keys() == {"g"} and line is not None:
                attrs = {"alpha": line[0], "beta": line[1]}
                merging.merge(each.root, each.nodes, "HardSigmoid", (each.x,), attrs)
        return merging.result()


def line_in_unit(graph: Graph, each: Gated, scale: float) -> tuple[float, float] | None:
    """Slope and offset of a line, if ``scale`` times the gate is that line limited to 0 and 1; else ``None``."""
    bounds = clip_bounds(graph, each.gate)
    if bounds is None or bounds[0] != 0 or not math.isclose(bounds[1] * scale, 1.0, rel_tol=1e-6):
        return None
    if each.inner.keys() != {"", "x"}:
        return None
    return each.inner["x"] * scale, each.inner[""] * scale
