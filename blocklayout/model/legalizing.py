"""From a graph in ONNX words to one of nodes that operators accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blocklayout.model.graph import Graph
from blocklayout.model.passes import Pass, simplify
from blocklayout.model.passes.align_ranks import AlignRanks
from blocklayout.model.passes.decompose import Decompose
from blocklayout.model.passes.drop_no_ops import DropNoOps
from blocklayout.model.passes.expand_functions import ExpandFunctions
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.remove_dead import RemoveDead

_REWRITES: tuple[Pass, ...] = (DropNoOps(), Decompose(), AlignRanks())

LEGALIZATION: tuple[Pass, ...] = (RemoveDead(), MergeIdioms(), ExpandFunctions(prepare=_REWRITES), *_REWRITES)
"""In an order in which one round is enough."""


def legalize(
    graph: Graph, passes: Sequence[Pass] = LEGALIZATION, on_pass: Callable[[Pass, Graph], None] | None = None
) -> Graph:
    """The graph in nodes that operators accept, as far as there are such.

    Idioms become the operator they spell, functions that ONNX defines by simpler operators their bodies, operands of
    different ranks get views that make their ranks agree. What is left as it is runs by ``onnx.reference``.

    Args:
        graph: Simplified or not; left as it is.
        passes: In the order they run.
        on_pass: Called after each pass with its result, to show intermediate forms.

    Raises:
        ModelError: A node contradicts its operator's specification, or a pass left a graph that is not well-formed.
    """
    return simplify(graph, passes, on_pass)
