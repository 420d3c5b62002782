"""Shuffles, depth to space, pools of whole images, pads, expansions: what moves or repeats elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.model import Builder, BuildValue, Graph, simplify
from blocklayout.model.graph import constant_value
from blocklayout.model.passes.decompose import Decompose
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.one_walk import DropExpands, DropNoOps, FoldConstants, FoldMasks, FoldPads, RemoveDead

Same = Callable[[Graph, Graph], None]
OpTypes = Callable[[Graph], list[str]]
Spelling = Callable[[BuildValue], BuildValue]

IMAGE = (2, 6, 4, 5)


def op(op_type: str, *args: Any, **attrs: Any) -> BuildValue:
    builder = next(arg.builder for arg in args if isinstance(arg, BuildValue))
    result: BuildValue = builder.op(op_type, *args, **attrs)
    return result


def graph_of(spelling: Spelling, shape: tuple[int, ...] = IMAGE, opset: int = 20) -> Graph:
    b = Builder(opset=opset)
    b.output("y", spelling(b.input("x", shape)))
    return b.to_graph()


# --- channel shuffle


def shuffled(x: BuildValue, groups: int, *rest: int, perm: tuple[int, ...] = (0, 2, 1, 3, 4)) -> BuildValue:
    n, channels, *_ = x.shape
    return x.reshape((n, groups, channels // groups, *rest)).transpose(perm).reshape(x.shape)


@pytest.mark.parametrize(
    ("groups", "spelling"),
    [
        (2, lambda x: shuffled(x, 2, 4, 5)),
        (3, lambda x: shuffled(x, 3, 4, 5)),
        (3, lambda x: shuffled(x, 3, 20, perm=(0, 2, 1, 3))),
        (3, lambda x: x.reshape((2, 3, 2, 4, 5)).transpose((0, 2, 1, 3, 4)).reshape((2, -1, 4, 5))),
    ],
)
def test_interleaved_groups_are_a_shuffle(groups: int, spelling: Spelling, op_types: OpTypes) -> None:
    after = MergeIdioms()(graph_of(lambda x: spelling(x).relu()))
    assert op_types(after) == ["ChannelShuffle", "Relu"]
    assert after.nodes[0].attrs == {"groups": groups}
    assert len(after.nodes[0].absorbed) == 2


def test_a_batch_that_is_left_out_is_a_shuffle_too(op_types: OpTypes) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        return x.reshape((4, 3, 2, 20)).transpose((0, 2, 1, 3)).reshape((4, 6, 4, 5))

    assert op_types(MergeIdioms()(graph_of(spelling, (4, 6, 4, 5)))) == ["ChannelShuffle"]


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: shuffled(x, 2, 4, 5, perm=(0, 2, 1, 4, 3)).reshape((2, 6, 20)),
        lambda x: shuffled(x, 2, 4, 5, perm=(0, 1, 2, 4, 3)),
        lambda x: x.reshape((2, 2, 3, 4, 5)).transpose((0, 2, 1, 3, 4)).reshape((2, 6, 5, 4)),
        lambda x: x.reshape((2, 2, 3, 4, 5)).transpose((0, 2, 1, 3, 4)),
        lambda x: x.reshape((4, 3, 4, 5)).transpose((0, 2, 1, 3)).reshape(IMAGE),
    ],
)
def test_other_permutations_stay(spelling: Spelling, op_types: OpTypes) -> None:
    before = graph_of(spelling)
    assert op_types(MergeIdioms()(before)) == op_types(before)


def test_a_shuffle_whose_middle_is_read_stays(op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", IMAGE)
    apart = x.reshape((2, 2, 3, 4, 5)).transpose((0, 2, 1, 3, 4))
    b.output("y", apart.reshape(IMAGE))
    b.output("z", apart.relu())
    assert "ChannelShuffle" not in op_types(MergeIdioms()(b.to_graph()))


def joined(b: Builder, n: int, channels: int = 4) -> list[BuildValue]:
    return [b.input(f"x{index}", (2, channels, 4, 5)).relu() for index in range(n)]


@pytest.mark.parametrize(("n", "n_parts"), [(2, 1), (2, 2), (3, 2), (2, 4)])
def test_groups_are_shuffled_from_where_they_are_to_where_they_go(n: int, n_parts: int, op_types: OpTypes) -> None:
    b = Builder()
    y = shuffled(b.concat(joined(b, n), 1), n, 4, 5)
    parts = y.split([4 * n // n_parts] * n_parts, 1) if n_parts > 1 else (y,)
    for index, part in enumerate(parts):
        b.output(f"y{index}", part.relu())
    graph = b.to_graph()
    after = MergeIdioms()(graph)
    (shuffle,) = (node for node in after.nodes if node.op_type == "ChannelShuffle")
    assert shuffle.attrs == {"groups": n} | ({"parts": n_parts} if n_parts > 1 else {})
    assert len(shuffle.inputs) == n
    assert not {"Concat", "Reshape", "Transpose"} & {*op_types(after)}
    x = np.random.default_rng(0).standard_normal((n, 2, 4, 4, 5)).astype(np.float32)
    feed = {f"x{index}": each for index, each in enumerate(x)}
    for found, right in zip(bl.load(b).run(None, feed), ReferenceEvaluator(b.to_onnx()).run(None, feed), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize(
    "take",
    [
        lambda y: [*y.split([2, 6], 1)],  # not equal
        lambda y: [*y.split([4, 4], 1), y],  # read whole as well
        lambda y: [*y.split([1] * 8, 1)],  # within a pair
        lambda y: [*y.split([2, 2], 2)],  # of rows
    ],
)
def test_a_shuffle_is_cut_into_equal_parts_alone(take: Callable[[BuildValue], list[BuildValue]]) -> None:
    b = Builder()
    for index, part in enumerate(take(shuffled(b.concat(joined(b, 2), 1), 2, 4, 5))):
        b.output(f"y{index}", part.relu())
    (shuffle,) = (node for node in MergeIdioms()(b.to_graph()).nodes if node.op_type == "ChannelShuffle")
    assert shuffle.attrs == {"groups": 2}
    assert len(shuffle.inputs) == 2


@pytest.mark.parametrize(
    "join",
    [
        lambda b, xs: b.concat(xs, 1),  # of three, in two groups
        lambda b, xs: b.concat([*xs[:1], b.concat(xs[1:], 1)], 1),  # of different ones
    ],
)
def test_a_shuffle_of_other_groups_reads_what_was_joined(join: Callable[..., BuildValue]) -> None:
    b = Builder()
    b.output("y", shuffled(join(b, joined(b, 3)), 2, 4, 5))
    (shuffle,) = (node for node in MergeIdioms()(b.to_graph()).nodes if node.op_type == "ChannelShuffle")
    assert len(shuffle.inputs) == 1


def test_what_was_joined_and_is_read_elsewhere_stays(op_types: OpTypes) -> None:
    b = Builder()
    x = b.concat(joined(b, 2), 1)
    b.output("y", shuffled(x, 2, 4, 5))
    b.output("z", x.relu())
    assert {"Concat", "ChannelShuffle"} <= {*op_types(MergeIdioms()(b.to_graph()))}


# --- depth and space


@pytest.mark.parametrize(("opset", "attrs"), [(9, {}), (13, {}), (13, {"mode": "DCR"}), (13, {"mode": "CRD"})], ids=str)
def test_depth_to_space_is_views(opset: int, attrs: dict[str, str], assert_same: Same, op_types: OpTypes) -> None:
    before = graph_of(lambda x: op("DepthToSpace", x, blocksize=2, **attrs), (2, 12, 3, 4), opset)
    after = Decompose()(before)
    assert op_types(after) == ["Reshape", "Transpose", "Reshape"]
    assert after.nodes[-1].name == before.nodes[0].name
    assert_same(before, after)


@pytest.mark.parametrize(("opset", "attrs"), [(9, {}), (28, {"mode": "DCR"}), (28, {"mode": "CRD"})], ids=str)
def test_space_to_depth_is_views(opset: int, attrs: dict[str, str], assert_same: Same, op_types: OpTypes) -> None:
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("this onnx knows no modes")
    before = graph_of(lambda x: op("SpaceToDepth", x, blocksize=2, **attrs), (2, 3, 4, 6), opset)
    assert op_types(Decompose()(before)) == ["Reshape", "Transpose", "Reshape"]
    assert_same(before, Decompose()(before))


# --- pools


def reduced(op_type: str, x: BuildValue, *axes: int, keepdims: int = 1) -> BuildValue:
    if x.builder.opset < 18:
        return op(op_type, x, axes=axes, keepdims=keepdims)
    return op(op_type, x, np.array(axes), keepdims=keepdims)


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(
    ("expected", "spelling"),
    [
        (["GlobalAveragePool"], lambda x: reduced("ReduceMean", x, 2, 3)),
        (["GlobalAveragePool"], lambda x: reduced("ReduceMean", x, -1, 2)),
        (["GlobalAveragePool", "Reshape"], lambda x: reduced("ReduceMean", x, 2, 3, keepdims=0)),
        (["GlobalMaxPool"], lambda x: reduced("ReduceMax", x, 2, 3)),
        (["GlobalMaxPool", "Reshape"], lambda x: reduced("ReduceMax", x, 3, 2, keepdims=0)),
        (["GlobalAveragePool"], lambda x: x.average_pool((4, 5))),
        (["GlobalMaxPool"], lambda x: x.max_pool((4, 5), strides=2)),
        (["MaxPool"], lambda x: x.max_pool((4, 5), strides=2, pads=1)),
        (["MaxPool"], lambda x: x.max_pool((4, 4), strides=2)),
        (["ReduceMean"], lambda x: reduced("ReduceMean", x, 3)),
        (["ReduceMean"], lambda x: reduced("ReduceMean", x, 1, 2, 3)),
        (["ReduceSum"], lambda x: op("ReduceSum", x)),
    ],
)
def test_reductions_of_whole_images_are_pools(
    opset: int, expected: list[str], spelling: Spelling, assert_same: Same, op_types: OpTypes
) -> None:
    before = graph_of(spelling, opset=opset)
    after = Decompose()(before)
    assert op_types(after) == expected
    assert_same(before, after)


# --- pads


W = np.random.default_rng(5).standard_normal((4, 6, 3, 3)).astype(np.float32)
LOWEST = float(np.finfo(np.float32).min)


def padded(x: BuildValue, *pads: int, value: float | None = None) -> BuildValue:
    """``pads`` of the spatial dimensions: beginnings, then ends."""
    whole = (0, 0, *pads[:2], 0, 0, *pads[2:])
    if x.builder.opset < 11:
        return op("Pad", x, pads=whole, value=value)
    return op("Pad", x, np.array(whole), *(() if value is None else (value,)))


def by_axes(x: BuildValue) -> BuildValue:
    return op("Pad", x, np.array([1, 2, 0, 1]), None, np.array([2, -1]))


FOLDED: list[tuple[list[str], Spelling]] = [
    (["Conv"], lambda x: padded(x, 1, 2, 0, 1).conv(W)),
    (["Conv"], lambda x: padded(x, 1, 1, 1, 1, value=0.0).conv(W, pads=(0, 1, 2, 3), strides=2)),
    (["AveragePool"], lambda x: padded(x, 1, 1, 1, 1).average_pool(3)),
    (["AveragePool"], lambda x: padded(x, 1, 0, 0, 1).average_pool(3, pads=1, count_include_pad=True, strides=1)),
    (["MaxPool"], lambda x: padded(x, 1, 1, 1, 1, value=LOWEST).max_pool(3)),
    (["Relu", "MaxPool"], lambda x: padded(x.relu(), 1, 0, 1, 1).max_pool(3, strides=2)),
    (["Clip", "MaxPool", "MaxPool"], lambda x: padded(x.clip(0, 6).max_pool(2), 1, 1, 1, 1).max_pool(2)),
]


@pytest.mark.parametrize(("expected", "spelling"), FOLDED)
@pytest.mark.parametrize("opset", [9, 13])
def test_padding_is_the_next_windows_own(
    opset: int, expected: list[str], spelling: Spelling, assert_same_in_onnxruntime: Same, op_types: OpTypes
) -> None:
    before = graph_of(spelling, opset=opset)
    after = FoldPads()(before)
    assert op_types(after) == expected
    assert after.nodes[-1].absorbed == (next(node.name for node in before.nodes if node.op_type == "Pad"),)
    assert_same_in_onnxruntime(before, after)


def test_padding_of_chosen_axes_is_folded(assert_same: Same, op_types: OpTypes) -> None:
    before = graph_of(lambda x: by_axes(x).conv(W), opset=18)
    after = FoldPads()(before)
    assert op_types(after) == ["Conv"]
    assert after.nodes[0].attrs["pads"] == (1, 2, 0, 1)
    assert_same(before, after)


def test_padding_is_folded_into_all_readers(assert_same: Same, op_types: OpTypes) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        wide = padded(x, 1, 1, 1, 1)
        return wide.conv(W) + wide.conv(W, pads=1, strides=1).max_pool(3, strides=1)

    before = graph_of(spelling)
    after = FoldPads()(before)
    assert op_types(after) == ["Conv", "Conv", "MaxPool", "Add"]
    assert_same(before, after)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: padded(x, 1, 1, 1, 1, value=1.0).conv(W),
        lambda x: op("Pad", x, np.array([0, 1, 0, 0, 0, -1, 0, 0])).conv(W),
        lambda x: op("Pad", x, np.array([1, 0, 1, 1, 0, 0, 1, 1])).conv(W),
        lambda x: padded(x, -1, 0, 0, 0).conv(W),
        lambda x: op("Pad", x, np.array([0, 0, 1, 1, 0, 0, 1, 1]), mode="edge").conv(W),
        lambda x: padded(x, 1, 1, 1, 1).max_pool(3),
        lambda x: padded(x.sigmoid() - 1, 1, 1, 1, 1).max_pool(3),
        lambda x: padded(x.relu(), 3, 3, 3, 3).max_pool(3),
        lambda x: padded(x, 1, 1, 1, 1).average_pool(3, pads=1),
        lambda x: padded(x, 1, 1, 1, 1).average_pool(3, strides=2, ceil_mode=True),
        lambda x: padded(x, 1, 1, 1, 1).conv_transpose(np.ones((6, 2, 3, 3), np.float32)),
        lambda x: op("Conv", padded(x, 1, 1, 1, 1), W, auto_pad="SAME_UPPER"),
        lambda x: padded(x, 1, 1, 1, 1).relu().conv(W),
    ],
)
def test_other_padding_stays(spelling: Spelling, op_types: OpTypes) -> None:
    assert "Pad" in op_types(FoldPads()(graph_of(spelling)))


def test_padding_that_others_read_stays(op_types: OpTypes) -> None:
    b = Builder()
    wide = padded(b.input("x", IMAGE), 1, 1, 1, 1)
    b.output("wide", wide)
    b.output("y", wide.conv(W))
    assert op_types(FoldPads()(b.to_graph())) == ["Pad", "Conv"]
    b = Builder()
    wide = padded(b.input("x", IMAGE), 1, 1, 1, 1)
    b.output("y", wide.conv(W))
    b.output("z", wide.relu())
    assert op_types(FoldPads()(b.to_graph())) == ["Pad", "Conv", "Relu"]


# --- what is known already


def test_a_constant_cast_like_something_computed_is_known(assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    x = b.input("x", (2, 3))
    b.output("y", x + op("CastLike", b.input("c", (3,), "s64"), x))
    graph = b.to_graph()
    before = graph.replace(inputs=("x",), values={**graph.values, "c": constant_value("c", np.array([1, 2, 3]))})
    assert op_types(before) == ["CastLike", "Add"]
    after = FoldConstants()(before)
    assert op_types(after) == ["Add"]
    assert_same(before, after)


@pytest.mark.parametrize("is_read", [True, False])
def test_the_mask_of_a_dropout_in_inference_is_known(*, is_read: bool, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder(opset=13)
    y, mask = b.op("Dropout", b.input("x", (2, 3)).relu(), 0.5, n_outputs=2)
    if is_read:
        b.output("y", y)
    b.output("mask", mask)
    before = b.to_graph()
    after = simplify(before, (RemoveDead(), FoldMasks(), RemoveDead()))
    assert op_types(after) == (["Relu", "Dropout"] if is_read else [])
    assert_same(before, after)


def test_the_mask_of_a_dropout_in_training_stays() -> None:
    b = Builder(opset=13)
    y, mask = b.op("Dropout", b.input("x", (2, 3)), 0.5, True, n_outputs=2)
    b.output("y", y)
    b.output("mask", mask)
    after = FoldMasks()(b.to_graph())
    assert after.nodes[0].outputs == ("y", "mask")


# --- expansions and choices


@pytest.mark.parametrize(
    ("spelling", "n_expands"),
    [
        (lambda x, z: x + op("Expand", z, np.array(IMAGE)), 0),
        (lambda x, z: op("Max", op("Expand", z, np.array(IMAGE)), x), 0),
        (lambda x, z: op("Expand", x, np.array((3, 2, 6, 4, 5))) * z, 1),
        (lambda x, z: op("Expand", z, np.array((3, 1, 6, 1, 1))) + op("Expand", x, np.array((3, 2, 6, 4, 5))), 1),
        (lambda x, z: op("Concat", x, op("Expand", z, np.array(IMAGE)), axis=1), 1),
        (lambda x, z: op("PRelu", x, op("Expand", z, np.array(IMAGE))), 0),
        (lambda x, z: op("PRelu", op("Expand", z, np.array(IMAGE)), x), 1),
    ],
)
def test_expansion_before_broadcasting_goes(
    spelling: Callable[[BuildValue, BuildValue], BuildValue], n_expands: int, assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    b.output("y", spelling(b.input("x", IMAGE), b.input("z", (6, 1, 1))))
    before = b.to_graph()
    after = DropExpands()(before)
    assert op_types(after).count("Expand") == n_expands
    assert_same(before, after)


def test_an_expansion_that_is_an_output_stays(op_types: OpTypes) -> None:
    b = Builder()
    wide = op("Expand", b.input("z", (6, 1, 1)), np.array(IMAGE))
    b.output("wide", wide)
    b.output("y", wide + b.input("x", IMAGE))
    assert op_types(DropExpands()(b.to_graph())) == ["Expand", "Add"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (np.ones((5,), bool), ["Relu"]),
        (np.zeros((1, 1, 4, 1), bool), ["Sigmoid"]),
        (np.array([True, False, True, True, True]), ["Relu", "Sigmoid", "Where"]),
        (np.ones((3, 1, 1, 1, 1), bool), ["Relu", "Sigmoid", "Where"]),
    ],
)
def test_a_choice_made_already_goes(
    condition: np.ndarray, expected: list[str], assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    x = b.input("x", IMAGE)
    b.output("y", op("Where", b.constant(condition), x.relu(), x.sigmoid()))
    before = b.to_graph()
    after = simplify(before, (DropNoOps(), RemoveDead()))
    assert op_types(after) == expected
    assert_same(before, after)
