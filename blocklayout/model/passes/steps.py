"""One node as several in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.kernels.value import Value
from blocklayout.model.graph import Node
from blocklayout.model.passes.merging import Merging


class Steps:
    """What takes the place of a node, written step by step; views of constants become constants.

    Args:
        merging: The graph that is rewritten.
        node: The node that goes. The last step gets its name and its output.
    """

    def __init__(self, merging: Merging, node: Node) -> None:
        self._merging = merging
        self._node = node
        self._nodes: list[Node] = []

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a value of the graph or of a step."""
        return self._merging.draft.values[name].shape

    def add(
        self, op_type: str, inputs: Sequence[str], shape: tuple[int, ...], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """A step that computes a value of these extents; gives the value's name."""
        name = self._merging.fresh_name(f"{self._node.name}.{op_type.lower()}")
        self._merging.draft.values[name] = Value(name, shape, self._dtype)
        absorbed = (self._node.name, *self._node.absorbed)
        self._nodes.append(Node(name, op_type, tuple(inputs), (name,), attrs or {}, absorbed=absorbed))
        return name

    def constant(self, array: np.ndarray, what: str) -> str:
        """The name of a new constant."""
        return self._merging.draft.constant(f"{self._node.name}.{what}", array)

    def number(self, number: float, what: str) -> str:
        """The name of a new scalar of the node's data type."""
        return self.constant(np.asarray(number).astype(to_numpy(self._dtype)), what)

    def reshape(self, name: str, shape: tuple[int, ...]) -> str:
        """The same elements with other extents."""
        if self.shape(name) == shape:
            return name
        data = self._merging.draft.values[name].data
        if data is not None:
            return self.constant(data.reshape(shape), "reshaped")
        if not shape:
            return self.add("Squeeze", (name,), shape)
        extents = self.constant(np.array(shape, np.int64), "shape")
        # without it a Reshape reads 0 as "the extent before"
        return self.add("Reshape", (name, extents), shape, {"allowzero": 1} if 0 in shape else {})

    def transpose(self, name: str, perm: tuple[int, ...]) -> str:
        """The dimensions in another order."""
        data = self._merging.draft.values[name].data
        if data is not None:
            return self.constant(data.transpose(perm), "transposed")
        return self.add("Transpose", (name,), tuple(self.shape(name)[axis] for axis in perm), {"perm": perm})

    def finish(self) -> None:
        """Let the last step compute what the node did."""
        last = self._nodes[-1].replace(
            name=self._node.name, outputs=self._node.outputs[:1], absorbed=self._node.absorbed
        )
        self._merging.replace(self._node, [*self._nodes[:-1], last])

    @property
    def _dtype(self) -> str:
        return self._merging.graph.values[self._node.outputs[0]].dtype
