"""A graph being walked with its Transposes held back: values as permutations of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from math import prod

import numpy as np
from msgspec import Struct

from blocklayout import dtypes
from blocklayout.kernels.value import Value
from blocklayout.model.graph import Graph, Node, fresh_name
from blocklayout.model.passes.rewrite import Draft

Perm = tuple[int, ...]


class Permuted(Struct, frozen=True):
    """A value that is another with its dimensions in another order, and that no node computes yet.

    Attributes:
        base: Name of the other.
        perm: For each dimension of the value, the base's that it is, as in a Transpose.
        nodes: Names of the Transposes that said so.
    """

    base: str
    perm: Perm
    nodes: tuple[str, ...]


def identity(ndims: int) -> Perm:
    """The permutation that changes nothing."""
    return tuple(range(ndims))


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes ``perm``.

    Example:
        >>> inverse((0, 2, 3, 1))
        (0, 3, 1, 2)
    """
    return tuple(perm.index(dim) for dim in range(len(perm)))


def permuted_shape(shape: Sequence[int], perm: Perm) -> tuple[int, ...]:
    """The extents of what a Transpose by ``perm`` gives."""
    return tuple(shape[dim] for dim in perm)


def moves_nothing(shape: Sequence[int], perm: Perm) -> bool:
    """Whether the elements stay in their order: only dimensions of extent 1 change places.

    Example:
        >>> moves_nothing((2, 1, 1, 8), (0, 3, 1, 2)), moves_nothing((2, 4, 1, 8), (0, 3, 1, 2))
        (True, False)
    """
    wide = [dim for dim in perm if shape[dim] != 1]
    return wide == sorted(wide) or 0 in shape


def perm_of(graph: Graph, node: Node) -> Perm:
    """What a Transpose does: the dimensions the other way round where it does not say."""
    return tuple(node.attr("perm", None) or reversed(identity(len(graph.shape(node.inputs[0])))))


def keeps_order(graph: Graph, node: Node) -> bool:
    """Whether a Transpose leaves all dimensions where they are."""
    perm = perm_of(graph, node)
    return perm == identity(len(perm))


def permuted_nbytes(value: Value, perm: Perm) -> int:
    """Bytes that move when a value is permuted."""
    return 0 if moves_nothing(value.shape, perm) else prod(value.shape) * dtypes.itemsize(value.dtype)


class Walk:
    """The new graph under construction, from the first node to the last.

    Args:
        graph: The old one.
        kept: Names of nodes to leave in the order in which they are written.
        arrays: Contents of constants that other walks through this graph made; grows.

    Attributes:
        draft: Values of the new graph.
        nodes: Nodes of the new graph.
        views: By name in the old graph, values that are permutations so far.
        turning: By name, the nodes that work in another order now, and the bytes that had to be turned for it.
    """

    def __init__(self, graph: Graph, kept: Collection[str], arrays: dict[Hashable, np.ndarray]) -> None:
        self.graph = graph
        self.kept = kept
        self.opset = graph.opset
        self.readers = graph.readers()
        self.draft = Draft(graph)
        self.nodes: list[Node] = []
        self.views: dict[str, Permuted] = {}
        self.turning: dict[str, int] = {}
        self._arrays = arrays
        self._names = {node.name for node in graph.nodes}
        self._held: set[str] = set()
        self._written: set[str] = set()
        self._computed: dict[tuple[str, Perm], str] = {}
        self._turned: dict[tuple[str, Perm], str] = {}
        self._turned_nbytes = 0
        self._ranked: dict[tuple[str, int], str] = {}
        self._replaced: dict[str, Node] = {}

    def current(self, node: Node) -> Node:
        """A node of the old graph, with the sources it was given since."""
        return self._replaced.get(node.name, node)

    def replace_source(self, node: Node, index: int, name: str) -> None:
        """Give a node that is still to come another source."""
        inputs = list(self.current(node).inputs)
        inputs[index] = name
        self._replaced[node.name] = self.current(node).replace(inputs=tuple(inputs))

    def of_rank(self, name: str, ndims: int) -> str:
        """A value with extents of 1 in front, up to a rank."""
        key = (name, ndims)
        if key not in self._ranked:
            value = self.draft.values[name]
            shape = (1,) * (ndims - len(value.shape)) + value.shape
            if value.data is not None:
                self._ranked[key] = self.draft.constant(f"{name}.{ndims}d", value.data.reshape(shape))
            else:
                self._ranked[key] = self._reshape(name, shape, fresh_name(f"{name}.{ndims}d", self.draft.values))
        return self._ranked[key]

    def shape(self, name: str) -> tuple[int, ...]:
        """The extents of a value of the old graph."""
        return self.graph.shape(name)

    def constant(self, name: str) -> np.ndarray | None:
        """The contents of a constant; ``None`` for an absent or computed value."""
        return self.draft.values[name].data if name else None

    def hold(self, node: Node) -> None:
        """Take a Transpose out; what it gives is a permutation."""
        source, result = node.inputs[0], node.outputs[0]
        perm = perm_of(self.graph, node)
        view = self.views.get(source, Permuted(source, identity(len(perm)), ()))
        turned = tuple(view.perm[dim] for dim in perm)
        self._held.add(node.name)
        self.views[result] = Permuted(view.base, turned, (*view.nodes, node.name, *node.absorbed))

    def enter(self, name: str, perm: Perm) -> None:
        """Turn an input of the graph at once; whoever reads it sees that turned back."""
        whole = Permuted(name, perm, ())
        turned = self._compute(whole, fresh_name(f"{name}.permuted", self.draft.values))
        self.views[name] = Permuted(turned, inverse(perm), ())
        self._computed[turned, inverse(perm)] = name
        self._written.add(name)

    def moved_nbytes(self, name: str) -> int:
        """Bytes that move when a permutation is computed, all others being where they are."""
        view = self.views[name]
        return permuted_nbytes(self.draft.values[view.base], view.perm)

    def read(self, name: str) -> str:
        """A value that nodes may read for ``name``: itself, or its like, computed now where it was held back."""
        view = self.views.get(name)
        if view is None:
            return name
        if view.perm == identity(len(view.perm)):
            return view.base
        return self._computed.get((view.base, view.perm)) or self._compute(view, name)

    def give(self, name: str) -> None:
        """Compute an output of the graph under its own name."""
        view = self.views.get(name)
        if view is not None and name not in self._written:
            self._compute(view, name)

    def keep(self, node: Node) -> None:
        """A node as it was, its sources computed."""
        inputs = tuple(self.read(name) if name else "" for name in node.inputs)
        self.nodes.append(node if inputs == node.inputs else node.replace(inputs=inputs))

    def put(self, node: Node, inputs: Sequence[str], attrs: dict[str, object], perm: Perm) -> None:
        """A node on other sources, each of its results permuted by ``perm`` being what the old one gave."""
        absorbed = tuple(n for name in node.inputs if name in self.views for n in self.views[name].nodes)
        outputs = tuple(self._result(name, perm, absorbed) if name else "" for name in node.outputs)
        self.nodes.append(node.replace(inputs=tuple(inputs), outputs=outputs, attrs=attrs))
        self.turning[node.name], self._turned_nbytes = self._turned_nbytes, 0

    def turned(self, name: str, perm: Perm) -> str:
        """A value of full rank with its dimensions in the order ``perm``: a constant at once, else by a node."""
        key = (name, perm)
        if key not in self._turned:
            data = self.constant(name)
            self._turned[key] = (
                self._turn(name, perm) if data is None else self.make_constant(name, perm, lambda: data.transpose(perm))
            )
        return self._turned[key]

    def make_constant(self, name: str, how: Hashable, make: Callable[[], np.ndarray]) -> str:
        """Add a constant that is another, permuted; ``how`` tells it from others made of that one."""
        if (name, how) not in self._arrays:
            self._arrays[name, how] = np.ascontiguousarray(make())
        return self.draft.constant(f"{name}.permuted", self._arrays[name, how])

    def _turn(self, name: str, perm: Perm) -> str:
        view = self.views.get(name, Permuted(name, identity(len(perm)), ()))
        whole = Permuted(view.base, tuple(view.perm[dim] for dim in perm), view.nodes)
        if (whole.base, whole.perm) in self._computed:
            return self._computed[whole.base, whole.perm]
        self._turned_nbytes += permuted_nbytes(self.draft.values[view.base], whole.perm)
        return self._compute(whole, fresh_name(f"{name}.permuted", self.draft.values))

    def _result(self, name: str, perm: Perm, nodes: tuple[str, ...]) -> str:
        if perm == identity(len(perm)):
            return name
        value = self.draft.values[name]
        new = fresh_name(f"{name}.permuted", self.draft.values)
        self.draft.values[new] = Value(new, permuted_shape(value.shape, inverse(perm)), value.dtype)
        self.views[name] = Permuted(new, perm, nodes)
        return new

    def _reshape(self, name: str, shape: tuple[int, ...], result: str) -> str:
        self.draft.values[result] = Value(result, shape, self.draft.values[name].dtype)
        extents = self.draft.constant(f"{result}.shape", np.array(shape, np.int64))
        allow_zero = {"allowzero": 1} if 0 in shape else {}
        self.nodes.append(Node(self._node_name(result), "Reshape", (self.read(name), extents), (result,), allow_zero))
        return result

    def _node_name(self, wanted: str) -> str:
        name = fresh_name(wanted, self._names)
        self._names.add(name)
        return name

    def _compute(self, view: Permuted, name: str) -> str:
        base = self.draft.values[view.base]
        shape = permuted_shape(base.shape, view.perm)
        self._written.add(name)
        self._computed[view.base, view.perm] = name
        self.draft.values.setdefault(name, Value(name, shape, base.dtype))
        own = next((node for node in reversed(view.nodes) if node in self._held), "")
        self._held.discard(own)
        node_name = own or self._node_name(f"{name}.transpose")
        absorbed = tuple(dict.fromkeys(node for node in view.nodes if node != node_name))
        if view.perm == identity(len(view.perm)):
            node = Node(node_name, "Identity", (view.base,), (name,), {})
        elif moves_nothing(base.shape, view.perm) and 0 not in shape:
            extents = self.draft.constant(f"{name}.shape", np.array(shape, np.int64))
            node = Node(node_name, "Reshape", (view.base, extents), (name,), {})
        else:
            node = Node(node_name, "Transpose", (view.base,), (name,), {"perm": view.perm})
        self.nodes.append(node.replace(absorbed=absorbed))
        return name


Rule = Callable[[Walk, Node], bool]
"""Puts a node that gives what another gave, permuted, and says whether it did; some source of it is permuted."""
