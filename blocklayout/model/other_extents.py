"""A simplified graph for other extents of its inputs, without reading and simplifying the model anew."""

from __future__ import annotations

from collections.abc import Mapping
from operator import is_
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout.errors import BlockLayoutError
from blocklayout.model.graph import Graph, NodeAsRead, live_nodes, resolve
from blocklayout.model.origins import owner_of
from blocklayout.model.passes import Pass, simplify
from blocklayout.model.shapes import walk

if TYPE_CHECKING:
    from blocklayout.model.onnx_read import OnnxModel

_Extents = tuple[int, ...]


class Simplified(Struct, frozen=True, eq=False):
    """A simplified graph, which has the same nodes and constants for all extents of its inputs."""

    graph: Graph

    def at(self, extents: Mapping[str, _Extents]) -> Graph | None:
        """The graph for other extents of its inputs, these and no others; ``None`` where it cannot be had so."""
        mine = self.graph
        if extents.keys() != {*mine.inputs}:  # an initializer that is fed is another constant
            return None
        values = {name: value for name, value in mine.values.items() if value.is_constant}
        values |= {name: replace(mine.values[name], shape=extents[name]) for name in mine.inputs}
        try:
            nodes = walk(mine.nodes, values, mine.opset)
        except BlockLayoutError:  # reading the model names the fault, in its own words
            return None
        if [node.name for node in nodes] != [node.name for node in mine.nodes]:
            return None
        graph = replace(mine, nodes=nodes, values=values)
        return replace(graph, as_read=self._as_read(graph)).validate()

    @property
    def nbytes(self) -> int:
        """Bytes of the constants that it holds; of a part of a file, the file's."""
        owners: dict[int, int] = {}
        for array in (value.data for value in self.graph.values.values() if value.data is not None):
            owner = owner_of(array)
            owners[id(owner)] = (owner if isinstance(owner, np.ndarray) else array).nbytes
        return sum(owners.values())

    def _as_read(self, graph: Graph) -> dict[str, NodeAsRead]:
        """The nodes before any pass: a value has other extents where that has which stands for it now."""
        heirs = {name: node for node in graph.nodes for name in (*node.absorbed, node.name)}

        def followed(name: str, value: str, shape: _Extents) -> _Extents:
            heir = resolve(graph.renamed, value)
            if heir not in graph.values and name in heirs:
                heir = heirs[name].outputs[0]
            if heir not in graph.values:
                return shape
            return graph.shape(heir) if self.graph.shape(heir) == shape else (-1,)  # as unlike as before

        return {
            name: replace(read, outputs={value: followed(name, value, shape) for value, shape in read.outputs.items()})
            for name, read in graph.as_read.items()
        }


def simplified(graph: Graph, model: OnnxModel) -> tuple[Graph, Simplified | None]:
    """A graph simplified, and its form for all extents, if it depends on extents in nothing else.

    So it is where none of its constants was computed from extents, and no pass changed it whose rewrites hold for some
    extents only. The graph was read of ``model``.
    """
    holds = not _has_computed_extents(graph, model)
    before = graph

    def look(done: Pass, after: Graph) -> None:
        nonlocal before, holds
        holds = holds and (getattr(done, "holds_for_all_extents", False) or _is_the_same(before, after))
        before = after

    result = simplify(graph, on_pass=look)
    return result, Simplified(result) if holds else None


def _is_the_same(before: Graph, after: Graph) -> bool:
    """Whether a pass left nodes and constants as they were."""
    if len(before.nodes) != len(after.nodes) or not all(map(is_, before.nodes, after.nodes)):
        return False
    return all(before.values[name].data is value.data for name, value in after.values.items() if name in before.values)


def _has_computed_extents(graph: Graph, model: OnnxModel) -> bool:
    """Whether reading the model computed a constant from extents, chose a branch, or wrote a node in others."""
    computed = {*graph.inputs, *(name for node in graph.nodes for name in node.outputs)}
    for node in live_nodes(model.nodes, graph.outputs):
        if node.domain or node.op_type == "If":
            return True
        is_folded = not any(name in computed for name in node.outputs if name)
        if is_folded and any(name in computed for name in node.inputs):
            return True
    return False
