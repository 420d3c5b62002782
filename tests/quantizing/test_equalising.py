"""Equalised networks compute the same bits, with like ranges on both sides of the channels between their layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.model import Builder, BuildValue, Graph, simplify
from blocklayout.quantizing.equalising import equalised
from blocklayout.quantizing.layers import choose
from blocklayout.quantizing.recipe import QuantizationRecipe

SHAPE = (2, 4, 8, 8)


def uneven(*shape: int, seed: int = 0) -> np.ndarray:
    """Random weights whose ranges along dimensions 0 and 1 differ by powers of two; some are 0."""
    rng = np.random.default_rng((seed, *shape))
    array = rng.uniform(0.5, 1, shape) * rng.choice([-1, 1], shape)
    for dim, extent in enumerate(shape[:2]):
        factors = 2.0 ** rng.integers(-2, 2, extent) * (rng.random(extent) > (0.1 if extent > 1 else 0))
        array *= factors.reshape([-1 if other == dim else 1 for other in range(len(shape))])
    numbers: np.ndarray = array.astype(np.float32)
    return numbers


Step = Callable[[Builder, BuildValue, int], BuildValue]

STEPS: dict[str, Step] = {
    "pointwise": lambda _, x, seed: x.conv(uneven(8, x.shape[1], 1, 1, seed=seed), uneven(8, seed=seed)),
    "3x3": lambda _, x, seed: x.conv(uneven(4, x.shape[1], 3, 3, seed=seed), pads=1),
    "groups": lambda _, x, seed: x.conv(uneven(12, x.shape[1] // 2, 3, 3, seed=seed), group=2, pads=1),
    "depthwise": lambda _, x, seed: x.conv(
        uneven(x.shape[1], 1, 3, 3, seed=seed), uneven(x.shape[1], seed=seed), group=x.shape[1], pads=1
    ),
    "two of each": lambda _, x, seed: x.conv(uneven(2 * x.shape[1], 1, 1, 1, seed=seed), group=x.shape[1]),
    "ConvTranspose": lambda b, x, seed: b.op(
        "ConvTranspose", x, uneven(x.shape[1], 4, 2, 2, seed=seed), uneven(4, seed=seed)
    ),
    "Relu": lambda _, x, __: x.relu(),
    "LeakyRelu": lambda b, x, _: b.op("LeakyRelu", x, alpha=0.1),
    "PRelu": lambda b, x, seed: b.op("PRelu", x, uneven(x.shape[1], 1, 1, seed=seed)),
    "MaxPool": lambda b, x, _: b.op("MaxPool", x, kernel_shape=[2, 2]),
    "AveragePool": lambda b, x, _: b.op("AveragePool", x, kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
    "Clip": lambda b, x, _: b.op("Clip", x, np.float32(0), np.float32(6)),
    "residual": lambda _, x, seed: x + x.conv(uneven(x.shape[1], x.shape[1], 1, 1, seed=seed)).relu(),
}
HEADS: dict[str, Step] = {
    "none": lambda _, x, __: x,
    "Flatten": lambda b, x, seed: _dense(b, x.flatten(), seed),
    "Reshape": lambda b, x, seed: _dense(b, b.op("GlobalAveragePool", x).reshape((2, -1)), seed),
    "MatMul": lambda b, x, seed: b.op(
        "MatMul", (b.op("MatMul", x, uneven(x.shape[3], 5, seed=seed)) + uneven(5, seed=seed)).relu(), uneven(5, 3)
    ),
}


def _dense(b: Builder, x: BuildValue, seed: int) -> BuildValue:
    hidden = x.gemm(uneven(x.shape[1], 6, seed=seed), uneven(6, seed=seed)).relu()
    result: BuildValue = b.op("Gemm", hidden, uneven(3, 6, seed=seed), uneven(3), transB=1, alpha=0.5, beta=2.0)
    return result


def built(steps: list[str], head: str = "none", seed: int = 0) -> Graph:
    b = Builder()
    x = b.input("x", SHAPE)
    for number, name in enumerate(steps):
        x = STEPS[name](b, x, seed + number)
    b.output("y", HEADS[head](b, x, seed))
    return simplify(b.to_graph())


def after(graph: Graph, recipe: Any = None) -> Graph:
    return equalised(graph, choose(graph, QuantizationRecipe.of(recipe)).layers).validate()


def answer(graph: Graph) -> np.ndarray:
    feed = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    with bl.load(graph, tune="model", recipes={"winograd": False}) as session:
        return np.asarray(session(feed))


def ranges(graph: Graph, number: int, *others: int) -> np.ndarray:
    """The largest magnitudes of a layer's weights, by number, along the dimension that is not among ``others``."""
    layer = [*choose(graph, QuantizationRecipe()).layers.values()][number]
    found: np.ndarray = np.abs(layer.weights).max(others)
    return found


@given(st.lists(st.sampled_from([*STEPS]), max_size=6), st.sampled_from([*HEADS]), st.integers(0, 99))
def test_the_same_bits_come_out(steps: list[str], head: str, seed: int) -> None:
    before = built(steps, head, seed)
    found = after(before)
    np.testing.assert_array_equal(answer(found), answer(before))
    assert after(found) is found, "all pairs are alike to a factor of two"


def test_ranges_are_alike_on_both_sides() -> None:
    graph = after(built(["pointwise", "Relu", "depthwise", "MaxPool", "LeakyRelu", "3x3"]))
    for written, read in (
        (ranges(graph, 0, 1, 2, 3), ranges(graph, 1, 1, 2, 3)),
        (ranges(graph, 1, 1, 2, 3), ranges(graph, 2, 0, 2, 3)),
    ):
        some = (written > 0) & (read > 0)
        assert some.sum() >= 5
        assert (np.abs(np.log2(written[some] / read[some])) <= 1).all()


@pytest.mark.parametrize("head", ["Flatten", "Reshape"])
def test_channels_are_runs_of_inputs_of_a_product_behind(head: str) -> None:
    before = built(["3x3"], head)
    graph = after(before)
    written, read = ranges(graph, 0, 1, 2, 3), ranges(graph, 1, 1).reshape(4, -1).max(1)
    some = (written > 0) & (read > 0)
    assert (np.abs(np.log2(written[some] / read[some])) <= 1).all()
    assert (ranges(before, 0, 1, 2, 3) != written).any()


@pytest.mark.parametrize("between", ["Clip", "residual", "another reader", "an output", "f32", "turned"])
def test_other_layers_stay(between: str) -> None:
    b = Builder()
    first = b.input("x", SHAPE).conv(uneven(8, 4, 1, 1), uneven(8), name="first")
    middle = STEPS[between](b, first, 0) if between in STEPS else first.relu()
    if between == "another reader":
        b.output("z", b.op("Exp", middle))
    if between == "an output":
        b.output("z", middle)
    middle = b.op("Transpose", middle, perm=[0, 2, 1, 3]) if between == "turned" else middle
    b.output("y", middle.conv(uneven(3, 8, 1, 1), name="second"))
    graph = simplify(b.to_graph())
    assert after(graph, {"exceptions": {"second": "f32"}} if between == "f32" else None) is graph


def test_scales_are_bounded_and_channels_of_0_stay() -> None:
    weights = np.ones((3, 4, 1, 1), np.float32) * np.array([1e-20, 0, 1], np.float32).reshape(3, 1, 1, 1)
    b = Builder()
    b.output("y", b.input("x", SHAPE).conv(weights, np.ones(3, np.float32)).conv(np.full((2, 3, 1, 1), 4, np.float32)))
    graph = after(simplify(b.to_graph()))
    np.testing.assert_array_equal(ranges(graph, 0, 1, 2, 3), weights[:, 0, 0, 0] * [2**13, 1, 2])
    np.testing.assert_array_equal(ranges(graph, 1, 0, 2, 3), 4 / np.array([2**13, 1, 2]))


def test_weights_without_elements_stay() -> None:
    b = Builder()
    x = b.input("x", (2, 4)).gemm(np.ones((4, 0), np.float32))
    b.output("y", x.gemm(np.ones((0, 3), np.float32)))
    graph = simplify(b.to_graph())
    assert after(graph) is graph


def test_one_scale_for_uneven_weights_loses_less() -> None:
    rng = np.random.default_rng(0)
    factors = np.float32(2) ** rng.integers(-5, 6, 16).astype(np.float32)
    first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 4, 3, 3), (8, 16, 1, 1)))
    b = Builder()
    x = b.input("x", SHAPE).conv(first * factors.reshape(16, 1, 1, 1)).relu()
    b.output("y", x.conv(second / factors.reshape(16, 1, 1)))
    data = [rng.standard_normal(SHAPE).astype(np.float32) for _ in range(4)]
    expected = np.asarray(bl.load(b)(data[0]))
    for weights, factor in (("tensor", 10), ("channel", 5)):
        errors = []
        for is_equalised in (False, True):
            recipe = {"max_error": "any", "weights": weights, "equalisation": is_equalised}
            model = bl.quantize(b, data, recipe)
            errors.append(np.linalg.norm(np.asarray(bl.load(model)(data[0])) - expected))
        assert errors[1] < errors[0] / factor
