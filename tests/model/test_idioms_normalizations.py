"""Normalisations that exporters write as several nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from blocklayout.model import Builder, BuildValue, Graph, simplify
from blocklayout.model.passes.idioms import MergeIdioms
from blocklayout.model.passes.one_walk import RemoveDead

Same = Callable[[Graph, Graph], None]
OpTypes = Callable[[Graph], list[str]]
Spelling = Callable[[BuildValue], BuildValue]

PASSES = (RemoveDead(), MergeIdioms())
IMAGE = (2, 6, 4, 5)
RNG = np.random.default_rng(3)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def same(n: int, number: float) -> np.ndarray:
    return np.full(n, number, np.float32)


def op(op_type: str, *args: Any, **attrs: Any) -> BuildValue:
    builder = next(arg.builder for arg in args if isinstance(arg, BuildValue))
    result: BuildValue = builder.op(op_type, *args, **attrs)
    return result


def graph_of(spelling: Spelling, shape: tuple[int, ...] = IMAGE, opset: int = 21) -> Graph:
    b = Builder(opset=opset)
    b.output("y", spelling(b.input("x", shape) + b.input("z", shape)))
    return b.to_graph()


def check(before: Graph, expected: str, assert_same: Same) -> Graph:
    after = simplify(before, PASSES)
    assert [node.op_type for node in after.nodes] == ["Add", expected]
    assert_same(before, after)
    names = set(after.nodes[1].absorbed) | {node.name for node in after.nodes}
    assert names == {node.name for node in before.nodes}
    return after


def mean(x: BuildValue, *axes: int) -> BuildValue:
    if x.builder.opset < 18:
        return op("ReduceMean", x, axes=axes, keepdims=1)
    return op("ReduceMean", x, np.array(axes), keepdims=1)


def normal(x: BuildValue, *axes: int, epsilon: float = 1e-3) -> BuildValue:
    centred = x - mean(x, *axes)
    return centred / op("Sqrt", mean(op("Pow", centred, 2.0), *axes) + epsilon)


def twice_centred(x: BuildValue) -> BuildValue:
    m = mean(x, -1)
    again = x - m
    return (x - m) / op("Pow", mean(again * again, -1) + 1e-3, 0.5)


def by_inverse(x: BuildValue) -> BuildValue:
    centred = x - mean(x, -1)
    return centred * op("Reciprocal", op("Sqrt", mean(centred * centred, -1) + 1e-3))


def by_power(x: BuildValue) -> BuildValue:
    centred = x - mean(x, -1)
    return centred * op("Pow", mean(centred * centred, -1) + 1e-3, -0.5) * array(5) + array(5)


def distributed(x: BuildValue) -> BuildValue:
    """As Keras does: x * (scale / s) + (shift - mean * (scale / s))."""
    m = mean(x, -1)
    centred = x - m
    factor = op("Reciprocal", op("Sqrt", mean(centred * centred, -1) + 1e-3)) * array(5)
    return x * factor + (op("Sub", array(5), m * factor))


LAYER_NORMS: list[Spelling] = [
    lambda x: normal(x, -1),
    lambda x: normal(x, 3) * array(5) + array(5),
    lambda x: array(5) + array(1, 1, 5) * normal(x, 3),
    lambda x: normal(x, 2, 3) * array(4, 5) + array(1, 4, 5),
    lambda x: normal(x, 1, 2, 3) * array(6, 1, 1),
    lambda x: normal(x, 3) * 2 - 1,
    twice_centred,
    by_inverse,
    by_power,
    distributed,
]


@pytest.mark.parametrize("spelling", LAYER_NORMS)
@pytest.mark.parametrize("opset", [17, 21])
def test_every_layer_normalization_is_one_operator(spelling: Spelling, opset: int, assert_same: Same) -> None:
    check(graph_of(spelling, opset=opset), "LayerNormalization", assert_same)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: normal(x, 2, 3),
        lambda x: normal(x, 2, 3) * array(6, 1, 1) + array(6, 1, 1),
        lambda x: normal(x, 2, 3) + array(1, 6, 1, 1),
    ],
)
def test_normalization_of_images_is_one_operator(spelling: Spelling, assert_same: Same) -> None:
    check(graph_of(spelling), "InstanceNormalization", assert_same)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: normal(x, 1),
        lambda x: normal(x, 1) * array(6, 1, 1) + array(6, 1, 1),
        lambda x: normal(x, 1) * array(1, 6, 1, 1),
    ],
)
def test_normalization_of_channels_alone_is_one_operator_between_transposes(
    spelling: Spelling, assert_same: Same, op_types: OpTypes
) -> None:
    before = graph_of(spelling)
    after = simplify(before, PASSES)
    assert [each for each in op_types(after) if each not in ("Add", "Identity")] == [
        "Transpose",
        "LayerNormalization",
        "Transpose",
    ]
    assert_same(before, after)


def other_means(x: BuildValue) -> BuildValue:
    centred = x - mean(x, 3)
    return centred / op("Sqrt", mean(centred * centred, 2) + 1e-3)


def other_power(x: BuildValue) -> BuildValue:
    centred = x - mean(x, 3)
    return centred / op("Sqrt", mean(op("Pow", centred, 3.0), 3) + 1e-3)


def other_centre(x: BuildValue) -> BuildValue:
    return x / op("Sqrt", mean(x * x, 3) + 1e-3)


def without_rank(x: BuildValue) -> BuildValue:
    m = op("ReduceMean", x, np.array([0]), keepdims=0)
    centred = x - m
    return centred / op("Sqrt", op("ReduceMean", centred * centred, np.array([0]), keepdims=0) + 1e-3)


def read_twice(x: BuildValue) -> BuildValue:
    m = mean(x, 3)
    centred = x - m
    return centred / op("Sqrt", mean(centred * centred, 3) + 1e-3) + m


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: normal(x, 0, 3),
        lambda x: normal(x, 0),
        other_means,
        other_power,
        other_centre,
        without_rank,
        read_twice,
    ],
)
def test_another_normalization_stays(spelling: Spelling, op_types: OpTypes) -> None:
    before = graph_of(spelling)
    assert op_types(simplify(before, PASSES)) == op_types(before)


def test_scales_along_other_dimensions_stay_behind(assert_same: Same, op_types: OpTypes) -> None:
    before = graph_of(lambda x: normal(x, 3) * array(4, 5))
    after = simplify(before, PASSES)
    assert op_types(after) == ["Add", "LayerNormalization", "Mul"]
    assert_same(before, after)


def test_the_mean_as_an_output_keeps_the_nodes(op_types: OpTypes) -> None:
    graph = graph_of(lambda x: normal(x, 3))
    before = graph.replace(outputs=("y", graph.nodes[1].outputs[0]))
    assert op_types(simplify(before, PASSES)) == op_types(before)


# --- groups


def grouped(x: BuildValue, groups: int = 3) -> BuildValue:
    n, channels, *_ = x.shape
    apart = x.reshape((0, groups, -1))
    y = op("InstanceNormalization", apart, array(groups), array(groups), epsilon=1e-3).reshape(x.shape)
    assert n == 2
    return y * array(channels, 1, 1) + array(channels, 1, 1)


def test_group_normalization_is_one_operator(assert_same: Same) -> None:
    after = check(graph_of(grouped), "GroupNormalization", assert_same)
    assert after.nodes[1].attrs["num_groups"] == 3


def test_scales_of_channels_stay_behind_where_the_operator_set_has_none(op_types: OpTypes) -> None:
    after = simplify(graph_of(grouped, opset=17), PASSES)
    assert op_types(after) == ["Add", "GroupNormalization", "Mul", "Add"]
    assert [after.shape(name) for name in after.nodes[1].inputs[1:]] == [(3,), (3,)]


def test_group_normalization_without_scales_is_one_operator(assert_same: Same) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        return op("InstanceNormalization", x.reshape((2, 2, 3, 20)), same(2, 1), same(2, 0)).reshape(x.shape)

    check(graph_of(spelling), "GroupNormalization", assert_same)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: op("InstanceNormalization", x.reshape((2, 4, -1)), same(4, 1), same(4, 0)).reshape(x.shape),
        lambda x: op("InstanceNormalization", x.reshape((1, 6, -1)), same(6, 1), same(6, 0)).reshape(x.shape),
        lambda x: op("InstanceNormalization", x.reshape((2, 3, -1)), same(3, 1), same(3, 0)).reshape((2, 6, 20)),
    ],
)
def test_instances_that_are_no_groups_stay(spelling: Spelling, op_types: OpTypes) -> None:
    before = graph_of(spelling)
    assert op_types(simplify(before, PASSES)) == op_types(before)


# --- local response


def local(x: BuildValue, size: int = 3, beta: float = 0.75, *, is_counted: bool = False) -> BuildValue:
    """As PyTorch writes it: channels become a spatial dimension, and zeros are padded."""
    n, channels, *spatial = x.shape
    rest = [spatial[0], -1] if len(spatial) > 1 else spatial
    seen = (x * x).reshape((n, 1, channels, *rest))
    ndims = len(seen.shape)
    half = [0, 0, size // 2] + [0] * (ndims - 3)
    kernel = (size, *(1,) * (ndims - 3))
    if is_counted:
        pads = (*half[2:], *half[2:])
        average = op("AveragePool", seen, kernel_shape=kernel, pads=pads, count_include_pad=1)
    else:
        average = op("AveragePool", op("Pad", seen, np.array([*half, *half])), kernel_shape=kernel)
    return x / op("Pow", average.reshape(x.shape) * 0.5 + 2, beta)


@pytest.mark.parametrize("is_counted", [False, True], ids=["pad", "pool"])
def test_a_local_response_normalization_is_one_operator(*, is_counted: bool, assert_same_in_onnxruntime: Same) -> None:
    before = graph_of(lambda x: local(x, is_counted=is_counted), opset=17)
    after = check(before, "LRN", assert_same_in_onnxruntime)
    assert after.nodes[1].attrs == {"size": 3, "alpha": 0.5, "beta": 0.75, "bias": 2.0}


@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 6, 2, 2, 3)])
def test_the_local_response_of_any_rank_is_one_operator(shape: tuple[int, ...], op_types: OpTypes) -> None:
    assert op_types(simplify(graph_of(local, shape, opset=17), PASSES)) == ["Add", "LRN"]


@pytest.mark.parametrize("size", [2, 4])
def test_an_even_number_of_channels_stays(size: int, op_types: OpTypes) -> None:
    def spelling(x: BuildValue) -> BuildValue:
        half = [0, 0, size // 2, 0, 0, 0, 0, (size - 1) // 2, 0, 0]
        seen = op("Pad", (x * x).reshape((2, 1, 6, 4, 5)), np.array(half))
        return x / op("Pow", op("AveragePool", seen, kernel_shape=(size, 1, 1)).reshape(x.shape) * 0.5 + 2, 0.75)

    before = graph_of(spelling, opset=17)
    assert op_types(simplify(before, PASSES)) == op_types(before)


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: local(x * 2) + x,
        lambda x: (x + 1) / op("Pow", 1 + local(x), 0.75),
        lambda x: x / op("Pow", op("AveragePool", x * x, kernel_shape=(3, 1), pads=(1, 0, 1, 0)) + 2, 0.75),
    ],
)
def test_other_averages_stay(spelling: Spelling, op_types: OpTypes) -> None:
    before = graph_of(spelling, opset=17)
    after = op_types(simplify(before, PASSES))
    assert "Add" in after
    assert after == op_types(before) or "LRN" in after
