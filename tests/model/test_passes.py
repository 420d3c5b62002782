from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blocklayout.model import Builder, Graph, Node, simplify
from blocklayout.model.passes import DEFAULT, Pass
from blocklayout.model.passes.decompose import Decompose
from blocklayout.model.passes.expand_functions import ExpandFunctions
from blocklayout.model.passes.fold_affine import FoldAffine
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.merge_clips import MergeClips
from blocklayout.model.passes.one_walk import AlignRanks, DropNoOps, FoldConstants, RemoveDead
from blocklayout.model.passes.push_transposes import PushTransposes

Same = Callable[[Graph, Graph], None]
OpTypes = Callable[[Graph], list[str]]
Rng = np.random.Generator


def _array(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


# --- the runner


def test_callback_sees_every_intermediate_form(small_net: Builder) -> None:
    seen: list[tuple[Pass, int]] = []
    graph = simplify(small_net.to_graph(), on_pass=lambda each, form: seen.append((each, len(form.nodes))))
    assert [each for each, _ in seen] == list(DEFAULT)
    assert seen[-1][1] == len(graph.nodes)


def test_default_passes_keep_the_meaning(small_net: Builder, assert_same: Same, op_types: OpTypes) -> None:
    before = small_net.to_graph()
    after = simplify(before)
    assert_same(before, after)
    assert "BatchNormalization" not in op_types(after)
    assert after.nodes[0].absorbed == ("norm",)


def test_passes_are_idempotent(small_net: Builder) -> None:
    once = simplify(small_net.to_graph())
    assert str(simplify(once)) == str(once)


def test_a_pass_can_be_left_out(small_net: Builder, op_types: OpTypes) -> None:
    passes = [each for each in DEFAULT if not isinstance(each, FoldAffine)]
    assert "BatchNormalization" in op_types(simplify(small_net.to_graph(), passes))


# --- constants


def test_shape_arithmetic_is_folded(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4))
    extents = b.op("Shape", x)
    b.output("y", b.op("Reshape", x, b.op("Concat", b.op("Gather", extents, [0]), [-1], axis=0)))
    graph = b.to_graph()
    after = simplify(graph)
    assert_same(graph, after)
    assert op_types(after) == ["Reshape"]
    assert after.shape("y") == (2, 12)


def test_random_numbers_are_not_constants(op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", b.input("x", (2,)) + b.op("RandomNormal", shape=(2,)))
    assert op_types(FoldConstants()(b.to_graph())) == ["RandomNormal", "Add"]


# --- no-ops


@pytest.mark.parametrize(
    ("op_type", "args", "attrs"),
    [
        ("Identity", (), {}),
        ("Dropout", (), {}),
        ("Dropout", (0.5, False), {}),
        ("Reshape", ([2, 3, 4],), {}),
        ("Reshape", ([0, -1, 4],), {}),
        ("Transpose", (), {"perm": (0, 1, 2)}),
        ("Cast", (), {"to": 1}),
        ("Expand", ([1, 1, 4],), {}),
        ("Pad", ([0, 0, 0, 0, 0, 0],), {}),
        ("Slice", ([0], [9], [1]), {}),
        ("Sum", (), {}),
        ("Concat", (), {"axis": 0}),
    ],
)
def test_what_changes_nothing_is_dropped(
    op_type: str, args: tuple[Any, ...], attrs: dict[str, Any], assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    b.output("y", b.op(op_type, b.input("x", (2, 3, 4)).relu(), *args, **attrs).sigmoid())
    after = DropNoOps()(b.to_graph())
    assert op_types(after) == ["Relu", "Sigmoid"]
    assert_same(b.to_graph(), after)


@pytest.mark.parametrize(
    ("op_type", "args", "attrs"),
    [
        ("Dropout", (0.5, True), {}),
        ("Reshape", ([3, 2, 4],), {}),
        ("Transpose", (), {"perm": (1, 0, 2)}),
        ("Cast", (), {"to": 11}),
        ("Pad", ([1, 0, 0, -1, 0, 0],), {}),
        ("Slice", ([-1], [-9], [1], [-1]), {}),
        ("Concat", (np.ones((1, 3, 4), np.float32),), {"axis": 0}),
    ],
)
def test_what_changes_something_stays(
    op_type: str, args: tuple[Any, ...], attrs: dict[str, Any], op_types: OpTypes
) -> None:
    b = Builder()
    b.output("y", b.op("Identity", b.op(op_type, b.input("x", (2, 3, 4)), *args, **attrs)))
    assert op_types(DropNoOps()(b.to_graph())) == [op_type]


def test_outputs_keep_their_names(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3))
    y = x.relu()
    b.output("first", b.op("Identity", y))
    b.output("second", b.op("Identity", y))
    b.output("fed", b.op("Identity", x))
    b.output("known", b.op("Identity", b.constant(np.ones(2, np.float32), "c")))
    after = DropNoOps()(b.to_graph())
    assert after.outputs == ("first", "second", "fed", "known")
    assert op_types(after) == ["Relu", "Identity", "Identity"]
    assert_same(b.to_graph(), after)


def test_a_chain_of_no_ops_goes_as_one(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    y = b.input("x", (2, 3)).relu()
    for _ in range(3):
        y = y.dropout()
    b.output("y", y)
    after = DropNoOps()(b.to_graph())
    assert op_types(after) == ["Relu"]
    assert_same(b.to_graph(), after)


# --- clips


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: x.clip(0), ["Relu"]),
        (lambda x: x.clip(0, 6), ["Clip"]),
        (lambda x: x.relu().clip(hi=6), ["Clip"]),
        (lambda x: x.relu().relu(), ["Relu"]),
        (lambda x: x.clip(-1, 1).clip(0.5, 3), ["Clip"]),
        (lambda x: x.clip(-1, 1).clip(2, 3), ["Clip"]),
        (lambda x: x.builder.op("Min", x.builder.op("Max", 0.0, x), 0.5), ["Clip"]),
        (lambda x: x.builder.op("Max", x, 0.0), ["Relu"]),
        (lambda x: x.builder.op("Max", x, np.zeros((2, 3), np.float32)), ["Max"]),
        (lambda x: x.builder.op("Clip", x, x.builder.input("lo", ())), ["Clip"]),
    ],
)
def test_every_spelling_of_a_clip_becomes_one(
    build: Callable[[object], object], expected: list[str], assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    b.output("y", build(b.input("x", (2, 3))))  # type: ignore[arg-type]
    after = MergeClips()(b.to_graph())
    assert op_types(after) == expected
    assert_same(b.to_graph(), after)


def test_clips_are_merged_with_attributes_before_opset_11(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder(opset=9)
    b.output("y", b.input("x", (2, 3)).relu().clip(-1, 0.5))
    after = MergeClips()(b.to_graph())
    assert op_types(after) == ["Clip"]
    assert after.nodes[0].attrs == {"min": 0.0, "max": 0.5}
    assert_same(b.to_graph(), after)


def test_a_limited_value_that_others_read_stays(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    y = b.input("x", (2, 3)).relu()
    b.output("y", y.clip(hi=0.5) + y)
    after = MergeClips()(b.to_graph())
    assert op_types(after) == ["Relu", "Clip", "Add"]
    assert_same(b.to_graph(), after)


# --- transposes


def test_inverse_transposes_cancel(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4, 5))
    b.output("y", x.transpose((0, 2, 3, 1)).transpose((0, 3, 1, 2)).relu())
    after = PushTransposes()(b.to_graph())
    assert op_types(after) == ["Relu"]
    assert_same(b.to_graph(), after)


def test_transposes_in_a_row_become_one(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4, 5))
    b.output("y", x.transpose((1, 2, 3, 0)).transpose().transpose((0, 2, 1, 3)))
    after = PushTransposes()(b.to_graph())
    assert op_types(after) == ["Transpose"]
    assert_same(b.to_graph(), after)


# --- what kernels need


def test_operands_get_equal_ranks(rng: Rng, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3, 4, 4))
    z = b.input("z", (3, 1, 1))
    y = (x + z) * z + _array(rng, 4)
    b.output("y", y)
    after = AlignRanks()(b.to_graph())
    assert op_types(after) == ["Reshape", "Add", "Mul", "Add"]
    assert all(len(after.shape(name)) == 4 for node in after.nodes[1:] for name in node.inputs)
    assert_same(b.to_graph(), after)


def test_a_smaller_operand_of_batch_0_is_reshaped_too(assert_same: Same) -> None:
    b = Builder()
    b.output("y", b.input("x", (1, 2, 0)) + b.input("z", (2, 0)))
    assert_same(b.to_graph(), AlignRanks()(b.to_graph()))


@pytest.mark.parametrize("opset", [9, 12, 13, 18])
@pytest.mark.parametrize("sizes", [None, (1, 4, 2)])
def test_a_split_becomes_slices(
    opset: int, sizes: tuple[int, ...] | None, assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder(opset=opset)
    x = b.input("x", (2, 7 if sizes or opset >= 18 else 6, 2))
    args = [np.array(sizes)] if sizes and opset >= 13 else []
    attrs = {"split": sizes} if sizes and opset < 13 else {"num_outputs": 3} if not sizes and opset >= 18 else {}
    parts = b.op("Split", x, *args, axis=1, n_outputs=3, **attrs)
    b.output("first", parts[0])
    b.output("last", parts[2].relu())
    graph = b.to_graph()
    after = simplify(graph, (RemoveDead(), Decompose()))
    assert op_types(after) == ["Slice", "Slice", "Relu"]
    assert_same(graph, after)


def _supports(*op_types: str) -> Callable[[Graph, Node], bool]:
    return lambda _graph, node: node.op_type in op_types


def test_a_function_body_replaces_what_nothing_computes(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3))
    y = b.op("Celu", x.relu(), alpha=0.5, name="celu")
    b.output("y", b.op("Celu", y, alpha=2.0))
    after = ExpandFunctions(_supports("Relu", "Div", "Elu", "Mul"))(b.to_graph())
    assert op_types(after) == ["Relu", *["Div", "Elu", "Mul"] * 2]
    assert after.nodes[1].absorbed == ("celu",)
    assert_same(b.to_graph(), after)


def test_a_body_that_cannot_be_computed_either_is_not_taken(op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", b.op("Celu", b.input("x", (2, 3))))
    assert op_types(ExpandFunctions(_supports("Relu", "Div"))(b.to_graph())) == ["Celu"]


def test_shape_arithmetic_in_a_body_is_folded(rng: Rng, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder(opset=21)
    b.output("y", b.op("GroupNormalization", b.input("x", (2, 4, 3)), _array(rng, 4), _array(rng, 4), num_groups=2))
    simple = ("Cast", "Reshape", "ReduceMean", "Mul", "Sub", "Add", "Sqrt", "Div")
    after = DropNoOps()(ExpandFunctions(_supports(*simple))(b.to_graph()))
    assert "Cast" not in op_types(after)
    assert_same(b.to_graph(), after)


@pytest.mark.parametrize(
    ("gate", "attrs", "expected"),
    [
        ("Sigmoid", {}, "Swish"),
        ("HardSigmoid", {"alpha": 1 / 6}, "HardSwish"),
        ("HardSigmoid", {}, "Mul"),
        ("Tanh", {}, "Mul"),
    ],
)
def test_a_value_times_its_gate_is_one_operator(
    gate: str, attrs: dict[str, Any], expected: str, assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder(opset=24)
    x = b.input("x", (2, 3))
    b.output("y", b.op(gate, x, **attrs) * x)
    after = MergeIdioms()(b.to_graph())
    assert op_types(after)[-1] == expected
    assert len(after.nodes) == (2 if expected == "Mul" else 1)
    assert_same(b.to_graph(), after)


def test_a_gate_of_another_value_stays(op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", b.input("x", (2, 3)).sigmoid() * b.input("z", (2, 3)))
    assert op_types(MergeIdioms()(b.to_graph())) == ["Sigmoid", "Mul"]


def test_recurrent_nodes_with_absent_outputs_pass_through(rng: Rng, op_types: OpTypes) -> None:
    b = Builder()
    _, last = b.op(
        "RNN", b.input("x", (1, 2, 3)), _array(rng, 1, 4, 3), _array(rng, 1, 4, 4), hidden_size=4, n_outputs=2
    )
    b.output("y", last)
    assert op_types(simplify(b.to_graph())) == ["RNN"]
