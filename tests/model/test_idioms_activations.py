"""Activations that exporters write as several nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blocklayout.errors import PlanError
from blocklayout.model import Builder, BuildValue, Graph, simplify
from blocklayout.model.passes import Pass
from blocklayout.model.passes.idioms import Idiom, MergeIdioms, Merging
from blocklayout.model.passes.merge_clips import MergeClips
from blocklayout.model.passes.one_walk import RemoveDead
from blocklayout.model.passes.patterns import parsed

Same = Callable[[Graph, Graph], None]
OpTypes = Callable[[Graph], list[str]]
Spelling = Callable[[BuildValue], BuildValue]

PASSES: tuple[Pass, ...] = (RemoveDead(), MergeClips(), MergeIdioms())
SQRT_2 = math.sqrt(2)
SLOPE = math.sqrt(2 / math.pi)


def op(op_type: str, *args: object, **attrs: Any) -> BuildValue:
    """A node of the builder that the first value among the arguments belongs to."""
    builder = next(arg.builder for arg in args if isinstance(arg, BuildValue))
    result: BuildValue = builder.op(op_type, *args, **attrs)
    return result


def graph_of(spelling: Spelling, opset: int = 24) -> Graph:
    """The spelling behind an addition, so that arithmetic does not end where it begins."""
    b = Builder(opset=opset)
    x = b.input("x", (2, 3, 4)) + b.input("z", (2, 3, 4))
    b.output("y", spelling(x))
    return b.to_graph()


def relu6(x: BuildValue) -> BuildValue:
    return x.clip(0, 6)


def tanh_argument(x: BuildValue) -> BuildValue:
    return (x + op("Pow", x, 3.0) * 0.044715) * SLOPE


SPELLINGS: list[tuple[str, Spelling]] = [
    ("HardSigmoid", lambda x: relu6(x + 3) / 6),
    ("HardSigmoid", lambda x: relu6(3 + x) * (1 / 6)),
    ("HardSigmoid", lambda x: op("Min", op("Max", x + 3, 0.0), 6.0) / 6),
    ("HardSigmoid", lambda x: (x * 0.2 + 0.5).clip(0, 1)),
    ("HardSigmoid", lambda x: (x + 3).relu().clip(hi=6) / 6),
    ("HardSwish", lambda x: x * relu6(x + 3) / 6),
    ("HardSwish", lambda x: x * (relu6(x + 3) / 6)),
    ("HardSwish", lambda x: relu6(x + 3) * (1 / 6) * x),
    ("HardSwish", lambda x: (x / 6) * relu6(3 + x)),
    ("HardSwish", lambda x: x * op("HardSigmoid", x, alpha=1 / 6)),
    ("HardSwish", lambda x: x * (x * (1 / 6) + 0.5).clip(0, 1)),
    ("Swish", lambda x: x * x.sigmoid()),
    ("Swish", lambda x: x.sigmoid() * x),
    ("Swish", lambda x: (x * 1.702).sigmoid() * x),
    ("Mish", lambda x: x * op("Tanh", op("Softplus", x))),
    ("Mish", lambda x: op("Tanh", op("Softplus", x)) * x),
    ("Mish", lambda x: x * op("Tanh", op("Log", op("Exp", x) + 1))),
    ("Gelu", lambda x: 0.5 * x * (op("Erf", x / SQRT_2) + 1)),
    ("Gelu", lambda x: x * (op("Erf", x / SQRT_2) + 1) * 0.5),
    ("Gelu", lambda x: x * ((1 + op("Erf", x * (1 / SQRT_2))) / 2)),
    ("Gelu", lambda x: (op("Erf", x / SQRT_2) * 0.5 + 0.5) * x),
    ("Gelu", lambda x: x * 0.5 + op("Erf", x / SQRT_2) * (x * 0.5)),
    ("Gelu", lambda x: 0.5 * x * (1 + op("Tanh", tanh_argument(x)))),
    ("Gelu", lambda x: 0.5 * (x * (1 + op("Tanh", SLOPE * x * (1 + 0.044715 * x * x))))),
    ("LeakyRelu", lambda x: op("Max", x, x * 0.1)),
    ("LeakyRelu", lambda x: op("Max", x / 8, x)),
    ("LeakyRelu", lambda x: op("Where", op("Less", x, 0.0), x * 1.5, x)),
    ("LeakyRelu", lambda x: op("Where", op("Greater", x, 0.0), x, x * -0.5)),
    ("Softplus", lambda x: op("Where", op("Greater", x, 20.0), x, op("Softplus", x))),
    ("Softplus", lambda x: op("Where", op("Less", x * 1, 20.0), op("Softplus", x), x)),
]


@pytest.mark.parametrize(("expected", "spelling"), SPELLINGS)
def test_every_spelling_is_one_operator(
    expected: str, spelling: Spelling, assert_same: Same, op_types: OpTypes
) -> None:
    before = graph_of(spelling)
    after = simplify(before, PASSES)
    assert op_types(after) == ["Add", expected]
    assert_same(before, after)
    names = {node.name for node in before.nodes}
    assert set(after.nodes[1].absorbed) | {node.name for node in after.nodes} == names


@pytest.mark.parametrize(("expected", "spelling"), SPELLINGS)
def test_limits_and_constants_may_be_attributes(expected: str, spelling: Spelling, op_types: OpTypes) -> None:
    after = simplify(graph_of(spelling, opset=9), PASSES)
    assert op_types(after) == ["Add", expected]


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: relu6(x + 3) / 5,
        lambda x: x * relu6(x + 2) / 6,
        lambda x: x * relu6(x + 3) / 3,
        lambda x: x * (x + 3).clip(1, 6) / 6,
        lambda x: x * op("HardSigmoid", x),
        lambda x: x.sigmoid() * x.relu(),
        lambda x: x * (x + 1).sigmoid(),
        lambda x: x * op("Softplus", x),
        lambda x: x * op("Tanh", op("Log", op("Exp", x) + 2)),
        lambda x: 0.5 * x * (op("Erf", x / 1.5) + 1),
        lambda x: 0.5 * x * (op("Erf", x / SQRT_2) + 0.9),
        lambda x: 0.5 * x * (op("Erf", x / SQRT_2) - 1),
        lambda x: 0.5 * x * (1 + op("Tanh", (x + op("Pow", x, 3.0) * 0.05) * SLOPE)),
        lambda x: 0.5 * x * (1 + op("Tanh", (x + op("Pow", x, 2.0) * 0.044715) * SLOPE)),
        lambda x: op("Max", x, x * 1.5),
        lambda x: op("Where", op("Less", x, 0.5), x * 0.5, x),
        lambda x: op("Where", op("Less", x, 0.0), x, x * 0.5),
        lambda x: op("Where", op("Less", x.relu(), 0.0), x * 0.5, x),
        lambda x: op("Where", op("Greater", x, 2.0), x, op("Softplus", x)),
        lambda x: op("Where", op("Less", x, 20.0), x, op("Softplus", x)),
        lambda x: op("Max", x, x * -0.5),
        lambda x: op("Max", x, x * np.array([[[0.1, 0.2, 0.3, 0.4]]], np.float32)),
    ],
)
def test_something_similar_stays(spelling: Spelling, op_types: OpTypes) -> None:
    before = graph_of(spelling)
    clips_only = simplify(before, (RemoveDead(), MergeClips()))
    merged = {"HardSwish", "Swish", "Mish", "Gelu", "LeakyRelu"}
    after = simplify(before, PASSES)
    assert not merged.intersection(op_types(after))
    if "HardSigmoid" not in op_types(after):
        assert str(after) == str(clips_only)


@pytest.mark.parametrize(("_expected", "spelling"), SPELLINGS)
def test_a_value_in_between_that_is_an_output_stays(_expected: str, spelling: Spelling, assert_same: Same) -> None:
    b = Builder(opset=24)
    b.output("y", spelling(b.input("x", (2, 3, 4))))
    graph = b.to_graph()
    for node in graph.nodes[:-1]:
        before = graph.replace(outputs=("y", node.outputs[0]))
        assert_same(before, simplify(before, PASSES))


def test_a_gate_that_others_read_stays(op_types: OpTypes) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        gate = x.sigmoid()
        return x * gate + gate

    assert op_types(simplify(graph_of(spelling), PASSES)) == ["Add", "Sigmoid", "Mul", "Add"]


def test_what_broadcasts_on_the_way_stays(op_types: OpTypes) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        return x.sigmoid() * x * np.ones((5, 1, 1, 1), np.float32)

    assert op_types(simplify(graph_of(spelling), PASSES)) == ["Add", "Swish", "Mul"]


def test_two_in_a_row_are_two(assert_same: Same, op_types: OpTypes) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        y = x * x.sigmoid()
        return y * y.sigmoid()

    before = graph_of(spelling)
    after = simplify(before, PASSES)
    assert op_types(after) == ["Add", "Swish", "Swish"]
    assert_same(before, after)


def test_constants_rounded_to_half_precision_are_recognised(op_types: OpTypes) -> None:
    b = Builder(opset=24)
    x = b.input("x", (2, 3), "f16")
    b.output("y", 0.5 * x * (op("Erf", x / SQRT_2) + 1))
    assert op_types(simplify(b.to_graph(), PASSES)) == ["Gelu"]


def test_single_idioms_are_switched_off(op_types: OpTypes) -> None:
    before = graph_of(lambda x: op("Erf", x.sigmoid() * x / SQRT_2) * 0.5)
    both = graph_of(lambda x: x * x.sigmoid() + op("Max", x, x * 0.1))
    assert op_types(MergeIdioms(without=("Gelu", "Swish"))(before)) == op_types(before)
    assert op_types(MergeIdioms(without=("Swish",))(both)) == ["Add", "Sigmoid", "Mul", "LeakyRelu", "Add"]
    assert op_types(MergeIdioms()(both)) == ["Add", "Swish", "LeakyRelu", "Add"]


def test_an_idiom_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PlanError, match=r"no idiom: Glu; there are LeakyRelu, .*Gelu.*ChannelShuffle"):
        MergeIdioms(without=("Gelu", "Glu"))


@pytest.mark.parametrize(
    ("pattern", "spelling"),
    [
        ("x * Tanh(x)", lambda x: op("Tanh", x) * x),
        ("3 * Tanh(scale * x) - x", lambda x: (op("Tanh", x / 4) * 6 - x - x) / 2),
        ("2 * x if x < 1 else x / 2", lambda x: op("Where", op("GreaterOrEqual", x, 1.0), x * 0.5, x + x)),
        ("(x ** 2 + 1) ** 0.5", lambda x: op("Sqrt", 1 + x * x)),
        ("1 / (x ** 2 + 1) ** beta", lambda x: op("Pow", 1 + x * x, -0.3)),
        ("unit(slope * x + offset)", lambda x: (x * 2 + 1).clip(0, 4) * 0.25),
    ],
)
def test_a_pattern_is_found_in_every_spelling(pattern: str, spelling: Spelling, op_types: OpTypes) -> None:
    graph = graph_of(spelling)
    idiom = Idiom("Found", pattern, lambda **numbers: numbers)
    merging = Merging(graph)
    for node in graph.nodes:
        idiom.merge(merging, node)
    after = merging.result()
    assert op_types(after) == ["Add", "Found"]
    expected = {"scale": 0.25, "beta": 0.3, "slope": 0.5, "offset": 0.25}
    attrs = after.nodes[1].attrs
    assert attrs == pytest.approx({name: expected[name] for name in attrs})
    assert list(attrs) == [name for name in expected if name in pattern]


@pytest.mark.parametrize(
    "pattern", ["x * Tanh(x) * Erf(x)", "x @ Erf(x)", "Erf(x) if x > 1 else x", "x / (1 + Abs(x))"]
)
def test_what_is_no_pattern_is_said_to_be_none(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        parsed(pattern)
