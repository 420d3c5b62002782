"""Networks as channels-last frameworks export them: every operator between Transposes."""

from __future__ import annotations

from msgspec.structs import replace

from blocklayout.ir import Value
from blocklayout.model import Graph, Node

Perm = tuple[int, ...]


def to_first(ndims: int) -> Perm:
    """Channels-last to channels-first."""
    return (0, ndims - 1, *range(1, ndims - 1))


def to_last(ndims: int) -> Perm:
    """Channels-first to channels-last."""
    return (0, *range(2, ndims), 1)


def wrapped(graph: Graph) -> Graph:
    """The same network over channels-last images, in which every operator has Transposes around it.

    Each image an operator reads is transposed for it alone, and each it gives is transposed back. Inputs and
    outputs that are images are channels-last, under their old names.
    """
    return _Wrapping(graph).result()


class _Wrapping:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = dict(graph.values)
        self.nodes: list[Node] = []

    def result(self) -> Graph:
        for name in filter(self._is_image, self.graph.inputs):
            self.values[name] = self._permuted(name, name, to_last(len(self.graph.shape(name))))
        for node in self.graph.nodes:
            self._wrap(node)
        return self.graph.replace(nodes=tuple(self.nodes), values=self.values).validate()

    def _is_image(self, name: str) -> bool:
        return bool(name) and self.graph.constant(name) is None and 3 <= len(self.graph.shape(name)) <= 5

    def _permuted(self, name: str, new: str, perm: Perm) -> Value:
        value = self.graph.values[name]
        return replace(value, name=new, shape=tuple(value.shape[axis] for axis in perm))

    def _wrap(self, node: Node) -> None:
        """Values keep their names where they are channels-last; the operator's own are new."""
        inputs = list(node.inputs)
        for index, name in enumerate(node.inputs):
            if self._is_image(name):
                inputs[index] = f"{node.name}/{index}"
                self._transpose(name, inputs[index], to_first(len(self.graph.shape(name))), inputs[index])
        outputs = [f"{node.name}/{name}" if self._is_image(name) else name for name in node.outputs]
        self.nodes.append(node.replace(inputs=tuple(inputs), outputs=tuple(outputs)))
        for name, output in zip(node.outputs, outputs, strict=True):
            if self._is_image(name):
                self.values[output] = replace(self.graph.values[name], name=output)
                perm = to_last(len(self.graph.shape(name)))
                self.values[name] = self._permuted(name, name, perm)
                self.nodes.append(Node(f"{output}/back", "Transpose", (output,), (name,), {"perm": perm}))

    def _transpose(self, source: str, result: str, perm: Perm, name: str) -> None:
        self.values[result] = replace(self.graph.values[source], name=result)
        self.nodes.append(Node(name, "Transpose", (source,), (result,), {"perm": perm}))
