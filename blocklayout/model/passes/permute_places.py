"""Where Transposes move the least bytes."""

from __future__ import annotations

from collections.abc import Hashable

from blocklayout.model.graph import Node
from blocklayout.model.passes.minimum_cut import UNCUT, sinks_side
from blocklayout.model.passes.permuting import Walk

_TURNED, _WRITTEN = "turned", "written"

_Prices = dict[tuple[Hashable, Hashable], int]


def better_kept(walk: Walk) -> frozenset[str]:
    """The nodes that a finished walk had better left in the order in which they are written.

    A cut through the nodes that could be moved: on one side they work in the order of the sources of Transposes,
    on the other as they are written, and bytes move where a value crosses. Of equal cuts the one farthest down.
    """
    side = sinks_side(_prices(walk), _TURNED, _WRITTEN)
    return frozenset(name for name in walk.turning if ("node", name) in side)


def _prices(walk: Walk) -> _Prices:
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
                # left as it is written, a node gives no permutation for its reader to follow
                prices[("node", node.name), writer] = UNCUT
    return prices


def _side(walk: Walk, node: Node) -> Hashable:
    """A node's side where that is settled, else what stands for the node."""
    if node.op_type == "Transpose":
        return _TURNED
    return ("node", node.name) if node.name in walk.turning else _WRITTEN


def _price_crossing(prices: _Prices, walk: Walk, name: str, ends: tuple[Hashable, Hashable]) -> None:
    """A value is computed once in the other order, however many read it there."""
    writer, reader = ends
    if writer != _WRITTEN:
        prices[writer, ("written", name)] = walk.moved_nbytes(name)
        prices[("written", name), reader] = UNCUT
    if writer != _TURNED:
        prices[reader, ("turned", name)] = UNCUT
        prices[("turned", name), writer] = walk.moved_nbytes(name)
