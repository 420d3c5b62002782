"""Products and convolutions of integers, and of numbers that bytes stand for, against the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.errors import UnimplementedError, UnsupportedError
from blocklayout.ir import HostSpec, Lowered, NodeInfo, Problem, Role, TensorInfo, Value, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.model import BuildValue, to_model
from tests.ops.cases import bind
from tests.ops.harness import resolved, run_on
from tests.ops.in_numpy import ROWS, Case, check, floats, integers, scalar

CASES = [
    Case(
        "ConvInteger",
        (
            *(integers(2, 4, 6, 5, low=0, dtype="uint8"), integers(6, 2, 3, 2, low=0, dtype="uint8")),
            *(scalar(2, "uint8"), scalar(3, "uint8")),
        ),
        {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
    ),
    Case("QuantizeLinear", (ROWS, np.abs(floats(4)) + 0.1, integers(4, dtype="int8")), {"axis": 1}),
    Case(
        "DequantizeLinear",
        (integers(3, 4, 5, dtype="int8"), np.abs(floats(3, 2, 5)), integers(3, 2, 5, dtype="int8")),
        {"axis": 1, "block_size": 2},
    ),
    Case(
        "MatMulInteger",
        (
            integers(300, 300, low=0, high=255, dtype="uint8"),
            integers(300, 2, low=-127, high=127, dtype="int8"),
            scalar(3, "uint8"),
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_right_on_row_major_arrays(case: Case) -> None:
    assert check(case, tolerance=2e-5) == {"plain"}


C = 24
QUANTUM = np.float32(0.05)
EXTENTS = (1, C, 20, 24)
NAMES = {"uint8": "u8", "int8": "s8"}
ACTIVATIONS: dict[str, Any] = {
    "none": lambda x: x,
    "Relu": lambda x: x.relu(),
    "Clip": lambda x: x.clip(0.0, 6.0),
    "HardSwish": lambda x: x.builder.op("HardSwish", x),
}


def spread(seed: int, n: int = C, low: float = 0.01, high: float = 0.05) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, n).astype(np.float32)


def quantized(x: BuildValue, dtype: str, scale: Any, zero: Any = None) -> BuildValue:
    """Quantised and back; by default around 0, with a scale for each channel where there are several."""
    zero = np.zeros(np.shape(scale), dtype) if zero is None else np.asarray(zero, dtype)
    integers = x.builder.op("QuantizeLinear", x, scale, zero)
    result: BuildValue = x.builder.op("DequantizeLinear", integers, scale, zero)
    return result


def weights(b: bl.Builder, *shape: int, axis: int = 0) -> BuildValue:
    """Constant bytes, with a scale for each output channel."""
    integers = np.random.default_rng(7).integers(-127, 128, shape).astype(np.int8)
    scale = spread(8, shape[axis], 0.002, 0.01)
    result: BuildValue = b.op("DequantizeLinear", integers, scale, np.zeros(shape[axis], np.int8), axis=axis)
    return result


def conv(x: BuildValue, *shape: int, group: int = 1) -> BuildValue:
    bias = spread(9, shape[0], -1, 1)
    result: BuildValue = x.builder.op(
        "Conv", x, weights(x.builder, *shape), bias, group=group, pads=[shape[-1] // 2] * 4
    )
    return result


def steps_of(body: Callable[[BuildValue], BuildValue], quantum: Any = QUANTUM, **options: Any) -> list[Any]:
    """The Specs of a plan, other than those that only convert, whose answers are the reference's to one quantum."""
    b = bl.Builder(opset=21)
    b.output("y", body(b.input("x", EXTENTS)))
    graph = b.to_graph()
    x = np.random.default_rng(0).uniform(-1, 3, EXTENTS).astype(np.float32)
    [expected] = ReferenceEvaluator(to_model(graph)).run(None, {"x": x})
    session = bl.load(graph, tune="model", **options)
    assert np.max(np.abs(session(x) - expected) / quantum) < 1.01
    return [step.spec for step in session.plan.steps if not (step.spec.kind == "reorder" or is_quotient(step.spec))]


def is_quotient(spec: Any) -> bool:
    """Whether it makes bytes of numbers that stay in place."""
    return bool(spec.kind == "binary" and spec.algorithm == "binary_div" and spec.desc("dst").dtype in ("u8", "s8"))


def read_by(specs: list[Any]) -> list[str]:
    """The types of what convolutions read."""
    return [spec.desc("src").dtype for spec in specs if "convolution" in spec.kind]


def are_read(specs: list[Any], *dtypes: str) -> bool:
    """Whether convolutions read these types: bytes where the CPU multiplies them, else bytes or f32, as prices are."""
    choices = [{dtype} if dnnl.sums_bytes_exactly() else {dtype, "f32"} for dtype in dtypes]
    found = read_by(specs)
    return len(found) == len(choices) and all(dtype in each for dtype, each in zip(found, choices, strict=True))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_depthwise_convolutions_read_bytes_with_a_scale_for_each_channel(dtype: str) -> None:
    def body(x: BuildValue, *shape: int, group: int) -> BuildValue:
        return quantized(conv(quantized(x, dtype, spread(1)), *shape, group=group), "int8", QUANTUM)

    assert are_read(steps_of(lambda x: body(x, C, 1, 3, 3, group=C)), NAMES[dtype])
    assert read_by(steps_of(lambda x: body(x, 2 * C, 1, 3, 3, group=C))) == ["f32"]  # which channel, no mask says
    assert read_by(steps_of(lambda x: body(x, 8, C, 1, 1, group=1))) == ["f32"]


def between(name: str) -> Callable[[BuildValue], BuildValue]:
    """A pointwise and a depthwise convolution, between them bytes with a scale for each channel."""
    dtype = "uint8" if name in ("Relu", "Clip") else "int8"

    def body(x: BuildValue) -> BuildValue:
        x = ACTIVATIONS[name](conv(quantized(x, "int8", np.float32(0.02)), C, C, 1, 1))
        x = quantized(x, dtype, spread(2, high=0.2))
        return quantized(conv(x, C, 1, 3, 3, group=C), "int8", QUANTUM)

    return body


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_primitives_write_bytes_with_a_scale_for_each_channel(name: str) -> None:
    specs = steps_of(between(name))
    assert are_read(specs, "s8", "u8" if name in ("Relu", "Clip") else "s8")
    if dnnl.sums_bytes_exactly():
        assert len(specs) == 2
        assert {spec.desc("dst").dtype for spec in specs} <= {"u8", "s8"}


@pytest.mark.needs_bf16
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_bytes_with_a_scale_for_each_channel_where_numbers_are_bf16(name: str) -> None:
    steps_of(between(name), quantum=3 * QUANTUM, dtype="bf16")


VIEWS: dict[str, Any] = {
    "Transpose": lambda x: x.transpose((0, 2, 3, 1)),
    "Reshape": lambda x: x.reshape((1, 2 * C, -1)),
    "Slice": lambda x: x.slice([2], [9], [1]),
    "Unsqueeze": lambda x: x.builder.op("Unsqueeze", x, np.array([1])),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_of_bytes_with_several_scales_are_of_numbers(name: str) -> None:
    steps_of(lambda x: VIEWS[name](quantized(x, "int8", spread(3))), quantum=1e-5)
    steps_of(lambda x: quantized(VIEWS[name](quantized(x, "uint8", spread(3))), "int8", QUANTUM))


@pytest.mark.filterwarnings("ignore::blocklayout.PlainKernelWarning")
def test_bytes_with_several_zero_points_are_read_as_numbers() -> None:
    zeros = np.random.default_rng(4).integers(1, 200, C)
    specs = steps_of(
        lambda x: quantized(conv(quantized(x, "uint8", spread(4), zeros), C, 1, 3, 3, group=C), "int8", QUANTUM)
    )
    assert read_by(specs) == ["f32"]


@pytest.mark.parametrize("zero", [0, 37])
def test_equal_zero_points_count_as_one(zero: int) -> None:
    zeros = np.full(C, zero)

    def body(x: BuildValue) -> BuildValue:
        x = conv(quantized(x, "uint8", spread(4), zeros), C, 1, 3, 3, group=C)
        return quantized(conv(quantized(x, "uint8", spread(2), zeros), C, 1, 3, 3, group=C), "int8", QUANTUM)

    specs = steps_of(body)
    assert are_read(specs, "u8", "u8")
    assert not [spec for spec in specs if isinstance(spec, HostSpec)]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_scales_too_small_for_a_reciprocal_are_divided_by() -> None:
    scales = spread(5)
    scales[3] = np.finfo(np.float32).smallest_subnormal
    steps_of(lambda x: quantized(conv(quantized(x, "int8", np.float32(0.02)), C, C, 1, 1), "int8", scales))


@pytest.mark.parametrize("factor", [np.float32(1.7), spread(6, high=2).reshape(C, 1, 1)], ids=["number", "channels"])
@pytest.mark.parametrize("group", [1, C])
def test_weights_with_a_scale_behind_them_stay_bytes(group: int, factor: np.ndarray) -> None:
    def body(x: BuildValue) -> BuildValue:
        x = conv(quantized(x, "int8", np.float32(0.02)), C, C // group, 3, 3, group=group)
        return quantized(x * factor + np.float32(0.3), "int8", QUANTUM)

    specs = steps_of(body)
    assert are_read(specs, "s8")
    assert len(specs) == 1


@pytest.mark.parametrize("factor", [1.0, 1.7])
@pytest.mark.parametrize("kernel", [2, 3, 4])
@pytest.mark.parametrize("n_outputs", [1, C])
def test_transposed_convolutions_read_bytes(n_outputs: int, kernel: int, factor: float) -> None:
    def body(x: BuildValue) -> BuildValue:
        w = weights(x.builder, C, n_outputs, kernel, kernel, axis=1)
        x = x.builder.op("ConvTranspose", quantized(x, "uint8", np.float32(0.02)), w, strides=[2, 2])
        return quantized(x * np.float32(factor) + np.float32(0.3), "int8", QUANTUM)

    assert are_read(steps_of(body), "u8")


@pytest.mark.skipif(not dnnl.sums_bytes_exactly(), reason="on this CPU sums of bytes saturate")
@pytest.mark.parametrize("make", [dnnl.convolution, dnnl.deconvolution], ids=lambda make: make.__name__)
def test_all_that_the_library_offers_sums_bytes_exactly(make: Any) -> None:
    src, w, dst = MemoryDesc((1, 64, 9, 9), "u8", "acdb"), np.full((32, 64, 1, 1), 127, np.int8), (1, 32, 9, 9)
    offered = dnnl.optimised(make(src, dnnl.AnyDesc(w.shape, "s8"), MemoryDesc(dst, "f32", "acdb"), n_threads=1))
    assert offered
    for each in offered:
        computed = dnnl.Primitive(each.spec)(src=np.full(src.dims, 255, np.uint8), weights=w)
        np.testing.assert_array_equal(computed, np.full(dst, 64 * 255 * 127, np.float32))


IMAGE = (2, 17, 3, 5)
QUANTA = [
    (scalar(0.1, "float32"), scalar(0, "uint8"), 1),
    (scalar(0.1, "float32"), scalar(131, "uint8"), 1),
    (scalar(0.1, "float32"), scalar(-7, "int8"), 1),
    (np.abs(floats(17)) + np.float32(0.1), np.zeros(17, np.int8), 1),
    (np.abs(floats(5)) + np.float32(0.1), np.zeros(5, np.uint8), -1),
]


def node_of(op_type: str, scale: np.ndarray, zero: np.ndarray | None, axis: int = 1) -> NodeInfo:
    """A node that converts an image by known numbers."""
    integers = "u8" if zero is not None and zero.dtype == np.uint8 else "s8"
    src, dst = ("f32", integers) if op_type == "QuantizeLinear" else (integers, "f32")
    known = [
        None if array is None else Value(name, array.shape, "f32" if name == "scale" else integers, array)
        for name, array in (("scale", scale), ("zero", zero))
    ]
    inputs = (Value("x", IMAGE, src), *known)
    return NodeInfo("tested", op_type, {"axis": axis}, inputs, (Value("y", IMAGE, dst),), 21)


def problem_of(lowered: Lowered, dtype: str) -> Problem:
    constants = {
        arg: TensorInfo(array.shape, "f32" if arg == "scale" else "s32") for arg, array in lowered.constants.items()
    }
    return Problem({"src": TensorInfo(IMAGE, "f32")}, constants, TensorInfo(IMAGE, dtype), n_threads=1)


@pytest.mark.parametrize("source", ["plain", "the same"])
@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8", "blocked16"])
@pytest.mark.parametrize(("scale", "zero", "axis"), QUANTA, ids=str)
def test_quantising_writes_any_layout(scale: np.ndarray, zero: np.ndarray, axis: int, layout: str, source: str) -> None:
    case = Case("QuantizeLinear", (floats(*IMAGE) * 9, scale, zero), {"axis": axis})
    lowered = bind(node_of("QuantizeLinear", scale, zero, axis))
    wish = Wish(layout if source == "the same" else "plain", layout)
    recipe = lowered.operator.lower(problem_of(lowered, "u8" if zero.dtype == np.uint8 else "s8"), wish, dnnl.Attr())
    assert recipe is not None
    try:
        steps = [resolved(step) for step in recipe.steps]
    except UnimplementedError:
        assert layout != "plain"
        assert scale.size > 1 or zero.any()
        return
    actual = run_on({"src": case.feed["x0"], **lowered.constants}, steps, recipe).reshape(IMAGE)
    difference = actual.astype(np.int32) - case.expected()[0]
    assert int(np.abs(difference).max()) <= 1


def test_dequantising_moves_no_byte() -> None:
    for scale, zero, axis in QUANTA:
        operator = bind(node_of("DequantizeLinear", scale, zero, axis)).operator
        assert operator.role is Role.VIEW
        desc = MemoryDesc(IMAGE, "u8", "nhwc")
        assert operator.through(desc) == operator.back(desc) == desc


@pytest.mark.parametrize(
    ("scale", "zero", "message"),
    [
        (np.ones((1, 17, 3, 5), np.float32), None, "scale is of blocks"),
        (np.ones(17, np.float32), np.arange(17, dtype=np.int8), "zero has several numbers"),
    ],
)
@pytest.mark.parametrize("op_type", ["QuantizeLinear", "DequantizeLinear"])
def test_what_no_reorder_takes_is_unsupported(
    op_type: str, scale: np.ndarray, zero: np.ndarray | None, message: str
) -> None:
    with pytest.raises(UnsupportedError, match=f"'tested'.*{message}"):
        bind(node_of(op_type, scale, zero))
