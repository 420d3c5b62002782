from __future__ import annotations

import numpy as np
import pytest

from blocklayout.errors import ModelError
from blocklayout.ir import Value
from blocklayout.model.graph import Graph, Node, fresh_name, live_nodes


def _value(name: str, data: np.ndarray | None = None) -> Value:
    return Value(name, (2,), "f32", data)


def _graph(*nodes: Node, outputs: tuple[str, ...] = ("z",)) -> Graph:
    return Graph("g", 20, nodes, {name: _value(name) for name in "xyz"}, ("x",), outputs)


FIRST = Node("a", "Relu", ("x",), ("y",))
SECOND = Node("b", "Relu", ("y",), ("z",))


def test_a_chain_is_well_formed() -> None:
    graph = _graph(FIRST, SECOND)
    assert graph.validate() is graph


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ((SECOND, FIRST), "before any node writes it"),
        ((FIRST, FIRST.replace(name="b"), SECOND.replace(name="c")), "already exists"),
        ((FIRST, SECOND.replace(name="a")), "two nodes are named 'a'"),
        ((FIRST,), "no node writes the output 'z'"),
        ((FIRST, SECOND.replace(inputs=("w",))), "no such value"),
        ((FIRST, SECOND.replace(outputs=("x",))), "already exists"),
    ],
)
def test_a_broken_graph_is_refused(nodes: tuple[Node, ...], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        _graph(*nodes).validate()


def test_a_value_under_another_name_is_refused() -> None:
    with pytest.raises(ModelError, match="calls itself"):
        Graph("g", 20, (), {"x": _value("y")}, ("x",), ("x",)).validate()


def test_replacing_nodes_forgets_what_nothing_names() -> None:
    graph = _graph(FIRST, SECOND).replace(nodes=(FIRST,), outputs=("y",))
    assert set(graph.values) == {"x", "y"}


def test_readers_count_each_use() -> None:
    twice = Node("b", "Add", ("y", "y"), ("z",))
    assert _graph(FIRST, twice).readers()["y"] == [twice, twice]


def test_unread_outputs_become_empty() -> None:
    split = Node("s", "Split", ("x",), ("y", "w"))
    kept = live_nodes((split, Node("dead", "Relu", ("w",), ("v",))), ("y",))
    assert [node.outputs for node in kept] == [("y", "")]


def test_absent_inputs_print_as_dashes() -> None:
    assert str(Node("c", "Clip", ("x", "", "m"), ("y",))) == "y = Clip(x, -, m)  # c"


def test_a_taken_name_gets_the_next_number() -> None:
    assert fresh_name("a", set()) == "a"
    assert fresh_name("a", {"a", "a_1", "a_2"}) == "a_3"
