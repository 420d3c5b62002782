"""A graph with regions of it channels last, in ONNX words that every runtime reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.ir import Role
from blocklayout.layout.permutation import inverse, permuted
from blocklayout.model.graph import Graph, Node, fresh_name
from blocklayout.model.passes.rewrite import Draft
from blocklayout.model.schemas import to_proto

if TYPE_CHECKING:
    from onnx import FunctionProto

    from blocklayout.ir import NodeInfo
    from blocklayout.ir.facts import Transposed
    from blocklayout.layout.permutation import Perm

DOMAIN = "blocklayout.channels_last"
"""Of operators whose first source and result are channels last, where ONNX has them channels first."""

_RANKS = range(3, 6)
_FIRST_ELSEWHERE = frozenset(("Resize", "Upsample"))
"""Operators that ONNX has on any axes, and runtimes in some modes for channels first alone."""


def to_first(ndims: int) -> Perm:
    """The permutation that brings channels to the front.

    Example:
        >>> to_first(4)
        (0, 3, 1, 2)
    """
    return (0, ndims - 1, *range(1, ndims - 1))


def channels_last(graph: Graph, formats: Mapping[str, bool], *, functions: bool = True) -> Graph:
    """The same network with values channels last, and Transposes at the borders of such regions.

    A node in a region works on the permuted axes where its operator can do that; one that ONNX has for channels first
    alone becomes a node of ``DOMAIN``, see :func:`functions_of`, unless there may be no ``functions``. Inputs, outputs
    and all other nodes stay. ``formats`` tells by name whether values are to be channels last; others follow their
    source.
    """
    return _Rewriting(graph, formats, has_functions=functions).rewritten()


def functions_of(graph: Graph) -> Iterator[FunctionProto]:
    """Bodies of the nodes of ``DOMAIN``: a Transpose, the operator as ONNX has it, and a Transpose back."""
    from onnx import helper

    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.domain == DOMAIN:
            found.setdefault(node.op_type, []).append(node)
    opsets = [helper.make_opsetid("", graph.opset)]
    for op_type, nodes in found.items():
        name = op_type.removeprefix(f"{DOMAIN}.")
        ndims = len(graph.shape(nodes[0].outputs[0]))
        inputs = ["X", *(f"input_{place}" for place in range(1, max(len(node.inputs) for node in nodes)))]
        attrs = {attr.name: attr for node in nodes for attr in to_proto(node).attribute}
        inner = helper.make_node(name.rpartition("_")[0], ["first", *inputs[1:]], ["result"])
        for attr in attrs.values():
            inner.attribute.add(name=attr.name, type=attr.type, ref_attr_name=attr.name)
        body = [
            helper.make_node("Transpose", ["X"], ["first"], perm=to_first(ndims)),
            inner,
            helper.make_node("Transpose", ["result"], ["Y"], perm=inverse(to_first(ndims))),
        ]
        yield helper.make_function(DOMAIN, name, inputs, ["Y"], body, opsets, list(attrs))


class _Rewriting:
    """One walk over a graph: by name, values' channels-last counterparts (``last``), and those there as they were."""

    def __init__(self, graph: Graph, formats: Mapping[str, bool], *, has_functions: bool) -> None:
        self._graph = graph
        self._has_functions = has_functions
        self._formats = formats
        self._draft = Draft(graph)
        self._nodes: list[Node] = []
        self._names = {node.name for node in graph.nodes}
        self._constants: dict[tuple[str, int], str] = {}
        self.last: dict[str, str] = {}
        self.first = {*graph.inputs, *(name for name, value in graph.values.items() if value.is_constant)}

    def rewritten(self) -> Graph:
        for node in self._graph.nodes:
            if not self._in_region(node):
                for name in filter(None, node.inputs):
                    self._as_first(name)
                self._nodes.append(node)
                self.first.update(filter(None, node.outputs))
        for name in self._graph.outputs:
            self._as_first(name)
        return self._graph.replace(nodes=tuple(self._nodes), values=self._draft.values).validate()

    def _in_region(self, node: Node) -> bool:
        """Add a node on channels-last values, if it is to be and can be."""
        info = self._graph.info(node)
        leader = self._leader(node)
        if node.domain or leader is None or node.facts.permutation(info) is not None:
            return False
        ndims = len(self._graph.shape(leader))
        turned = self._turned(node, info, to_first(ndims))
        outputs = [name for name in node.outputs if name]
        if any(len(self._graph.shape(name)) != ndims for name in outputs):
            is_wanted = leader in self.last and turned is not None and turned.result == tuple(range(len(turned.result)))
            return turned is not None and is_wanted and self._add(node, turned, ndims)
        follows = leader in self.last and turned is not None
        if not any(self._formats.get(name, follows) for name in outputs):
            return False
        if turned is not None and turned.result == to_first(ndims):
            return self._add(node, turned, ndims)
        role = getattr(node.facts, "role", Role.VIEW)  # primitives compute what has one and is more than a view
        can_be_one = self._has_functions and leader == node.inputs[0] and len(outputs) == 1 and role is not Role.VIEW
        return can_be_one and self._add_function(node, ndims)

    def _leader(self, node: Node) -> str | None:
        """The first computed input of full rank, if it is of one that has channels."""
        computed = [name for name in node.inputs if name and not self._graph.values[name].is_constant]
        leader = max(computed, key=lambda name: len(self._graph.shape(name)), default=None)
        return leader if leader is not None and len(self._graph.shape(leader)) in _RANKS else None

    def _turned(self, node: Node, info: NodeInfo, perm: Perm) -> Transposed | None:
        """The node on permuted axes, where nothing but its sources has to be permuted for it."""
        turned = None if node.op_type in _FIRST_ELSEWHERE else node.facts.transposed(info, perm)
        if turned is None or turned.source is not None or turned.order is not None or 0 not in turned.sources:
            return None
        values = [self._graph.values[node.inputs[index]] for index in turned.sources]
        full = len(perm)
        can_follow = (value.is_constant or len(value.shape) == full or prod(value.shape) == 1 for value in values)
        return turned if all(can_follow) else None

    def _add(self, node: Node, turned: Transposed, ndims: int) -> bool:
        as_last = partial(self._as_last, ndims=ndims)
        moved = self._draft.turned(node, turned, "channels_last", as_last, self._as_first)
        is_last = turned.result == to_first(ndims)
        outputs = tuple(self._new_last(name) if name and is_last else name for name in node.outputs)
        if not is_last:
            self.first.update(filter(None, outputs))
        self._nodes.append(moved.replace(outputs=outputs))
        return True

    def _add_function(self, node: Node, ndims: int) -> bool:
        """Add a node of ``DOMAIN``."""
        source, *others = node.inputs
        inputs = (self._as_last(source, ndims), *(self._as_first(name) if name else "" for name in others))
        # there is a function for each rank
        op_type, outputs = f"{DOMAIN}.{node.op_type}_{ndims - 2}D", tuple(map(self._new_last, node.outputs[:1]))
        self._nodes.append(node.replace(op_type=op_type, domain=DOMAIN, inputs=inputs, outputs=outputs))
        return True

    def _as_first(self, name: str) -> str:
        if name not in self.first:
            self._transpose(self.last[name], name, to_first(len(self._graph.shape(name))))
            self.first.add(name)
        return name

    def _as_last(self, name: str, ndims: int) -> str:
        value = self._graph.values[name]
        if prod(value.shape) == 1 and len(value.shape) < ndims:
            return self._as_first(name)
        if value.data is not None:
            return self._constant_last(name, value.data, ndims)
        if name not in self.last:
            self._transpose(name, self._new_last(name), inverse(to_first(ndims)))
        return self.last[name]

    def _constant_last(self, name: str, array: np.ndarray, ndims: int) -> str:
        if (name, ndims) not in self._constants:
            full = array.reshape((1,) * (ndims - array.ndim) + array.shape)
            turned = np.ascontiguousarray(full.transpose(inverse(to_first(ndims))))
            self._constants[name, ndims] = self._draft.constant(f"{name}.channels_last", turned)
        return self._constants[name, ndims]

    def _new_last(self, name: str) -> str:
        value = self._graph.values[name]
        shape = permuted(value.shape, inverse(to_first(len(value.shape))))
        self.last[name] = self._draft.value(f"{name}.channels_last", shape, value.dtype)
        return self.last[name]

    def _transpose(self, source: str, result: str, perm: Sequence[int]) -> None:
        name = fresh_name(f"{result}.transpose", self._names)
        self._names.add(name)
        self._nodes.append(Node(name, "Transpose", (source,), (result,), {"perm": tuple(perm)}))
