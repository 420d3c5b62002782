"""Transposes: moved behind the operators that do not need them, and those in a row made one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import prod

import numpy as np
from msgspec import Struct

from blocklayout import dtypes
from blocklayout.ir import NodeInfo, Transposed
from blocklayout.ir.value import Value
from blocklayout.layout.permutation import Perm, identity, inverse, moves_nothing, permuted
from blocklayout.model.graph import Graph, Node, fresh_name, live_nodes
from blocklayout.model.passes.rewrite import Draft


class PushTransposes(Struct, frozen=True):
    """Lets Transposes sink through the operators that can work in any order of dimensions.

    Networks exported from channels-last frameworks wrap each convolution in two of them. Behind a convolution
    they sink until they meet the next one's and cancel; so the operators between come to stand beside the
    convolution, where they can be folded into it or run with it. Where operands disagree, the smaller ones are
    transposed. The Transposes that are left stand where they move the least bytes: before a value grows or is read by
    several operators that need an order, else as far down as they sink. An input that is read transposed is transposed
    at once. Never do more bytes move than before.
    """

    def __call__(self, graph: Graph) -> Graph:
        if all(permutation(graph, node) is None for node in graph.nodes):
            return graph
        readers = graph.readers()
        orders = {name: _order_wanted(graph, readers, name) for name in graph.inputs}
        entered = {name: perm for name, perm in orders.items() if perm is not None}  # inputs that are read transposed
        arrays: dict[Hashable, np.ndarray] = {}
        found = [*_ways(graph, entered, arrays)]
        if entered and moved_nbytes(found[-1]):
            found += _ways(graph, {}, arrays)
        return min(*found, graph, key=moved_nbytes)


def permutation(graph: Graph, node: Node) -> Perm | None:
    """The permutation of dimensions that is all a node does; ``None`` of other nodes."""
    return node.facts.permutation(graph.info(node))


def moved_nbytes(graph: Graph) -> int:
    """Bytes that the Transposes of a graph move."""
    perms = ((node, permutation(graph, node)) for node in graph.nodes)
    return sum(_permuted_nbytes(graph.values[node.inputs[0]], perm) for node, perm in perms if perm is not None)


def _permuted_nbytes(value: Value, perm: Perm) -> int:
    return 0 if moves_nothing(value.shape, perm) else prod(value.shape) * dtypes.itemsize(value.dtype)


def _ways(graph: Graph, entered: Mapping[str, Perm], arrays: dict[Hashable, np.ndarray]) -> Iterator[Graph]:
    """With all Transposes as far down as they sink; then with them where they move less, if that is elsewhere."""
    walk = _Walk(graph, (), arrays)
    pushed = walk.result(entered)
    yield pushed
    if not moved_nbytes(pushed):
        return
    written = sinks_side(_prices(walk), _TURNED, _WRITTEN)  # by a cut where values cross in fewest bytes
    kept = frozenset(name for name in walk.turning if ("node", name) in written)
    if kept:
        yield _Walk(graph, kept, arrays).result(entered)


def _order_wanted(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Perm | None:
    """The permutation by which a value is read, at once or behind operators that work in any order."""
    while name not in graph.outputs and readers[name]:
        perms = {permutation(graph, node) for node in readers[name]}
        if perms != {None}:
            return perms.pop() if len(perms) == 1 else None
        [reader, *more] = readers[name]
        has_one_source = all(graph.constant(other) is not None for other in reader.inputs if other not in ("", name))
        is_written = bool(reader.outputs[0])  # else only others of its results are
        if more or not has_one_source or not is_written or not _works_in_any_order(graph, reader, name):
            return None
        name = reader.outputs[0]
    return None


def _works_in_any_order(graph: Graph, node: Node, name: str) -> bool:
    """Whether a node, its source ``name`` transposed, has the same result, transposed likewise."""
    backwards = identity(len(graph.shape(name)))[::-1]
    turned = node.facts.transposed(graph.info(node), backwards)
    if turned is None or turned.order is not None or turned.source is not None or turned.result != backwards:
        return False
    return name in (node.inputs[index] for index in turned.sources)


class _Permuted(Struct, frozen=True):
    """A value that is ``base`` transposed, and that no node computes yet; it stands for the Transposes ``nodes``."""

    base: str
    perm: Perm
    nodes: tuple[str, ...]


class _Walk:
    """The new graph under construction, from the first node to the last, with Transposes held back.

    Nodes named in ``kept`` are left in the order in which they are written; ``arrays``, contents of constants that
    walks through this graph made, grow. ``views`` are the values that are held back, by their names in the old graph;
    ``turning`` are, by name, the nodes that work in another order now, and the bytes that had to be moved for it.
    """

    def __init__(self, graph: Graph, kept: Collection[str], arrays: dict[Hashable, np.ndarray]) -> None:
        self.graph = graph
        self.kept = kept
        self.readers = graph.readers()
        self.draft = Draft(graph)
        self.nodes: list[Node] = []
        self.views: dict[str, _Permuted] = {}
        self.turning: dict[str, int] = {}
        self._arrays = arrays
        self._names = {node.name for node in graph.nodes}
        self._held: set[str] = set()
        self._written: set[str] = set()
        self._computed: dict[tuple[str, Perm | int], str] = {}  # by their base, and the permutation or the rank
        self._turned: dict[tuple[str, Perm], str] = {}
        self._turned_nbytes = 0
        self._replaced: dict[str, Node] = {}  # nodes of the old graph, with other sources

    def result(self, entered: Mapping[str, Perm]) -> Graph:
        """The new graph: from inputs to outputs, Transposes are held back but where an operator needs them."""
        for name, perm in entered.items():
            self._enter(name, perm)
        for old in self.graph.nodes:
            node = self._replaced.get(old.name, old)
            held = permutation(self.graph, old)
            if held is not None:
                self._hold(node, held)
            elif not self._move(node):
                self._keep(node)
        for name in self.graph.outputs:
            if name in self.views and name not in self._written:
                self._compute(self.views[name], name)
        equal = {name: view.base for name, view in self.views.items() if view.perm == identity(len(view.perm))}
        after = self.graph.replace(nodes=live_nodes(self.nodes, self.graph.outputs), values=self.draft.values)
        return after.with_renamed(equal)

    def _hold(self, node: Node, perm: Perm) -> None:
        """Take a Transpose out; its result is a permutation."""
        source, result = node.inputs[0], node.outputs[0]
        view = self.views.get(source, _Permuted(source, identity(len(perm)), ()))
        self._held.add(node.name)
        self.views[result] = _Permuted(view.base, permuted(view.perm, perm), (*view.nodes, node.name, *node.absorbed))

    def _enter(self, name: str, perm: Perm) -> None:
        """Transpose an input of the graph at once; its readers see that transposed back."""
        whole = _Permuted(name, perm, ())
        turned = self._compute(whole, fresh_name(f"{name}.permuted", self.draft.values))
        self.views[name] = _Permuted(turned, inverse(perm), ())
        self._computed[turned, inverse(perm)] = name
        self._written.add(name)

    def moved_nbytes(self, name: str) -> int:
        """Bytes that move when a permutation is computed, all others being where they are."""
        view = self.views[name]
        return _permuted_nbytes(self.draft.values[view.base], view.perm)

    def _keep(self, node: Node) -> None:
        """Add a node as it was, its sources computed."""
        inputs = tuple(self._read(name) if name else "" for name in node.inputs)
        self.nodes.append(node if inputs == node.inputs else node.replace(inputs=inputs))

    def _move(self, node: Node) -> bool:
        """Add a node in the order of its sources that moves least; ``False`` if it is better, or must be, kept."""
        perms = dict.fromkeys(self.views[name].perm for name in node.inputs if name in self.views)
        if not perms or node.name in self.kept:
            return False
        info = node.info(self.draft.values, self.graph.opset)
        found = [(self._n_moved(node, ways[0], ways[1].sources), ways) for ways in self._ways_of(node, info, perms)]
        if not found:
            return False
        n_moved, (perm, turned) = min(found, key=lambda each: each[0])
        if len(turned.sources) > 1 and n_moved >= self._n_moved(node, identity(len(perm)), turned.sources):
            return False
        if turned.order is not None and not self._reorder_weights(node, turned.order):
            return False
        self._put(node, turned, turned.source or perm)
        return True

    def _ways_of(self, node: Node, info: NodeInfo, perms: Collection[Perm]) -> Iterator[tuple[Perm, Transposed]]:
        for perm in perms:
            turned = node.facts.transposed(info, perm)
            if turned is not None and any(self._is_permuted(node.inputs[index], perm) for index in turned.sources):
                yield perm, turned

    def _is_permuted(self, name: str, perm: Perm) -> bool:
        return name in self.views and self.views[name].perm == perm

    def _n_moved(self, node: Node, perm: Perm, sources: Sequence[int]) -> int:
        """Elements that have to move for all sources to be permuted by ``perm``; those of constants cost nothing."""
        return sum(self._n_turned(node.inputs[index], perm) for index in sources)

    def _n_turned(self, name: str, perm: Perm) -> int:
        shape = self.graph.shape(name)
        if self.graph.constant(name) is not None or self._is_permuted(name, perm):
            return 0
        if name in self.views and len(shape) == len(perm):
            return prod(shape)
        full = (1,) * (len(perm) - len(shape)) + shape
        return 0 if moves_nothing(full, inverse(perm)) else prod(shape)

    def _reorder_weights(self, node: Node, order: np.ndarray) -> bool:
        """Make up for another order of elements in rows: the only product that reads them gets other weights."""
        [name, *_] = node.outputs
        readers = self.readers[name]
        if len(readers) != 1 or name in self.graph.outputs or readers[0].inputs.index(name) != 0:
            return False
        [product] = readers
        found = product.facts.contracted(self.graph.info(product))
        weights = None if found is None else self.graph.constant(product.inputs[found[0]])
        if found is None or weights is None:
            return False
        index, dim = found
        current = self._replaced.get(product.name, product)
        inputs = list(current.inputs)
        inputs[index] = self._constant(inputs[index], (dim, order.tobytes()), lambda: weights.take(order, dim))
        self._replaced[product.name] = current.replace(inputs=tuple(inputs))
        return True

    def _put(self, node: Node, turned: Transposed, perm: Perm) -> None:
        """Add a rewritten node, its sources computed as permutations by ``perm``."""
        moved = self.draft.turned(node, turned, "permuted", partial(self._as_base, perm=perm), self._read)
        absorbed = tuple(n for name in node.inputs if name in self.views for n in self.views[name].nodes)
        outputs = tuple(self._permuted_result(name, turned.result, absorbed) if name else "" for name in node.outputs)
        self.nodes.append(moved.replace(outputs=outputs))
        self.turning[node.name], self._turned_nbytes = self._turned_nbytes, 0

    def _read(self, name: str) -> str:
        """The name under which nodes read a value: its own, or its like's, computed now where it was held back."""
        view = self.views.get(name)
        if view is None:
            return name
        if view.perm == identity(len(view.perm)):
            return view.base
        return self._computed.get((view.base, view.perm)) or self._compute(view, name)

    def _as_base(self, name: str, perm: Perm) -> str:
        """The value that is ``name`` when it is permuted by ``perm``."""
        if self._is_permuted(name, perm):
            return self.views[name].base
        shape = self.graph.shape(name)
        if prod(shape) == 1 and len(shape) <= len(perm):
            return self._read(name)
        if len(shape) < len(perm):
            name = self._of_rank(name, len(perm))
        return self._transposed(name, inverse(perm))

    def _of_rank(self, name: str, ndims: int) -> str:
        key = (name, ndims)
        if key not in self._computed:
            self._computed[key], reshape = self.draft.of_rank(name, ndims)
            if reshape is not None:
                inputs = (self._read(name), *reshape.inputs[1:])
                self.nodes.append(reshape.replace(name=self._node_name(reshape.name), inputs=inputs))
        return self._computed[key]

    def _transposed(self, name: str, perm: Perm) -> str:
        """A value of full rank transposed: a constant at once, else by a node."""
        key = (name, perm)
        if key not in self._turned:
            data = self.draft.values[name].data
            if data is None:
                self._turned[key] = self._transpose(name, perm)
            else:
                self._turned[key] = self._constant(name, perm, lambda: np.transpose(data, perm))
        return self._turned[key]

    def _constant(self, name: str, how: Hashable, make: Callable[[], np.ndarray]) -> str:
        """Add a constant that is another one, rearranged; ``how`` is the key of the rearrangement."""
        if (name, how) not in self._arrays:
            self._arrays[name, how] = np.ascontiguousarray(make())
        return self.draft.constant(f"{name}.permuted", self._arrays[name, how])

    def _transpose(self, name: str, perm: Perm) -> str:
        view = self.views.get(name, _Permuted(name, identity(len(perm)), ()))
        whole = _Permuted(view.base, permuted(view.perm, perm), view.nodes)
        if (whole.base, whole.perm) in self._computed:
            return self._computed[whole.base, whole.perm]
        self._turned_nbytes += _permuted_nbytes(self.draft.values[view.base], whole.perm)
        return self._compute(whole, fresh_name(f"{name}.permuted", self.draft.values))

    def _permuted_result(self, name: str, perm: Perm, nodes: tuple[str, ...]) -> str:
        if perm == identity(len(perm)):
            return name
        value = self.draft.values[name]
        new = self.draft.value(f"{name}.permuted", permuted(value.shape, inverse(perm)), value.dtype)
        self.views[name] = _Permuted(new, perm, nodes)
        return new

    def _node_name(self, wanted: str) -> str:
        name = fresh_name(wanted, self._names)
        self._names.add(name)
        return name

    def _compute(self, view: _Permuted, name: str) -> str:
        base = self.draft.values[view.base]
        shape = permuted(base.shape, view.perm)
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


UNCUT = 1 << 62
"""The price of an edge that must not be cut."""

_TURNED, _WRITTEN = "turned", "written"

_Prices = dict[tuple[Hashable, Hashable], int]


def _prices(walk: _Walk) -> _Prices:
    prices: _Prices = {(("node", name), _WRITTEN): nbytes for name, nbytes in walk.turning.items()}
    producers = walk.graph.producers()
    for name in walk.views:
        writer = _side(walk, producers[name]) if name in producers else _WRITTEN
        if name in walk.graph.outputs:
            _price_crossing(prices, walk, name, (writer, _WRITTEN))
        for node in walk.readers[name]:
            _price_crossing(prices, walk, name, (writer, _side(walk, node)))
            is_led = isinstance(writer, tuple) and sum(name in walk.views for name in set(node.inputs)) == 1
            if is_led and node.name in walk.turning:
                # of a node that is left as it is written, no reader has a permutation to follow
                prices[("node", node.name), writer] = UNCUT
    return prices


def _side(walk: _Walk, node: Node) -> Hashable:
    """A node's side where that is settled, else the node's place in the cut."""
    if permutation(walk.graph, node) is not None:
        return _TURNED
    return ("node", node.name) if node.name in walk.turning else _WRITTEN


def _price_crossing(prices: _Prices, walk: _Walk, name: str, ends: tuple[Hashable, Hashable]) -> None:
    """A value is computed once in the other order, however many read it there."""
    writer, reader = ends
    if writer != _WRITTEN:
        prices[writer, ("written", name)] = walk.moved_nbytes(name)
        prices[("written", name), reader] = UNCUT
    if writer != _TURNED:
        prices[reader, ("turned", name)] = UNCUT
        prices[("turned", name), writer] = walk.moved_nbytes(name)


# --- the cheapest way to part a graph in two


def sinks_side(prices: Mapping[tuple[Hashable, Hashable], int], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The side of ``sink`` when the edges from the other side to it cost least; of equal cuts the smallest side.

    ``prices`` are of directed edges, by their ends; there has to be a cut of finite price.

    Example:
        >>> sorted(sinks_side({("s", "a"): 3, ("a", "b"): 2, ("b", "t"): 2, ("a", "t"): 0}, "s", "t"))
        ['t']
        >>> sorted(sinks_side({("s", "a"): 3, ("a", "b"): 1, ("b", "t"): 2}, "s", "t"))
        ['b', 't']
    """
    residual: dict[Hashable, dict[Hashable, int]] = {source: {}, sink: {}}
    for (tail, head), price in prices.items():
        residual.setdefault(tail, {}).setdefault(head, 0)
        residual[tail][head] += price
        residual.setdefault(head, {}).setdefault(tail, 0)
    while source in (behind := _reaching(residual, source, sink)):
        path = [source]
        while path[-1] != sink:
            path.append(behind[path[-1]])
        edges = list(pairwise(path))
        amount = min(residual[tail][head] for tail, head in edges)
        for tail, head in edges:
            residual[tail][head] -= amount
            residual[head][tail] += amount
    return {*behind}


def _reaching(
    residual: Mapping[Hashable, Mapping[Hashable, int]], source: Hashable, sink: Hashable
) -> dict[Hashable, Hashable]:
    """The next on the shortest way to ``sink`` that has something left, by each that has one; up to ``source``."""
    behind, front = {sink: sink}, [sink]
    for head in front:
        for tail in residual[head]:
            if residual[tail][head] and tail not in behind:
                behind[tail] = head
                front.append(tail)
        if source in behind:
            break
    return behind
