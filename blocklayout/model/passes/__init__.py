"""Graph to graph: each pass keeps what the network computes and makes it smaller.

A pass is a frozen Struct in a file of its own; its fields are its options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from blocklayout.model.graph import Graph
from blocklayout.model.passes.cancel_transposes import CancelTransposes
from blocklayout.model.passes.chain_concats import ChainConcats
from blocklayout.model.passes.drop_expands import DropExpands
from blocklayout.model.passes.drop_no_ops import DropNoOps
from blocklayout.model.passes.fold_affine import FoldAffine
from blocklayout.model.passes.fold_cast_like import FoldCastLike
from blocklayout.model.passes.fold_constants import FoldConstants
from blocklayout.model.passes.fold_masks import FoldMasks
from blocklayout.model.passes.fold_pads import FoldPads
from blocklayout.model.passes.fold_where import FoldWhere
from blocklayout.model.passes.merge_clips import MergeClips
from blocklayout.model.passes.push_transposes import PushTransposes
from blocklayout.model.passes.remove_dead import RemoveDead

__all__ = [
    "DEFAULT",
    "CancelTransposes",
    "ChainConcats",
    "DropExpands",
    "DropNoOps",
    "FoldAffine",
    "FoldCastLike",
    "FoldConstants",
    "FoldMasks",
    "FoldPads",
    "FoldWhere",
    "MergeClips",
    "Pass",
    "PushTransposes",
    "RemoveDead",
    "simplify",
]


class Pass(Protocol):
    """A step of simplification."""

    def __call__(self, graph: Graph) -> Graph:
        """A graph that computes the same outputs."""
        ...


DEFAULT: tuple[Pass, ...] = (
    FoldCastLike(),
    FoldConstants(),
    FoldWhere(),
    RemoveDead(),
    FoldMasks(),
    PushTransposes(),
    DropExpands(),
    DropNoOps(),
    MergeClips(),
    FoldPads(),
    CancelTransposes(),
    FoldAffine(),
    ChainConcats(),
)
"""In an order in which one round is enough."""


def simplify(
    graph: Graph, passes: Sequence[Pass] = DEFAULT, on_pass: Callable[[Pass, Graph], None] | None = None
) -> Graph:
    """The graph after ``passes``, one round of each.

    Args:
        graph: Left as it is.
        passes: In the order they run.
        on_pass: Called after each pass with what it gave, so that intermediate forms can be shown.

    Raises:
        ModelError: A pass left a graph that is not well-formed.
    """
    for each in passes:
        after = each(graph)
        graph = after if after is graph else after.validate()
        if on_pass is not None:
            on_pass(each, graph)
    return graph
