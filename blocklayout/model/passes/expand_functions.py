"""Operators that ONNX defines by simpler ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blocklayout.errors import BlockLayoutError
from blocklayout.kernels.value import Value
from blocklayout.model.function_body import function_body
from blocklayout.model.graph import Graph, Node, live_nodes
from blocklayout.model.schemas import schema_or_none
from blocklayout.model.shapes import walk


@dataclass(frozen=True)
class ExpandFunctions:
    """Replaces nodes that nothing here computes by their function bodies, where ONNX gives one.

    Celu becomes Elu between two scalings. A body is taken only if everything in it can be computed.

    Attributes:
        is_supported: Whether there is an operator for an op type.
    """

    is_supported: Callable[[str], bool]

    def __call__(self, graph: Graph) -> Graph:
        if all(self.is_supported(node.op_type) for node in graph.nodes):
            return graph
        values = dict(graph.values)
        nodes: list[Node] = []
        for node in graph.nodes:
            body = () if self.is_supported(node.op_type) else self._body(graph, node, values)
            nodes += body or (node,)
        return graph.replace(nodes=tuple(nodes), values=values)

    def _body(self, graph: Graph, node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
        """The nodes that do the same, their values added to ``values``; none if there is no such body."""
        if schema_or_none(node.op_type, graph.opset) is None:
            return ()
        body = function_body(node, [values[name] if name else None for name in node.inputs], graph.opset)
        if body is None:
            return ()
        nodes, constants = body
        found = {name: values[name] for name in node.inputs if name} | {value.name: value for value in constants}
        try:
            nodes = walk(live_nodes(nodes, node.outputs), found, graph.opset)
        except BlockLayoutError:
            return ()
        if not all(self.is_supported(each.op_type) for each in nodes):
            return ()
        values.update({name: value for name, value in found.items() if name not in values})
        absorbed = (node.name, *node.absorbed)
        return tuple(each.replace(name=f"{node.name}.{each.name}", absorbed=absorbed) for each in nodes)
