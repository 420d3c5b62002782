"""Rewriting groups of nodes as one, and single nodes as several."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from blocklayout.model.graph import Graph, Node, fresh_name
from blocklayout.model.passes.expressions import Expressions
from blocklayout.model.passes.rewrite import Draft


class Merging:
    """A graph in which groups of nodes become one each.

    Attributes:
        graph: As it was.
        expressions: Its arithmetic as polynomials.
        draft: Takes the constants that new nodes read.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.expressions = Expressions(graph)
        self.draft = Draft(graph)
        self._by_name = {node.name: node for node in graph.nodes}
        self._made: dict[str, tuple[Node, ...]] = {}
        self._gone: set[str] = set()

    def fresh_name(self, wanted: str) -> str:
        """A name that no value and no node has."""
        return fresh_name(wanted, ChainMap[str, Any](self.draft.values, self._by_name))

    def fresh_node_name(self, wanted: str) -> str:
        """A name that no node has."""
        return fresh_name(wanted, self._by_name)

    def producer(self, name: str, *op_types: str) -> Node | None:
        """The node that writes a value, if it is one of ``op_types``."""
        node = self.expressions.producers.get(name)
        return node if node is not None and node.op_type in op_types else None

    def merge(
        self, root: str, nodes: AbstractSet[str], op_type: str, inputs: Sequence[str], attrs: Mapping[str, Any]
    ) -> bool:
        """Compute ``root`` by one node in place of ``nodes``; returns whether that was possible.

        It is not where other nodes read a value between them, or one of them was merged already.

        Args:
            root: The value they compute.
            nodes: Names of all of them.
            op_type: Of the new node.
            inputs: Of the new node.
            attrs: Of the new node.
        """
        last = self.expressions.producers.get(root)
        if last is None or last.name not in nodes or not self._is_closed(root, nodes):
            return False
        new = Node(last.name, op_type, tuple(inputs), (root,), attrs, absorbed=self._absorbed(last, nodes))
        self._made[last.name] = (new,)
        self._gone.update(nodes)
        return True

    def replace(self, node: Node, by: Sequence[Node]) -> None:
        """Compute a node's results by others in a row."""
        self._made[node.name] = tuple(by)
        self._gone.add(node.name)

    def result(self) -> Graph:
        """The graph with all merged and replaced nodes."""
        if not self._gone:
            return self.graph
        nodes = [new for node in self.graph.nodes for new in self._made.get(node.name, self._kept(node))]
        return self.graph.replace(nodes=tuple(nodes), values=self.draft.values)

    def _kept(self, node: Node) -> tuple[Node, ...]:
        return () if node.name in self._gone else (node,)

    def _is_closed(self, root: str, nodes: AbstractSet[str]) -> bool:
        if not self._gone.isdisjoint(nodes):
            return False
        inside = [name for each in nodes for name in self._by_name[each].outputs if name and name != root]
        if any(name in self.graph.outputs for name in inside):
            return False
        return all(reader.name in nodes for name in inside for reader in self.expressions.readers[name])

    def _absorbed(self, last: Node, nodes: AbstractSet[str]) -> tuple[str, ...]:
        others = [node for node in self.graph.nodes if node.name in nodes and node is not last]
        return (*last.absorbed, *(name for node in others for name in (node.name, *node.absorbed)))
