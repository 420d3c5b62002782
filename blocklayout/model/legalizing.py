"""From a graph in ONNX words to one of nodes that operators accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from blocklayout.model.graph import Graph
from blocklayout.model.passes import Pass, simplify
from blocklayout.model.passes.activations_to_parts import ActivationsToParts
from blocklayout.model.passes.align_matmul import AlignMatMul
from blocklayout.model.passes.align_ranks import AlignRanks
from blocklayout.model.passes.drop_no_ops import DropNoOps
from blocklayout.model.passes.expand_functions import ExpandFunctions
from blocklayout.model.passes.gather_to_slices import GatherToSlices
from blocklayout.model.passes.gemm_to_matmul import GemmToMatMul
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.mean_to_sum import MeanToSum
from blocklayout.model.passes.pool_whole_images import PoolWholeImages
from blocklayout.model.passes.remove_dead import RemoveDead
from blocklayout.model.passes.space_to_views import SpaceToViews
from blocklayout.model.passes.split_to_slices import SplitToSlices

PARTS: tuple[Pass, ...] = (
    DropNoOps(),
    PoolWholeImages(),
    SpaceToViews(),
    MeanToSum(),
    ActivationsToParts(),
    SplitToSlices(),
    GatherToSlices(),
    GemmToMatMul(),
    AlignMatMul(),
    AlignRanks(),
)
"""Nodes that no primitive computes as they are, by those that primitives compute."""

LEGALIZATION: tuple[Pass, ...] = (RemoveDead(), MergeIdioms(), ExpandFunctions(prepare=PARTS), *PARTS)
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
