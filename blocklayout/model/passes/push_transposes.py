"""Transposes, moved behind what can do without them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.model.graph import Graph, Node, live_nodes
from blocklayout.model.passes.permute_places import better_kept
from blocklayout.model.passes.permuted_operators import KEEP_RANK, rule_for
from blocklayout.model.passes.permuting import Perm, Walk, perm_of, permuted_nbytes

if TYPE_CHECKING:
    import numpy as np


class PushTransposes(Struct, frozen=True):
    """Lets Transposes sink through the operators that can work in any order of dimensions.

    Networks exported from channels-last frameworks wrap each convolution in two of them. Behind a convolution
    they sink until they meet the next one's and cancel; so the operators between come to stand beside the
    convolution, where they can be folded into it or run with it. Where operands disagree, the smaller ones are
    turned. What is left stands where it moves the least bytes: before what makes a value larger or is read by
    several that insist on an order, else as far down as it sinks. An input that is read transposed is so at once.
    Never do more bytes move than before.
    """

    def __call__(self, graph: Graph) -> Graph:
        if not any(node.op_type == "Transpose" for node in graph.nodes):
            return graph
        entered = _entered(graph)
        arrays: dict[Hashable, np.ndarray] = {}
        found = [*_ways(graph, entered, arrays)]
        if entered and moved_nbytes(found[-1]):
            found += _ways(graph, {}, arrays)
        return min(*found, graph, key=moved_nbytes)


def moved_nbytes(graph: Graph) -> int:
    """Bytes that the Transposes of a graph move."""
    transposes = (node for node in graph.nodes if node.op_type == "Transpose")
    return sum(permuted_nbytes(graph.values[node.inputs[0]], perm_of(graph, node)) for node in transposes)


def _ways(graph: Graph, entered: Mapping[str, Perm], arrays: dict[Hashable, np.ndarray]) -> Iterator[Graph]:
    """With all Transposes as far down as they sink; then with them where they move less, if that is elsewhere."""
    walk = _walked(Walk(graph, (), arrays), entered)
    pushed = _result(walk)
    yield pushed
    kept = better_kept(walk) if moved_nbytes(pushed) else ()
    if kept:
        yield _result(_walked(Walk(graph, kept, arrays), entered))


def _walked(walk: Walk, entered: Mapping[str, Perm]) -> Walk:
    """From the inputs to the outputs, with all Transposes held back but where an operator insists."""
    for name, perm in entered.items():
        walk.enter(name, perm)
    for old in walk.graph.nodes:
        node = walk.current(old)
        if node.op_type == "Transpose":
            walk.hold(node)
        elif not _is_moved(walk, node):
            walk.keep(node)
    for name in walk.graph.outputs:
        walk.give(name)
    return walk


def _is_moved(walk: Walk, node: Node) -> bool:
    if node.name in walk.kept or not any(name in walk.views for name in node.inputs):
        return False
    rule = rule_for(node.op_type)
    return rule is not None and rule(walk, node)


def _result(walk: Walk) -> Graph:
    nodes = live_nodes(walk.nodes, walk.graph.outputs)
    return walk.graph.replace(nodes=nodes, values=walk.draft.values)


def _entered(graph: Graph) -> dict[str, Perm]:
    """The inputs that are read transposed, at once or behind operators that can work in any order, and how."""
    readers = graph.readers()
    wanted = {name: _order_wanted(graph, readers, name) for name in graph.inputs}
    return {name: perm for name, perm in wanted.items() if perm is not None}


def _order_wanted(graph: Graph, readers: Mapping[str, Sequence[Node]], name: str) -> Perm | None:
    while name not in graph.outputs and readers[name]:
        perms = {node.attr("perm", None) for node in readers[name] if node.op_type == "Transpose"}
        if perms:
            [perm, *others] = perms
            is_alone = not others and all(node.op_type == "Transpose" for node in readers[name])
            return tuple(perm) if perm and is_alone else None
        [reader, *more] = readers[name]
        has_one_source = all(graph.constant(other) is not None for other in reader.inputs if other not in ("", name))
        if more or reader.op_type not in KEEP_RANK or not has_one_source:
            return None
        name = reader.outputs[0]
    return None
