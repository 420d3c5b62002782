"""Convolutions of bytes: exact, whatever computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dtypes import from_numpy
from blocklayout.ir import HostSpec, NodeInfo, Value
from blocklayout.ops.quantization import ScaledConvolution
from tests.dnnl.running import convolve
from tests.ops.test_integer_product import BYTES, IS_EXACT, MIDDLES, Array, extreme


def session_of(fed: dict[str, Array], constants: dict[str, Array], attrs: dict[str, Any], layout: str) -> bl.Session:
    """A ConvInteger of the operands ``x``, ``w``, ``x_zero`` and ``w_zero``, as far as they are given."""
    inputs = [name if name in fed | constants else "" for name in ("x", "w", "x_zero", "w_zero")]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in fed.items()
    ]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    node = helper.make_node("ConvInteger", inputs, ["y"], **attrs)
    graph = helper.make_graph([node], "convolution", values, [result], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bl.load(model, layout=layout, tune="model", threads=2)


def check(
    fed: dict[str, Array], constants: dict[str, Array], attrs: dict[str, Any], layout: str = "auto"
) -> bl.Session:
    """The session, which computes what numpy does with wide integers."""
    given = {name: array.astype(np.float64) for name, array in (fed | constants).items()}
    x, w = given["x"] - given.get("x_zero", np.zeros(())), given["w"]
    w = w - given.get("w_zero", np.zeros(())).reshape(-1, *(1,) * (w.ndim - 1))
    dilations = tuple(each - 1 for each in attrs["dilations"])
    expected = convolve(x, w, tuple(attrs["strides"]), tuple(attrs["pads"]), dilations, attrs["group"])
    session = session_of(fed, constants, attrs, layout)
    [result] = session.run(None, fed)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)
    return session


@st.composite
def problems(draw: st.DrawFn) -> tuple[dict[str, Array], dict[str, Array], dict[str, Any]]:
    n_spatial, group = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 8, 16]))
    n_src = draw(st.sampled_from([1, 2, 3, 8, 17] if n_spatial < 3 else [1, 2, 3]))
    n_dst = draw(st.sampled_from([1, 2, 5, 8, 16]))

    def each(low: int, high: int, n: int = n_spatial) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(n)]

    kernel, dilations, strides = each(1, 3), each(1, 2), each(1, 3)
    spatial = [(k - 1) * d + 1 + more for k, d, more in zip(kernel, dilations, each(0, 8), strict=True)]
    pads = [more % k for more, k in zip(each(0, 2, 2 * n_spatial), kernel * 2, strict=True)]
    seed = draw(st.integers(0, 99))
    fed = {"x": extreme((draw(st.integers(1, 2)), group * n_src, *spatial), draw(st.sampled_from(BYTES)), seed)}
    dtype = draw(st.sampled_from(BYTES))
    constants = {"w": extreme((group * n_dst, n_src, *kernel), dtype, seed + 1)}
    if MIDDLES[dtype] or draw(st.booleans()):
        constants["w_zero"] = np.array(MIDDLES[dtype], dtype)
    how = draw(st.sampled_from(["", "known", "computed"]))
    if how:
        (constants if how == "known" else fed)["x_zero"] = extreme((), str(fed["x"].dtype), seed + 2)
    return fed, constants, {"group": group, "dilations": dilations, "strides": strides, "pads": pads}


@settings(max_examples=40, deadline=None)
@given(problems(), st.sampled_from(["auto", "nhwc", "plain"]))
def test_sums_are_exact(problem: tuple[dict[str, Array], dict[str, Array], dict[str, Any]], layout: str) -> None:
    is_image = problem[0]["x"].ndim == 4
    check(*problem, layout=layout if is_image or layout != "nhwc" else "auto")


ATTRS = {"group": 1, "dilations": [1, 1], "strides": [1, 1], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize("n_zeros", [1, 32])
@pytest.mark.parametrize("dtype", BYTES)
def test_one_primitive_convolves_with_known_weights(dtype: str, n_zeros: int) -> None:
    fed = {"x": extreme((1, 16, 12, 12), "uint8", 0), "x_zero": np.array(131, np.uint8)}
    constants = {"w": extreme((32, 16, 3, 3), dtype, 1), "w_zero": np.full(n_zeros, MIDDLES[dtype], dtype)}
    specs = [step.spec for step in check(fed, constants, ATTRS).plan.steps]
    if IS_EXACT:
        assert {spec.kind for spec in specs} == {"convolution", "reorder"}
        assert not any(dnnl.is_reference(spec.impl) for spec in specs)


def test_one_channel_is_convolved_step_by_step_too() -> None:
    fed = {"x": extreme((2, 1, 400), "uint8", 0)}
    constants = {"w": extreme((16, 1, 80), "int8", 1), "x_zero": np.array(131, np.uint8)}
    check(fed, constants, {"group": 1, "dilations": [1], "strides": [4], "pads": [38, 38]})


@pytest.mark.parametrize(
    ("name", "zero"),
    [("w_zero", np.arange(8, dtype=np.int8)), ("x_zero", None)],
    ids=["zeros of channels", "computed weights"],
)
def test_numpy_computes_the_others(name: str, zero: Array | None) -> None:
    fed, constants = {"x": extreme((1, 4, 7, 7), "uint8", 0)}, {"w": extreme((8, 4, 3, 3), "int8", 1)}
    if zero is None:
        fed["w"] = constants.pop("w")
    else:
        constants[name] = zero
    assert "convolution" not in [step.spec.kind for step in check(fed, constants, ATTRS).plan.steps]


@pytest.mark.parametrize("tail", [(), ("Relu",)])
@pytest.mark.parametrize("is_biased", [False, True])
@pytest.mark.parametrize("n_spatial", [1, 2, 3])
def test_sums_are_scaled_and_shifted_by_the_same_primitive(
    n_spatial: int, tail: tuple[str, ...], *, is_biased: bool
) -> None:
    b = bl.Builder(opset=17)
    fed: dict[str, Array] = {
        "x": extreme((2, 5, *(9,) * n_spatial), "uint8", 0),
        "x_zero": np.array(131, np.uint8),
        "scale": np.array(0.01, np.float32),
    }
    x, x_zero, scale = (b.input(name, array.shape, from_numpy(array.dtype)) for name, array in fed.items())
    weights, pads = extreme((24, 5, *(3,) * n_spatial), "int8", 1), [1] * (2 * n_spatial)
    y = b.op("ConvInteger", x, weights, x_zero, pads=pads).astype("f32") * (scale * np.float32(0.5))
    if is_biased:
        y = y + np.random.default_rng(0).standard_normal((1, 24, *(1,) * n_spatial)).astype(np.float32)
    for op_type in tail:
        y = b.op(op_type, y)
    b.output("y", y)
    session = bl.load(b, tune="model", threads=2)
    [result] = session.run(None, fed)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, fed)
    np.testing.assert_allclose(result, expected[0], rtol=1e-5, atol=1e-5 * np.abs(expected[0]).max())
    impls = [step.spec.impl for step in session.plan.steps if step.spec.kind not in ("reorder", "copy")]
    if IS_EXACT and not dnnl.sums_bytes_exactly() and n_spatial < 3:
        assert impls == ["byte_products:avx2"]


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("rounds", ["Floor", ""])
def test_weights_around_any_number_and_a_bias_in_sums(group: int, rounds: str) -> None:
    """As dynamic quantisers leave them: by code of ours in bytes, else in floats, and never in numpy."""
    b, rng = bl.Builder(opset=17), np.random.default_rng(0)
    x, x_scale, x_zero = b.op("DynamicQuantizeLinear", b.input("x", (1, 8, 9, 9)), n_outputs=3)
    weights = b.constant(extreme((24, 8 // group, 3, 3), "uint8", 1))
    scale = x_scale * np.float32(0.02)
    bias = b.constant(rng.standard_normal(24).astype(np.float32)) / scale
    sums = b.op("ConvInteger", x, weights, x_zero, np.uint8(119), pads=[1, 1, 1, 1], group=group)
    wide = (b.op(rounds, bias) if rounds else bias).astype("s32").reshape((1, 24, 1, 1))
    b.output("y", (sums + wide if rounds else wide + sums).astype("f32") * scale)
    feed = {"x": rng.standard_normal((1, 8, 9, 9)).astype(np.float32)}
    session = bl.load(b, tune="model", threads=2)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    [result] = session.run(None, feed)
    np.testing.assert_allclose(result, expected[0], rtol=1e-5, atol=1e-5 * np.abs(expected[0]).max())
    labels = {step.spec.label for step in session.plan.steps if isinstance(step.spec, HostSpec)}
    assert not labels & {"ConvInteger", "Add"}


@pytest.mark.parametrize("zeros", [np.uint8(119), np.arange(100, 124, dtype=np.uint8)])
@pytest.mark.parametrize("scales", [np.float32(0.02), np.linspace(0.01, 0.1, 24, dtype=np.float32)])
def test_products_by_a_matrix_around_any_numbers(zeros: Array, scales: Array) -> None:
    b, rng = bl.Builder(opset=17), np.random.default_rng(0)
    x, x_scale, x_zero = b.op("DynamicQuantizeLinear", b.input("x", (5, 40)), n_outputs=3)
    sums = b.op("MatMulInteger", x, b.constant(extreme((40, 24), "uint8", 1)), x_zero, b.constant(zeros))
    b.output("y", sums.astype("f32") * (x_scale * scales) + rng.standard_normal(24).astype(np.float32))
    feed = {"x": rng.standard_normal((5, 40)).astype(np.float32)}
    session = bl.load(b, tune="model", threads=2)
    expected: Any = ReferenceEvaluator(b.to_onnx()).run(None, feed)
    [result] = session.run(None, feed)
    np.testing.assert_allclose(result, expected[0], rtol=1e-5, atol=1e-5 * np.abs(expected[0]).max())
    assert "MatMulInteger" not in [step.spec.label for step in session.plan.steps if isinstance(step.spec, HostSpec)]


def test_numpy_scales_and_shifts_sums_too() -> None:
    x, w, bias = extreme((2, 3, 5, 5), "uint8", 0), extreme((4, 3, 3, 3), "int8", 1), np.arange(4, dtype=np.float32)
    values = Value("x", x.shape, "u8"), Value("w", w.shape, "s8")
    node = NodeInfo("tested", "ScaledConvInteger", {}, values, (Value("y", (2, 4, 3, 3), "f32"),), 17)
    compute, out = ScaledConvolution.in_numpy(node), np.empty((2, 4, 3, 3), np.float32)
    assert compute is not None
    compute(x, w, np.uint8(7), None, np.float32(0.5), bias + 1, bias, out=out)
    expected = convolve(x - 7.0, w.astype(np.float64), (1, 1), (0, 0, 0, 0), (0, 0), 1)
    np.testing.assert_allclose(out, expected * ((bias + 1) / 2).reshape(-1, 1, 1) + bias.reshape(-1, 1, 1), rtol=1e-6)
