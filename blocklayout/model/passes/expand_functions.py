"""Operators that ONNX defines by simpler ones, and those of onnxruntime's own that were left as they are in reading."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from blocklayout.ir.value import Value
from blocklayout.model.graph import DependsOnDataError, Graph, Node, live_nodes
from blocklayout.model.infer import function_body, has_body
from blocklayout.model.lowering import is_native
from blocklayout.model.shapes import walk


class WriteOut(Struct, frozen=True):
    """Replaces nodes of onnxruntime's own by those that compute the same, some of which are of no file."""

    def __call__(self, graph: Graph) -> Graph:
        if not any(node.domain for node in graph.nodes):
            return graph
        from blocklayout.model.microsoft import is_known, nodes_of

        values, nodes = dict(graph.values), list[Node]()
        for node in graph.nodes:
            parts = nodes_of(node, values, graph.opset) if is_known(node.op_type) else None
            nodes += (node,) if parts is None else walk(parts, values, graph.opset)
        return graph.replace(nodes=tuple(nodes), values=values)


class ExpandFunctions(Struct, frozen=True):
    """Replaces nodes that no primitive computes by their function bodies, where ONNX has one.

    Celu becomes Elu between two scalings. A body is taken only if all of it is native: the reference computes a node
    better as a whole than half of its body. Passes that will follow, ``prepare``, may make a node native.
    """

    is_native: Callable[[Graph, Node], bool] = is_native
    prepare: tuple[Callable[[Graph], Graph], ...] = ()

    def __call__(self, graph: Graph) -> Graph:
        values = dict(graph.values)
        bodies = {node.name: self._body(graph, node, values) for node in graph.nodes}
        if not any(bodies.values()):
            return graph
        nodes = tuple(each for node in graph.nodes for each in bodies[node.name] or (node,))
        return graph.replace(nodes=nodes, values=values)

    def _body(self, graph: Graph, node: Node, values: dict[str, Value]) -> tuple[Node, ...]:
        """The nodes that do the same, their values added to ``values``; none where the node had better stay."""
        if not has_body(node, graph.opset) or self.is_native(graph, node):  # most have none, and that is quickly known
            return ()
        if self._all_are_native(_alone(graph, node, (node,), values)):
            return ()
        written = _written(graph, node, values)
        body = None if written is None else self(written)
        if body is None or not self._all_are_native(body):
            return ()
        values.update({name: value for name, value in body.values.items() if name not in values})
        return body.nodes

    def _all_are_native(self, graph: Graph) -> bool:
        for prepare in self.prepare:
            graph = prepare(graph)
        return all(self.is_native(graph, node) for node in graph.nodes)


def _alone(graph: Graph, node: Node, nodes: tuple[Node, ...], values: dict[str, Value]) -> Graph:
    """A graph of ``nodes`` alone, with the inputs and outputs of ``node``."""
    inputs = tuple(dict.fromkeys(name for name in node.inputs if name and values[name].data is None))
    outputs = tuple(name for name in node.outputs if name)
    return Graph(node.name, graph.opset, nodes, values, inputs, outputs).replace()


def _written(graph: Graph, node: Node, values: dict[str, Value]) -> Graph | None:
    """The body of a node, with the extents of everything in it."""
    body = function_body(node, [values[name] if name else None for name in node.inputs], graph.opset)
    if body is None:
        return None
    nodes, constants = body
    found = {name: values[name] for name in node.inputs if name} | {value.name: value for value in constants}
    try:
        nodes = walk(live_nodes(nodes, node.outputs), found, graph.opset)
    except DependsOnDataError:  # extents inside of the body that are known at run time only
        return None
    found |= {name: values[name] for name in node.outputs if name}
    absorbed = (node.name, *node.absorbed)
    named = tuple(each.replace(name=f"{node.name}.{each.name}", absorbed=absorbed) for each in nodes)
    return _alone(graph, node, named, found)
