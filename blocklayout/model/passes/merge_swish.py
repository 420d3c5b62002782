"""A value times its own sigmoid."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from blocklayout.model.graph import Graph
from blocklayout.model.passes.expressions import is_close
from blocklayout.model.passes.gates import Gated, gated
from blocklayout.model.passes.merge_hard_sigmoid import line_in_unit
from blocklayout.model.passes.merging import Merging

_HARD_SWISH = {"": 0.5, "x": 1 / 6}


class MergeSwish(Struct, frozen=True):
    """Makes one Swish of ``x * Sigmoid(alpha * x)``, and one HardSwish of ``x * clip(x + 3, 0, 6) / 6``.

    Exporters spell both that way, or write HardSigmoid. ONNX has Swish from operator set 24 and HardSwish
    from 14, so this is for kernels, whatever the operator set; it is no part of what is written to files.
    """

    def __call__(self, graph: Graph) -> Graph:
        merging = Merging(graph)
        for each in gated(merging, "Clip", "HardSigmoid", "Sigmoid"):
            if each.outer.keys() == {"gx"}:
                found = _swish(each) if each.gate.op_type == "Sigmoid" else _hard_swish(graph, each)
                if found is not None:
                    merging.merge(each.root, each.nodes, found[0], (each.x,), found[1])
        return merging.result()


def _swish(each: Gated) -> tuple[str, dict[str, Any]] | None:
    if each.inner.keys() != {"x"} or not is_close(each.outer, {"gx": 1.0}, each.dtype):
        return None
    alpha = each.inner["x"]
    return "Swish", {} if alpha == 1 else {"alpha": alpha}


def _hard_swish(graph: Graph, each: Gated) -> tuple[str, dict[str, Any]] | None:
    line = _line(graph, each)
    return ("HardSwish", {}) if line is not None and is_close(line, _HARD_SWISH, each.dtype) else None


def _line(graph: Graph, each: Gated) -> dict[str, float] | None:
    """The line that the gate limits to 0 and 1; HardSigmoid's own default has a slope of 0.2."""
    if each.gate.op_type == "Clip":
        line = line_in_unit(graph, each, each.outer["gx"])
        return line and {"x": line[0], "": line[1]}
    if each.inner != {"x": 1.0} or not is_close(each.outer, {"gx": 1.0}, each.dtype):
        return None
    return {"x": each.gate.attr("alpha", 0.2), "": each.gate.attr("beta", 0.5)}
