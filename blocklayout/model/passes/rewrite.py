"""Rewriting a graph: nodes are taken out, so that their readers read something else, or replaced."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from blocklayout.errors import ModelError
from blocklayout.ir.value import Value
from blocklayout.model.graph import Graph, Node, constant_value, fresh_name, resolve

if TYPE_CHECKING:
    from blocklayout.ir import Transposed


def bypass(graph: Graph, sources: Mapping[str, str]) -> Graph:
    """A graph without the nodes, of one output each, that write ``sources``' keys; readers of a key read its source.

    An output of the graph keeps its name: the node that computes the source then writes that name. Where
    none can (the source is an input, or an output itself), the node that was to go stays.
    """
    names: dict[str, str] = {}
    values = dict(graph.values)
    producers = graph.producers()
    kept_names = {*graph.inputs, *graph.outputs}
    kept: set[str] = set()
    for node in graph.nodes:
        for old in node.outputs:
            if old not in sources:
                continue
            new = resolve(names, sources[old])
            if old not in graph.outputs:
                names[old] = new
            elif values[new].is_constant and new not in kept_names:
                values[old] = replace(values[new], name=old)
                names[new] = old
                kept_names.add(old)
            elif new in producers and new not in kept_names:
                names[new] = old
            else:
                kept.add(old)
    gone = {old for old in sources if old not in kept}
    nodes = [node for node in graph.nodes if not gone.intersection(node.outputs)]
    final = {name: resolve(names, name) for name in names}
    return graph.replace(nodes=tuple(node.renamed(final) for node in nodes), values=values).with_renamed(names)


class Draft:
    """A graph being rewritten: ``values`` by name, entries of which may be replaced, and nodes in place of some."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = dict(graph.values)
        self.nodes = {node.name: node for node in graph.nodes}
        self._replaced: dict[str, tuple[Node, ...]] = {}

    def fresh_name(self, wanted: str) -> str:
        """A name that no value and no node has."""
        return fresh_name(wanted, ChainMap[str, Any](self.values, self.nodes))

    def replace(self, node: Node, *by: Node) -> None:
        """Compute a node's results by others in a row; by none where its readers are replaced as well."""
        self._replaced[node.name] = by

    def replacement(self, node: Node) -> tuple[Node, ...]:
        """The nodes that compute a node's results now."""
        return self._replaced.get(node.name, (node,))

    def result(self) -> Graph:
        """The graph with the nodes replaced; the graph as it was, if none is."""
        if not self._replaced:
            return self.graph
        nodes = tuple(new for node in self.graph.nodes for new in self.replacement(node))
        return self.graph.replace(nodes=nodes, values=self.values)

    def contents(self, name: str) -> np.ndarray:
        """The array of a value that must be a constant."""
        data = self.values[name].data
        if data is None:
            raise ModelError(f"{name!r} is computed at run time; a constant is needed here")
        return data

    def value(self, wanted_name: str, shape: tuple[int, ...], dtype: str) -> str:
        """Add a value that a node will compute, and return its name, which the node may have, too."""
        name = self.fresh_name(wanted_name)
        self.values[name] = Value(name, shape, dtype)
        return name

    def constant(self, wanted_name: str, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        name = fresh_name(wanted_name, self.values)
        self.values[name] = constant_value(name, array)
        return name

    def turned(
        self, node: Node, by: Transposed, suffix: str, source: Callable[[str], str], other: Callable[[str], str]
    ) -> Node:
        """A node on permuted axes, as its operator answers (``by``), with outputs as they were.

        ``source`` and ``other`` are the names of sources, permuted, and of inputs that stay as they are; ``suffix`` is
        that of constants in place of its own.
        """
        inputs = list(node.inputs)
        for index, name in enumerate(node.inputs):
            if index in by.sources:
                inputs[index] = source(name)
            elif name and index not in by.constants:
                inputs[index] = other(name)
        for index, array in by.constants.items():
            inputs += [""] * (index + 1 - len(inputs))
            inputs[index] = self.constant(f"{inputs[index] or node.name}.{suffix}", array)
        return node.replace(op_type=by.op_type or node.op_type, attrs=dict(by.attrs), inputs=tuple(inputs))

    def of_rank(self, name: str, ndims: int) -> tuple[str, Node | None]:
        """A new value, another one with extents of 1 in front, up to a rank; its node, if it is no constant."""
        shape = self.values[name].shape
        return self.reshaped(name, (1,) * (ndims - len(shape)) + shape, f"{name}.{ndims}d")

    def reshaped(self, name: str, shape: tuple[int, ...], wanted_name: str) -> tuple[str, Node | None]:
        """A new value, the elements of another one with other extents; its node, if it is no constant."""
        old, new = self.values[name], self.fresh_name(wanted_name)
        self.values[new] = old.reshaped(new, shape)
        if old.data is not None:
            return new, None
        if not shape:
            return new, Node(new, "Squeeze", (name,), (new,))
        extents = self.constant(f"{new}.shape", np.array(shape, np.int64))
        # Without it a Reshape reads 0 as "the extent before"; with batch 0 that need not be the same.
        allow_zero = {"allowzero": 1} if 0 in shape else {}
        return new, Node(new, "Reshape", (name, extents), (new,), allow_zero)
