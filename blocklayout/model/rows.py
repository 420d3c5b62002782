"""Proof that a model computes each row of its inputs, an index along dimension 0, apart from the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from blocklayout.errors import UnsupportedError
from blocklayout.model.graph import DependsOnDataError
from blocklayout.model.onnx_read import OnnxModel
from blocklayout.model.passes.decompose import Decompose
from blocklayout.model.reading import open_model, read

if TYPE_CHECKING:
    from blocklayout.model.graph import Graph, Node

_ADVICE = "run it without batching"


def with_free_rows(source: Any) -> OnnxModel | Graph:
    """A model whose inputs may have any number of rows, whatever it declares; a graph's extents are known, and stay."""
    found = open_model(source)
    if not isinstance(found, OnnxModel):
        return found
    inputs = [
        replace(info, extents=(None, *info.extents[1:])) if info.extents and isinstance(info.extents[0], int) else info
        for info in found.signature.inputs
    ]
    return replace(found, signature=replace(found.signature, inputs=tuple(inputs)))


def check_rows(source: Any, row: Mapping[str, Sequence[int]], sizes: Iterable[int]) -> None:
    """Refuse a model that does not compute the same of each row beside any other rows.

    That is proven for graphs of these ``sizes``: node by node, no row reads another one, and but for the number of rows
    nodes and constants are the same as in the graph of one ``row``, whose inputs have these extents.

    Raises:
        UnsupportedError: The message names the node.
        InputError: Extents that the model does not allow.
    """
    try:
        graphs = {
            n: Decompose()(read(source, {name: (n, *extents[1:]) for name, extents in row.items()}))
            for n in sorted({1, *sizes})
        }
    except DependsOnDataError as error:
        raise UnsupportedError(f"batching: {error}; {_ADVICE}") from error
    for n, graph in graphs.items():
        if n > 1:
            _Proof(graph, graphs[1], n).check()


class _Proof:
    """Of one graph, beside that of one row."""

    def __init__(self, graph: Graph, single: Graph, n: int) -> None:
        self._graph = graph
        self._single = single
        self._n = n
        self._rows = set(graph.inputs)
        """Values each of whose rows follows from the same rows of the inputs."""

    def check(self) -> None:
        if len(self._graph.nodes) != len(self._single.nodes):
            raise _refusal(f"it has other nodes for {self._n} rows than for one")
        for node, other in zip(self._graph.nodes, self._single.nodes, strict=True):
            self._check_node(node, other)
        for name in self._graph.outputs:
            if name not in self._rows:
                raise _refusal(f"output {name!r} has no row for each of the inputs'")

    def _check_node(self, node: Node, other: Node) -> None:
        if (node.op_type, node.inputs) != (other.op_type, other.inputs) or not _are_equal(node.attrs, other.attrs):
            raise _refusal(f"{node.op_type} {node.name!r} is another node for {self._n} rows than for one")
        named = {place: name for place, name in enumerate(node.inputs) if name}
        places = frozenset(place for place, name in named.items() if self._has_rows(node, place, name))
        if not places and node.facts.is_random:
            raise _refusal(f"{node.op_type} {node.name!r} is random")
        if places and not node.facts.keeps_rows(self._graph.info(node), places):
            raise _refusal(f"{node.op_type} {node.name!r} is not known to compute each row apart from the others")
        for name in filter(None, node.outputs):
            self._check_extents(node, name, has_rows=bool(places))
        if places:
            self._rows.update(filter(None, node.outputs))

    def _has_rows(self, node: Node, place: int, name: str) -> bool:
        """Whether an input of the node has rows; one that has none must be the same as for one row."""
        if name in self._rows:
            return True
        array, single = self._graph.constant(name), self._single.constant(name)
        if array is None or array is single or place in node.facts.extents_read:
            return False
        if single is not None and array.dtype == single.dtype and array.ndim:
            if array.shape == single.shape and np.array_equal(array, single, equal_nan=array.dtype.kind == "f"):
                return False
            if array.shape == (self._n, *single.shape[1:]) and all(np.array_equal(each, single[0]) for each in array):
                return True  # such as a class token, expanded to the batch
        elif single is not None and array.shape == single.shape and np.array_equal(array, single):
            return False
        raise _refusal(f"{node.op_type} {node.name!r} reads {name!r}, which follows from the number of rows")

    def _check_extents(self, node: Node, name: str, *, has_rows: bool) -> None:
        extents, single = self._graph.shape(name), self._single.shape(name)
        if extents != ((self._n, *single[1:]) if has_rows else single) or (has_rows and single[:1] != (1,)):
            what = f"has extents {list(extents)} for {self._n} rows, and {list(single)} for one"
            raise _refusal(f"{node.op_type} {node.name!r}: {name!r} {what}")


def _are_equal(attrs: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return attrs.keys() == others.keys() and all(np.array_equal(value, others[name]) for name, value in attrs.items())


def _refusal(what: str) -> UnsupportedError:
    return UnsupportedError(f"batching: rows cannot be joined in this model: {what}; {_ADVICE}")
