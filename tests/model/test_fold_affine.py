"""Scales and shifts, folded into the weights in front of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from blocklayout.model import Builder, Graph
from blocklayout.model.passes.fold_affine import FoldAffine

Same = Callable[[Graph, Graph], None]
OpTypes = Callable[[Graph], list[str]]
Rng = np.random.Generator


def _array(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


# --- scale and shift


def _norm(rng: Rng, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return _array(rng, n), _array(rng, n), _array(rng, n), np.abs(_array(rng, n)) + 0.1


@pytest.mark.parametrize("has_bias", ["", "bias"])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_goes_into_a_convolution(
    has_bias: str, group: int, rng: Rng, assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    bias = _array(rng, 6) if has_bias else None
    y = b.input("x", (2, 4, 5, 5)).conv(_array(rng, 6, 4 // group, 3, 3), bias, group=group, pads=1, strides=2)
    b.output("y", y.batch_norm(*_norm(rng, 6)).relu())
    after = FoldAffine()(b.to_graph())
    assert op_types(after) == ["Conv", "Relu"]
    assert_same(b.to_graph(), after)


@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_goes_into_a_transposed_convolution(
    group: int, rng: Rng, assert_same_in_onnxruntime: Same, op_types: OpTypes
) -> None:
    b = Builder()
    y = b.input("x", (2, 4, 5, 5)).conv_transpose(_array(rng, 4, 3, 3, 3), strides=2, group=group)
    b.output("y", y.batch_norm(*_norm(rng, 3 * group)))
    after = FoldAffine()(b.to_graph())
    assert op_types(after) == ["ConvTranspose"]
    # the reference cannot compute groups
    assert_same_in_onnxruntime(b.to_graph(), after)


@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize("c_shape", [None, (), (3,), (1, 3), (2, 1), (2, 3)])
def test_batch_norm_goes_into_gemm(
    order: str, c_shape: tuple[int, ...] | None, rng: Rng, assert_same: Same, op_types: OpTypes
) -> None:
    b = Builder()
    weights = _array(rng, *((3, 4) if order == "nk" else (4, 3)))
    c = None if c_shape is None else _array(rng, *c_shape)
    y = b.input("x", (2, 4)).gemm(weights, c, alpha=0.5, beta=None if c is None else 2.0, trans_b=order == "nk")
    b.output("y", y.batch_norm(*_norm(rng, 3)))
    after = FoldAffine()(b.to_graph())
    assert op_types(after) == ["Gemm"]
    assert_same(b.to_graph(), after)


def test_scale_and_shift_behind_a_batch_norm_go_along(rng: Rng, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    y = b.input("x", (2, 3, 5, 5)).conv(_array(rng, 4, 3, 1, 1), name="c").batch_norm(*_norm(rng, 4), name="n")
    y = y * _array(rng, 4, 1, 1) + _array(rng, 1, 4, 1, 1) - 0.5
    b.output("y", y / np.float32(3))
    after = FoldAffine()(b.to_graph())
    assert op_types(after) == ["Conv"]
    assert after.nodes[0].absorbed == ("n", "mul_2", "add_3", "sub_4", "div_5")
    assert_same(b.to_graph(), after)


def test_a_batch_norm_alone_takes_what_follows(rng: Rng, assert_same: Same, op_types: OpTypes) -> None:
    b = Builder()
    y = b.input("x", (2, 4, 5, 5)).relu().batch_norm(*_norm(rng, 4))
    b.output("y", (1 - y * _array(rng, 4, 1, 1) + _array(rng, 4, 1, 1)).relu())
    after = FoldAffine()(b.to_graph())
    assert op_types(after) == ["Relu", "BatchNormalization", "Relu"]
    assert_same(b.to_graph(), after)


def test_weights_with_two_readers_are_copied(rng: Rng, assert_same: Same) -> None:
    b = Builder()
    x = b.input("x", (1, 3, 4, 4))
    weights = b.constant(_array(rng, 3, 3, 1, 1), "w")
    b.output("y", x.conv(weights).batch_norm(*_norm(rng, 3)) + x.conv(weights))
    after = FoldAffine()(b.to_graph())
    assert {"w", "w.folded"} <= set(after.values)
    assert_same(b.to_graph(), after)


def test_a_result_that_others_read_is_not_rescaled(rng: Rng, op_types: OpTypes) -> None:
    b = Builder()
    y = b.input("x", (1, 3, 4, 4)).conv(_array(rng, 3, 3, 1, 1))
    b.output("conv", y)
    b.output("y", y.batch_norm(*_norm(rng, 3)))
    assert op_types(FoldAffine()(b.to_graph())) == ["Conv", "BatchNormalization"]


def test_an_operand_that_is_not_per_channel_stays(rng: Rng, op_types: OpTypes) -> None:
    for operand in (_array(rng, 3), _array(rng, 3, 3, 1), _array(rng, 2, 1, 1, 1)):
        b = Builder()
        y = b.input("x", (1, 2, 3, 3)).conv(_array(rng, 3, 2, 1, 1))
        b.output("y", y + operand)
        assert op_types(FoldAffine()(b.to_graph())) == ["Conv", "Add"]


def test_a_scale_that_broadcasts_the_result_stays(rng: Rng, op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", b.input("x", (1, 2, 3, 3)).conv(_array(rng, 1, 2, 1, 1)) * _array(rng, 4, 1, 1))
    assert op_types(FoldAffine()(b.to_graph())) == ["Conv", "Mul"]


def test_a_division_by_zero_stays_where_it_is(rng: Rng, op_types: OpTypes) -> None:
    b = Builder()
    b.output("y", b.input("x", (1, 2, 3, 3)).conv(_array(rng, 3, 2, 1, 1)) / 0.0)
    assert op_types(FoldAffine()(b.to_graph())) == ["Conv", "Div"]


def test_folding_rounds_once(rng: Rng) -> None:
    weights, (scale, shift, mean, variance) = _array(rng, 8, 4, 3, 3), _norm(rng, 8)
    b = Builder()
    b.output("y", b.input("x", (1, 4, 3, 3)).conv(weights).batch_norm(scale, shift, mean, variance))
    node = FoldAffine()(b.to_graph()).nodes[0]
    folded = FoldAffine()(b.to_graph()).constant(node.inputs[1])
    factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + np.float64(np.float32(1e-5)))
    assert folded is not None
    assert folded.dtype == np.float32
    np.testing.assert_array_max_ulp(folded, (weights * factor.reshape(-1, 1, 1, 1)).astype(np.float32), 1)
