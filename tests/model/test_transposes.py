"""Transposes sink, cancel and merge; what the graph computes stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from blocklayout.model import Builder, BuildValue, read, simplify
from tests.model.protos import make_model
from tests.model.transposing import FIRST, LAST, SHAPE, n_transposes, op_types, pushed, vector

Step = Callable[[Builder, BuildValue], BuildValue]

KEEP_RANK: dict[str, Step] = {
    "a function": lambda _, x: x.relu(),
    "Clip": lambda _, x: x.clip(-0.5, 0.5),
    "a vector added": lambda _, x: x + vector(x.shape[3]),
    "a vector subtracted from": lambda b, x: b.op("Sub", vector(x.shape[3]), x),
    "an image multiplied": lambda _, x: x * vector(1, *x.shape[1:3], 1),
    "a number": lambda _, x: x * np.float32(2),
    "itself": lambda _, x: x + x.relu(),
    "Pad": lambda b, x: b.op("Pad", x, [0, 1, 0, 0, 0, 2, 1, 0]),
    "Pad along axes": lambda b, x: b.op("Pad", x, [1, 0, 0, 1], np.float32(0), [1, 2]),
    "Softmax": lambda _, x: x.softmax(axis=3),
    "Softmax from the end": lambda b, x: b.op("Softmax", x),
    "Concat": lambda b, x: b.concat([x, x.relu(), np.ones(x.shape, np.float32)], axis=3),
    "Slice": lambda b, x: b.op("Slice", x, [1, 0], [9, 3], [1, 3]),
    "Slice without axes": lambda b, x: b.op("Slice", x, [0, 1], [2, 9]),
    "Split": lambda b, x: b.op("Split", x, axis=1, num_outputs=2, n_outputs=2)[1],
    "ReduceMean": lambda b, x: b.op("ReduceMean", x, [1, 2], keepdims=1),
    "ReduceMax from the end": lambda b, x: b.op("ReduceMax", x, [-1], keepdims=1),
    "ArgMax": lambda b, x: b.op("Cast", b.op("ArgMax", x, axis=3), to=1),
    "Resize": lambda b, x: b.op("Resize", x, np.empty(0, np.float32), np.array([1, 2, 3, 1], np.float32)),
    "Resize to sizes": lambda b, x: b.op("Resize", x, None, None, [x.shape[0], 3, 8, x.shape[3]]),
    "PRelu": lambda b, x: b.op("PRelu", x, vector(x.shape[3])),
    "Where": lambda b, x: b.op("Where", b.op("Greater", x, np.float32(0)), x, vector(x.shape[3])),
    "a bias with a mean of its own": lambda b, x: x - b.op("ReduceMean", x, [3], keepdims=1),
    "LpNormalization": lambda b, x: b.op("LpNormalization", x, axis=3),
    "Gather": lambda b, x: b.op("Gather", x, np.array([1, 0, -1]), axis=3),
    "Tile": lambda b, x: b.op("Tile", x, [1, 2, 1, 1]),
    "Expand": lambda b, x: b.op("Expand", b.op("ReduceSum", x, [1, 2]), [*x.shape[1:3], 1]),
    "Resize along axes": lambda b, x: b.op("Resize", x, None, np.array([2, 2], np.float32), axes=[1, 2]),
    "Dropout": lambda b, x: b.op("Dropout", x),
    "a cast": lambda b, x: b.op("Cast", b.op("Cast", x, to=11), to=1),
    "ReduceSum of all": lambda b, x: x - b.op("ReduceSum", x),
    "Reshape": lambda _, x: x.reshape((*x.shape[:3], 1, -1)).relu().reshape(x.shape),
    "Min of three": lambda b, x: b.op("Min", x, x.relu(), vector(x.shape[3])),
}


@pytest.mark.parametrize("name", KEEP_RANK)
def test_it_runs_in_the_other_order(name: str) -> None:
    b = Builder()
    x = b.input("x", SHAPE)
    b.output("y", KEEP_RANK[name](b, x.transpose(LAST)).transpose(FIRST))
    assert n_transposes(pushed(b)) == 0


CHANGE_RANK: dict[str, Step] = {
    "ReduceMean": lambda b, x: b.op("ReduceMean", x, [1, 2], keepdims=0),
    "ReduceMean of channels": lambda b, x: b.op("ReduceMean", x, [3], keepdims=0),
    "ReduceSum of all": lambda b, x: b.op("ReduceSum", x, [0, 1, 2, 3], keepdims=0),
    "Squeeze": lambda b, x: b.op("Squeeze", b.op("ReduceMax", x, [1, 2]), [1, 2]),
    "Unsqueeze": lambda b, x: b.op("ReduceMean", b.op("Unsqueeze", x, [1]), [2, 3], keepdims=0),
    "Gather of one": lambda b, x: b.op("Gather", x, np.array(1), axis=3),
    "ReduceMax of all": lambda b, x: b.op("ReduceMax", x, keepdims=0),
    "a mean of the flat image": lambda b, x: b.op("ReduceMean", x.reshape((2, 24, 3)), [1], keepdims=0),
    "ArgMin": lambda b, x: b.op("Cast", b.op("ArgMin", x, axis=3, keepdims=0), to=1),
}


@pytest.mark.parametrize("name", CHANGE_RANK)
def test_what_changes_the_rank_gives_the_same(name: str) -> None:
    b = Builder()
    b.output("y", CHANGE_RANK[name](b, b.input("x", SHAPE).transpose(LAST)))
    assert n_transposes(pushed(b)) == 0


def test_spatial_dimensions_left_over_keep_their_order() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose((0, 3, 2, 1))
    b.output("y", b.op("ReduceMean", x, [3], keepdims=0))
    assert n_transposes(pushed(b)) == 1


IN_CHAINS = sorted(KEEP_RANK.keys() - {"LpNormalization"})  # zeros in a row, as a chain may make them, have no norm


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from(IN_CHAINS), max_size=5),
    st.permutations(range(4)),
    st.booleans(),
)
def test_any_chain_in_any_order_gives_the_same(names: list[str], perm: list[int], is_output_too: bool) -> None:  # noqa: FBT001
    b = Builder()
    x = b.input("x", (3, 8, 4, 5)).transpose(tuple(perm))
    for name in names:
        if min(x.shape) < 2:
            break
        x = KEEP_RANK[name](b, x)
    if is_output_too:
        b.output("z", x.relu())
    b.output("y", x.transpose((3, 1, 0, 2)).relu())
    pushed(b)


def test_the_weights_of_a_classifier_are_permuted_instead_of_the_image() -> None:
    for trans_b in (False, True):
        b = Builder()
        weights = vector(10, 72) if trans_b else vector(72, 10)
        x = b.input("x", SHAPE).transpose(LAST).flatten()
        b.output("y", x.gemm(weights, vector(10), trans_b=trans_b))
        assert n_transposes(pushed(b)) == 0


def test_an_image_that_is_read_flat_twice_stays_as_it_is() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST).flatten()
    b.output("y", x.gemm(vector(72, 10)))
    b.output("z", x.relu())
    assert n_transposes(pushed(b)) == 1


def test_small_operands_are_turned_rather_than_images() -> None:
    b = Builder()
    x, s = b.input("x", SHAPE), b.input("s", (2, 1, 1, 3))
    b.output("y", (x.transpose(LAST).relu() * s).transpose(FIRST))
    after = pushed(b)
    assert n_transposes(after) == 0
    assert sum(node.op_type == "Reshape" for node in after.nodes) == 1


def test_images_in_two_orders_move_once() -> None:
    b = Builder()
    x, y = b.input("x", SHAPE), b.input("y", (2, 6, 4, 3))
    b.output("z", x.transpose(LAST).relu() + y)
    assert n_transposes(pushed(b)) == 1


def test_a_residual_between_two_orders_stays_where_it_is() -> None:
    b = Builder()
    x = b.input("x", SHAPE)
    y = b.op("LayerNormalization", x.transpose(LAST), vector(3)).relu().transpose(FIRST)
    b.output("y", x + y)
    assert n_transposes(pushed(b)) == 2


def test_a_value_read_in_both_orders_is_computed_once() -> None:
    b = Builder()
    x = b.input("x", SHAPE).transpose(LAST).relu()
    b.output("y", b.op("LayerNormalization", x, vector(3)))
    b.output("z", b.op("LayerNormalization", x, vector(3)).sigmoid())
    after = pushed(b)
    assert n_transposes(after) == 1
    assert sum(node.op_type == "Relu" for node in after.nodes) == 1


def test_an_output_keeps_its_name_and_order() -> None:
    b = Builder()
    b.output("y", b.input("x", SHAPE).transpose(LAST).relu())
    after = pushed(b)
    assert after.outputs == ("y",)
    assert after.shape("y") == (2, 6, 4, 3)


def test_transposes_that_undo_each_other_leave_nothing() -> None:
    b = Builder()
    b.output("y", b.input("x", SHAPE).relu().transpose(LAST).transpose(FIRST))
    assert op_types(simplify(pushed(b))) == ["Relu"]


def test_an_operator_that_insists_gets_what_it_was_given() -> None:
    b = Builder()
    b.output("y", b.op("CumSum", b.input("x", SHAPE).transpose(LAST).relu(), np.array(3)))
    assert op_types(pushed(b)) == ["Transpose", "Relu", "CumSum"]


@pytest.mark.parametrize("opset", [11, 12])
def test_axes_as_attributes(opset: int) -> None:
    b = Builder(opset=opset)
    x = b.op("ReduceMean", b.input("x", SHAPE).transpose(LAST), axes=[1, 2], keepdims=1)
    b.output("y", b.op("Squeeze", x, axes=[1, 2]))
    assert n_transposes(pushed(b)) == 0


def test_softmax_over_the_rest_insists_on_the_order() -> None:
    b = Builder(opset=12)
    b.output("y", b.op("Softmax", b.input("x", SHAPE).transpose(LAST), axis=3).transpose(FIRST))
    assert n_transposes(pushed(b)) == 2


def test_softmax_over_the_rest_of_one_pixel_does_not() -> None:
    b = Builder(opset=12)
    x = b.input("x", (2, 5, 1, 1)).transpose(LAST)
    b.output("y", b.op("Softmax", x, axis=3).transpose(FIRST).relu())
    assert n_transposes(pushed(b)) == 0


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_extents_in_the_words_of_every_version(opset: int) -> None:
    b = Builder(opset=opset)
    x = b.input("x", SHAPE).transpose(LAST)
    scales, pads = np.array([1, 2, 2, 1], np.float32), (0, 1, 0, 0, 0, 2, 1, 0)
    x = b.op("Upsample", x, scales) if opset == 9 else b.op("Resize", x, np.empty(0, np.float32), scales)
    x = b.op("Slice", x, starts=[1], ends=[9], axes=[2]) if opset < 10 else b.op("Slice", x, [1], [9], [2])
    x = b.op("Pad", x, pads=pads) if opset < 11 else b.op("Pad", x, np.array(pads))
    b.output("y", (x - b.op("ReduceMax", x)).transpose(FIRST))
    assert n_transposes(pushed(b)) == 0


KEEP_SOME_DIMENSIONS: dict[str, tuple[tuple[int, ...], Step]] = {
    "MatMul": ((1, 0, 2), lambda _, x: x.matmul(vector(x.shape[-1], 5))),
    "LayerNormalization": ((1, 0, 2), lambda b, x: b.op("LayerNormalization", x, vector(6), vector(6))),
    "LayerNormalization of two": ((2, 0, 1, 3, 4), lambda b, x: b.op("LayerNormalization", x, vector(4, 5), axis=3)),
    "InstanceNormalization": ((0, 1, 3, 2), lambda b, x: b.op("InstanceNormalization", x, vector(3), vector(3))),
    "GlobalMaxPool": ((0, 1, 3, 2), lambda b, x: b.op("GlobalMaxPool", x)),
    "BatchNormalization": (
        (0, 1, 3, 2),
        lambda _, x: x.batch_norm(vector(3), vector(3), vector(3), vector(3) ** 2 + 1),
    ),
}


@pytest.mark.parametrize("name", KEEP_SOME_DIMENSIONS)
def test_other_dimensions_than_the_operators_own_may_be_permuted(name: str) -> None:
    perm, step = KEEP_SOME_DIMENSIONS[name]
    b = Builder()
    x = b.input("x", (2, 3, 6, 4, 5)[: len(perm)]).transpose(perm)
    back = tuple(perm.index(axis) for axis in range(len(perm)))
    b.output("y", step(b, x).transpose(back))
    assert n_transposes(pushed(b)) == 0


def test_the_operators_own_may_not() -> None:
    steps: tuple[Step, ...] = (
        lambda b, x: b.op("LayerNormalization", x, vector(3)),
        lambda _, x: x.matmul(vector(3, 3)),
        lambda b, x: b.op("InstanceNormalization", x, vector(6), vector(6)),
    )
    for step in steps:
        b = Builder()
        b.output("y", step(b, b.input("x", SHAPE).transpose(LAST)).transpose(FIRST))
        assert n_transposes(pushed(b)) == 2


def test_the_graph_says_which_transposes_went() -> None:
    b = Builder()
    x = b.op("Transpose", b.input("x", SHAPE), perm=LAST, name="to_last")
    y = b.op("Relu", x, name="act")
    b.output("y", b.op("Transpose", y, perm=FIRST, name="to_first").sigmoid())
    [act, _] = pushed(b).nodes
    assert act.name == "act"


def test_a_flat_image_that_no_product_reads_stays_as_it_is() -> None:
    b = Builder()
    b.output("y", b.input("x", SHAPE).transpose(LAST).flatten().softmax())
    assert n_transposes(pushed(b)) == 1


def test_an_input_of_which_the_first_part_is_not_read() -> None:
    split = helper.make_node("Split", ["x"], ["", "s"])
    nodes = [split, helper.make_node("Transpose", ["y"], ["t"]), helper.make_node("Mul", ["t", "s"], ["z"])]
    graph = read(make_model(nodes, {"x": (6,), "y": (3, 4)}, outputs=("z",), opset=17))
    assert sorted(op_types(simplify(graph))) == ["Mul", "Split", "Transpose"]
