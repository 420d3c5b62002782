"""Graph to graph: :func:`simplify` makes a network smaller, :func:`legalize` fits it to the operators.

A pass is a frozen Struct whose fields are its options; it keeps the results of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from blocklayout.dtypes import to_numpy
from blocklayout.model.graph import Graph
from blocklayout.model.lowering import is_computed
from blocklayout.model.passes.byte_tables import TabulateBytes
from blocklayout.model.passes.decompose import Decompose
from blocklayout.model.passes.expand_functions import ExpandFunctions, WriteOut
from blocklayout.model.passes.fold_affine import FoldAffine
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.merge_clips import MergeClips
from blocklayout.model.passes.one_walk import (
    AlignRanks,
    ChainConcats,
    DropExpands,
    DropNoOps,
    FoldConstants,
    FoldMasks,
    FoldPads,
    RemoveDead,
)
from blocklayout.model.passes.push_transposes import PushTransposes
from blocklayout.model.passes.quantized import DropRequantizing, RaiseQuantizing, SinkDequantizing, SinkScales
from blocklayout.resource_limits import check_affordable, check_nbytes, check_time, in_force

__all__ = ["DEFAULT", "LEGALIZATION", "MergeIdioms", "Pass", "TabulateBytes", "legalize", "simplify"]


class Pass(Protocol):
    """A step of simplification or legalization; ``holds_for_all_extents`` says that extents decide no rewrite."""

    def __call__(self, graph: Graph) -> Graph:
        """A graph that computes the same outputs."""
        ...


DEFAULT: tuple[Pass, ...] = (
    FoldConstants(),
    DropNoOps(),
    RemoveDead(),
    FoldMasks(),
    PushTransposes(),
    DropExpands(),
    DropNoOps(),
    MergeClips(),
    SinkScales(),
    RaiseQuantizing(),
    DropRequantizing(),
    FoldPads(),
    SinkDequantizing(),
    FoldAffine(),
    ChainConcats(),
)
"""In an order in which one round is enough."""

_REWRITES: tuple[Pass, ...] = (DropNoOps(), Decompose(), AlignRanks())

LEGALIZATION: tuple[Pass, ...] = (
    RemoveDead(),
    WriteOut(),
    TabulateBytes(),
    MergeIdioms(),
    ExpandFunctions(prepare=_REWRITES),
    ExpandFunctions(is_computed, _REWRITES),
    *_REWRITES,
)
"""In an order in which one round is enough."""


def simplify(
    graph: Graph, passes: Sequence[Pass] = DEFAULT, on_pass: Callable[[Pass, Graph], None] | None = None
) -> Graph:
    """The graph after ``passes``, one round of each.

    Args:
        graph: Left as it is.
        passes: In the order they run.
        on_pass: Called after each pass with its result, to show intermediate forms.

    Raises:
        ModelError: A pass left a graph that is not well-formed.
        LimitError: It takes more memory or time than a caller allows.
    """
    _check_memory(graph)
    for each in passes:
        check_time(f"{graph.name}: {type(each).__name__}")
        after = each(graph)
        graph = after if after is graph else after.validate()
        _check_memory(graph)
        if on_pass is not None:
            on_pass(each, graph)
    return graph


def _check_memory(graph: Graph) -> None:
    """Refuse values, and constants together, that are larger than a caller allows."""
    if in_force.get() is None:
        return
    for value in graph.values.values():
        check_affordable(value.shape, to_numpy(value.dtype).itemsize, f"{graph.name}: {value.name!r}")
    nbytes = sum(value.data.nbytes for value in graph.values.values() if value.data is not None)
    check_nbytes(nbytes, f"{graph.name}: its constants")


def legalize(
    graph: Graph, passes: Sequence[Pass] = LEGALIZATION, on_pass: Callable[[Pass, Graph], None] | None = None
) -> Graph:
    """The graph in nodes that operators accept, as far as there are such.

    Idioms become the operator they spell, functions that ONNX defines by simpler operators their bodies, operands of
    different ranks get views that make their ranks agree. Other nodes stay, and ``onnx.reference`` computes them.
    Arguments are those of :func:`simplify`.

    Raises:
        ModelError: A node contradicts its operator's specification, or a pass left a graph that is not well-formed.
    """
    return simplify(graph, passes, on_pass)
