"""Plans that compute with bytes: the reference's answers, and which steps there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.model import BuildValue
from blocklayout.plan import Plan, Step
from tests.quantised import (
    BYTES,
    Scheme,
    bias,
    chain,
    check_within,
    dequantized,
    feed_of,
    kinds_in_bytes,
    model_of,
    quantized,
    reference,
    residual,
    results_of,
    several_readers,
    through,
    weights,
)

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.PlainKernelWarning")

Body = Callable[[bl.Builder, np.random.Generator], BuildValue]
LAYOUTS = ("auto", "nhwc", "plain", "blocked")
SCHEMES: tuple[Scheme, ...] = (("u8", 0.03, 0), ("u8", 0.03, 131), ("s8", 0.04, 0), ("s8", 0.04, -7))
RESULTS: tuple[Scheme, ...] = (("u8", 0.05, 0), ("s8", 0.06, 11), ("u8", 0.05, 128), ("s8", 0.06, 0))


def returned(body: Body) -> onnx.ModelProto:
    return model_of(lambda b, rng: b.output("y", body(b, rng)))


def check(model: onnx.ModelProto, layouts: tuple[str, ...] = LAYOUTS, quanta: float = 1, **options: Any) -> list[Plan]:
    """Run it in each layout, against the reference."""
    feed = feed_of(model)
    expected = reference(model, feed)
    assert all(np.unique(array).size > min(20, array.size / 2) for array in expected)  # few are saturated
    plans = []
    for layout in layouts:
        session = bl.load(model, layout=layout, tune="model", **options)
        for got, wanted in zip(session.run(None, feed), expected, strict=True):
            check_within(got, wanted, quanta)
        plans.append(session.plan)
    return plans


def computing(plan: Plan, kind: str) -> list[Step]:
    return [step for step in plan.steps if step.spec.kind == kind]


def dtypes_of(step: Step) -> dict[str, str]:
    return {arg: operand.desc.dtype for arg, operand in step.operands}


exact = pytest.mark.skipif(not dnnl.sums_bytes_exactly(), reason="on this CPU everything is computed in f32")


# --- operators, in every layout

CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3": ((1, 16, 9, 8), (24, 16, 3, 3), {}),
    "padded": ((2, 17, 7, 6), (19, 17, 3, 3), {"pads": 1}),
    "pointwise": ((1, 32, 6, 5), (48, 32, 1, 1), {}),
    "strided": ((1, 16, 11, 9), (16, 16, 3, 3), {"pads": 1, "strides": 2}),
    "pointwise, strided": ((1, 16, 8, 8), (32, 16, 1, 1), {"strides": 2}),
    "stem": ((1, 3, 17, 17), (16, 3, 7, 7), {"pads": 3, "strides": 2}),
    "dilated": ((1, 8, 11, 11), (8, 8, 3, 3), {"pads": [2, 1, 2, 3], "dilations": 2}),
    "groups": ((1, 32, 6, 6), (32, 8, 3, 3), {"pads": 1, "group": 4}),
    "many groups": ((1, 32, 6, 6), (64, 4, 3, 3), {"group": 8}),
    "depthwise": ((1, 24, 9, 9), (24, 1, 3, 3), {"pads": 1, "group": 24}),
    "depthwise, odd": ((2, 17, 9, 8), (17, 1, 5, 5), {"pads": 2, "group": 17, "strides": 2}),
    "1-d": ((2, 16, 21), (16, 16, 5), {"pads": 2}),
    "3-d": ((1, 8, 5, 6, 5), (16, 8, 3, 3, 3), {"pads": 1}),
}

AFTER: tuple[Callable[[BuildValue], BuildValue], ...] = (
    lambda y: y,
    lambda y: y.relu(),
    lambda y: y.clip(0, 4),
    lambda y: y.clip(-1, 3),
)


def convolved(name: str, scheme: Scheme, number: int) -> Body:
    """With each choice of weights per tensor or channel, bias, what follows and scheme of the result in turn."""
    shape, kernel, attrs = CONVS[name]
    dtype, scale, zero = scheme

    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        x = dequantized(b.input("x", shape, dtype), scale, zero)
        given = weights(rng, b, *kernel, axis=None if number % 3 == 0 else 0)
        y = x.conv(given, bias(rng, b, kernel[0]) if number % 2 else None, **attrs)
        return quantized(AFTER[number % 4](y), *RESULTS[number // 2 % 4])

    return body


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name: str, scheme: Scheme) -> None:
    number = list(CONVS).index(name) + 3 * SCHEMES.index(scheme)
    plans = check(returned(convolved(name, scheme, number)))
    assert "convolution" in {step.spec.kind for step in plans[0].steps}


@pytest.mark.parametrize("number", range(8))
def test_what_surrounds_a_convolution(number: int) -> None:
    check(returned(convolved("padded", SCHEMES[1], number)))


def test_floats_of_a_convolution_that_are_not_quantised_again() -> None:
    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        return dequantized(b.input("x", (1, 16, 9, 8), "u8"), 0.03, 7).conv(weights(rng, b, 24, 16, 3, 3)).relu()

    check(returned(body))


def test_weights_around_another_number_or_of_other_types_are_computed_with_all_the_same() -> None:
    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        x = dequantized(b.input("x", (1, 16, 9, 8), "u8"), 0.03, 7)
        unsigned = dequantized(b.constant(rng.integers(0, 256, (16, 16, 3, 3)).astype(np.uint8)), 1e-3, 128)
        shifted = dequantized(b.constant(rng.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8)), 1e-3, 5)
        along_sources = weights(rng, b, 16, 16, 1, 1, axis=1)
        return quantized(through(through(x.conv(unsigned)).conv(shifted)).conv(along_sources))

    check(returned(body), quanta=2)  # one of before may be one more of behind


PRODUCTS: dict[str, tuple[int, Callable[[BuildValue, BuildValue], BuildValue]]] = {
    "Conv": (0, lambda x, w: x.conv(w)),
    "in groups": (0, lambda x, w: x.conv(w, group=2)),
    "ConvTranspose": (1, lambda x, w: x.builder.op("ConvTranspose", x, w, strides=[2, 2])),
    "Gemm": (0, lambda x, w: x.reshape((16, 72)).gemm(w, trans_b=True)),
    "MatMul": (1, lambda x, w: x.matmul(w)),
}
SHAPES = {"Conv": (24, 16, 3, 3), "in groups": (24, 8, 3, 3), "ConvTranspose": (16, 24, 3, 3), "Gemm": (24, 72)}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_unsigned_weights_around_128_are_signed_ones_around_0(name: str, *, per_channel: bool) -> None:
    axis, make = PRODUCTS[name]
    shape = SHAPES.get(name, (8, 24))

    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        x = dequantized(b.input("x", (1, 16, 9, 8), "u8"), 0.03, 7)
        integers = b.constant(rng.integers(0, 256, shape).astype(np.uint8))
        scales = 0.02 / np.sqrt(np.prod(shape) / shape[axis]) * rng.uniform(0.5, 2, shape[axis] if per_channel else ())
        return quantized(make(x, dequantized(integers, scales, np.full(scales.shape, 128), axis=axis)))

    [plan] = check(returned(body), ("auto",))
    found = [dtypes_of(step)["weights"] for step in plan.steps if "weights" in dtypes_of(step)]
    assert found == ["s8"] or (found == ["f32"] and not dnnl.sums_bytes_exactly())


GEMMS: dict[str, tuple[int | None, dict[str, Any], bool]] = {
    "transposed": (0, {"trans_b": True}, True),
    "as it is": (1, {}, False),
    "per tensor": (None, {"trans_b": True}, True),
    "scaled": (0, {"trans_b": True, "alpha": 0.5, "beta": 2.0}, True),
    "of columns": (0, {"trans_a": True, "trans_b": True}, True),
}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", GEMMS)
def test_gemm(name: str, scheme: Scheme) -> None:
    axis, attrs, has_bias = GEMMS[name]
    dtype, scale, zero = scheme

    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        x = dequantized(b.input("x", (40, 6) if "trans_a" in attrs else (6, 40), dtype), scale, zero)
        y = weights(rng, b, *((10, 40) if "trans_b" in attrs else (40, 10)), axis=axis)
        return quantized(x.gemm(y, bias(rng, b, 10) if has_bias else None, **attrs), *RESULTS[2])

    check(returned(body))


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("shape", [(6, 40), (2, 5, 40), (2, 3, 4, 40)], ids=str)
def test_products_by_constants(shape: tuple[int, ...], scheme: Scheme, axis: int | None) -> None:
    dtype, scale, zero = scheme

    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        x = dequantized(b.input("x", shape, dtype), scale, zero)
        return quantized(x.matmul(weights(rng, b, 40, 24, axis=axis)) + bias(rng, b, 24), *RESULTS[1])

    check(returned(body))


@pytest.mark.parametrize("second", SCHEMES, ids=str)
@pytest.mark.parametrize("first", SCHEMES[::3], ids=str)
@pytest.mark.parametrize("shapes", [((6, 24), (24, 9)), ((2, 3, 5, 16), (2, 3, 16, 7)), ((4, 5, 16), (16, 8))], ids=str)
def test_products_of_two_that_are_computed(shapes: Any, first: Scheme, second: Scheme) -> None:
    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        del rng
        x, y = (
            dequantized(b.input(f"x{index}", shape, dtype), scale, zero)
            for index, (shape, (dtype, scale, zero)) in enumerate(zip(shapes, (first, second), strict=True))
        )
        return quantized(x.matmul(y), "s8", 0.5 if first[0] == "s8" else 3, 3)

    check(returned(body))


@pytest.mark.parametrize("pair", [(0, 0), (0, 2), (1, 3), (3, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("result", RESULTS[:3], ids=str)
@pytest.mark.parametrize("op_type", ["Add", "Sub", "Mul"])
def test_binary_operators(op_type: str, result: Scheme, pair: tuple[int, int]) -> None:
    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        del rng
        x, y = (
            dequantized(b.input(f"x{index}", (2, 17, 6, 5), dtype), scale, zero)
            for index, (dtype, scale, zero) in enumerate(SCHEMES[number] for number in pair)
        )
        dtype, scale, zero = result
        return quantized(b.op(op_type, x, y), dtype, scale * 3, zero)

    check(returned(body))


@pytest.mark.parametrize("op_type", ["Add", "Mul"])
def test_binary_operators_that_broadcast_or_read_one_twice_or_a_constant(op_type: str) -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (2, 17, 6, 5), "u8"), 0.03, 7)
        y = dequantized(b.input("y", (2, 17, 1, 1), "s8"), 0.04)
        constant = dequantized(b.constant(rng.integers(-127, 128, (17, 1, 1)).astype(np.int8)), 0.02)
        for index, other in enumerate((y, x, constant, np.float32(1.5))):
            b.output(f"y{index}", quantized(b.op(op_type, x, other).relu(), "u8", 0.1, 3))

    check(model_of(make))


@pytest.mark.parametrize("result", RESULTS, ids=str)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_bytes_of_one_scheme_become_bytes_of_another(scheme: Scheme, result: Scheme) -> None:
    dtype, scale, zero = scheme

    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        del rng
        return quantized(dequantized(b.input("x", (2, 17, 5, 4), dtype), scale, zero), *result)

    check(returned(body))


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("dtype", BYTES)
def test_activations_per_channel(dtype: str, axis: int, *, zeros: bool) -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = b.input("x", (2, 12, 6, 10))
        size = x.shape[axis]
        scale = (0.01 * rng.integers(1, 9, size)).astype(np.float32)
        zero = rng.integers(0, 40, size) if zeros else np.zeros(size)
        y = quantized(x, dtype, scale, zero, axis=axis)
        b.output("bytes", y)
        numbers = dequantized(y, scale, zero, axis=axis)
        b.output("numbers", numbers)
        b.output("conv", quantized(numbers.conv(weights(rng, b, 16, 12, 3, 3)), "s8", 0.05, 2))

    check(model_of(make))


BETWEEN: dict[str, Callable[[BuildValue], BuildValue]] = {
    "MaxPool": lambda x: x.max_pool(3, strides=2, pads=1),
    "AveragePool": lambda x: through(x.average_pool(2)),
    "global": lambda x: through(x.global_average_pool()),
    "Concat": lambda x: x.builder.concat([x, x.max_pool(3, strides=1, pads=1)], 1).slice([3], [19], [1]),
    "Concat of schemes": lambda x: through(x.builder.concat([x, through(x, "u8", 0.04, 3)], 1), "u8", 0.035, 2).slice(
        [8], [24], [1]
    ),
    "Transpose": lambda x: x.transpose((0, 1, 3, 2)),
    "Reshape": lambda x: x.reshape((x.shape[0], 16, -1, 2)),
    "shuffle": lambda x: x.reshape((1, 2, 8, 8, 8)).transpose((0, 2, 1, 3, 4)).reshape((1, 16, 8, 8)),
    "Resize": lambda x: x.builder.op("Resize", x, None, np.array([1, 1, 2, 2], np.float32), mode="nearest"),
    "Pad": lambda x: x.builder.op("Pad", x, [0, 0, 1, 0, 0, 0, 0, 1]),
    "squeeze": lambda x: through(x * through(x.global_average_pool().sigmoid(), "u8", 1 / 255)),
    "HardSwish": lambda x: through(x.builder.op("HardSwish", x)),
    "Softmax": lambda x: through(x.softmax(axis=1), "u8", 1 / 255),
}


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("name", BETWEEN)
def test_what_lies_between_convolutions(name: str, zero: int) -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (1, 16, 8, 8), "u8"), 0.03, 7)
        x = quantized(x.conv(weights(rng, b, 16, 16, 3, 3), bias(rng, b, 16), pads=1).relu(), zero=zero)
        b.output("before", x)
        x = BETWEEN[name](dequantized(x, zero=zero))
        b.output("y", quantized(x.conv(weights(rng, b, 24, 16, 1, 1)), "s8", 0.05))

    # where a byte differs before, some may by more behind
    model = model_of(make)
    check(model, quanta=1 if name in ("MaxPool", "Transpose", "Reshape", "shuffle", "Resize", "Pad") else 2)


@pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")
def test_bytes_of_several_scales_side_by_side_are_one_step() -> None:
    def body(b: bl.Builder, rng: np.random.Generator) -> BuildValue:
        del rng
        parts = [
            dequantized(b.input(f"x{index}", (1, 16, 9, 8), dtype), scale, zero)
            for index, (dtype, scale, zero) in enumerate(SCHEMES)
        ]
        return quantized(b.concat(parts, 1), *RESULTS[2])

    [plan] = check(returned(body), ("nhwc",))
    [step] = [step for step in plan.steps if step.spec.kind == "concat"]
    assert {*dtypes_of(step).values()} == {"u8", "s8", "f32", "s32"}  # the last two of scales and zero points
    assert all(step.spec.kind in ("concat", "reorder") and not step.spec.attr.post_ops for step in plan.steps)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("name", ["padded", "pointwise", "stem", "groups", "depthwise"])
def test_convolutions_where_numbers_are_bf16(name: str, scheme: Scheme) -> None:
    number = list(CONVS).index(name) + SCHEMES.index(scheme)
    check(returned(convolved(name, scheme, number)), quanta=3, dtype="bf16")


@pytest.mark.needs_bf16
def test_blocks_where_numbers_are_bf16() -> None:
    check(model_of(residual), quanta=6, dtype="bf16")


def test_blocks() -> None:
    check(model_of(residual), quanta=2)


# --- chains of which every number is exact, so that all answers are the same


class Sketch:
    """A quantised network under construction: scales are powers of two, and zero points even."""

    def __init__(self, data: st.DataObject, b: bl.Builder) -> None:
        self.data, self.builder = data, b
        self.rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
        shape = (data.draw(st.sampled_from((1, 2)), "batch"), data.draw(st.sampled_from((3, 8, 16, 17)), "channels"))
        dtype, scale, zero = self.scheme()
        self.numbers = [dequantized(b.input("x", (*shape, 8, 7), dtype), scale, zero)]
        self.bytes: list[BuildValue] = []

    def scheme(self) -> Scheme:
        dtype = self.data.draw(st.sampled_from(BYTES), "type")
        zero = self.data.draw(st.sampled_from((0, 0, 128, 6) if dtype == "u8" else (0, 0, -8)), "zero point")
        return dtype, self.data.draw(st.sampled_from((2.0**-5, 2.0**-4, 2.0**-3)), "scale"), zero

    def pick(self) -> BuildValue:
        return self.data.draw(st.sampled_from(self.numbers[-4:]), "source")

    def keep(self, y: BuildValue) -> None:
        dtype, scale, zero = self.scheme()
        self.bytes.append(quantized(y, dtype, scale, zero))
        self.numbers.append(dequantized(self.bytes[-1], scale, zero))


def _conv(sketch: Sketch) -> BuildValue:
    x, b, rng, draw = sketch.pick(), sketch.builder, sketch.rng, sketch.data.draw
    is_depthwise = draw(st.sampled_from((False, False, False, True)), "depthwise")
    size = draw(st.sampled_from((1, 3)), "kernel")
    n_channels = x.shape[1] if is_depthwise else draw(st.sampled_from((8, 16, 17, 32)), "channels")
    kernel = (n_channels, 1 if is_depthwise else x.shape[1], size, size)
    integers = b.constant(rng.integers(-15, 16, kernel).astype(np.int8))
    exponents = rng.integers(-8, -5, n_channels) if draw(st.booleans(), "per channel") else -7
    scales = 2.0 ** np.asarray(exponents, np.float32)
    given = dequantized(integers, scales, np.zeros(scales.shape), **({"axis": 0} if scales.ndim else {}))
    added = bias(rng, b, n_channels, 2.0**-10) if draw(st.booleans(), "bias") else None
    stride = draw(st.sampled_from((1, 1, 2)), "stride")
    return x.conv(given, added, pads=size // 2, strides=stride, group=n_channels if is_depthwise else 1)


def _added(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    same = [y for y in sketch.numbers if y.shape == x.shape]
    other = sketch.data.draw(st.sampled_from(same), "other")
    return x - other if sketch.data.draw(st.booleans(), "difference") else x + other


def _added_to_a_convolution(sketch: Sketch) -> BuildValue:
    y = _conv(sketch)
    same = [x for x in sketch.numbers if x.shape == y.shape]
    return y + sketch.data.draw(st.sampled_from(same), "other") if same else y


def _concat(sketch: Sketch) -> BuildValue:
    x = sketch.pick()
    same = [y for y in sketch.numbers if (y.shape[0], *y.shape[2:]) == (x.shape[0], *x.shape[2:])]
    return sketch.builder.concat([x, sketch.data.draw(st.sampled_from(same), "other")], 1)


STEPS: tuple[Callable[[Sketch], BuildValue], ...] = (
    _conv,
    _conv,
    _conv,
    _added,
    _added_to_a_convolution,
    _concat,
    Sketch.pick,
    lambda sketch: sketch.pick().max_pool(3, pads=1, strides=1),
    lambda sketch: sketch.pick().average_pool(2, strides=1),
    lambda sketch: sketch.pick().transpose((0, 1, 3, 2)),
)
ENDS: tuple[Callable[[BuildValue], BuildValue], ...] = (
    lambda y: y,
    lambda y: y.relu(),
    lambda y: y.clip(0, 6),
    lambda y: y.clip(-1, 3),
    lambda y: y.max_pool(3, pads=1, strides=1),
)


@settings(max_examples=40)
@given(st.data())
def test_random_networks_of_exact_numbers_give_the_bytes_of_the_reference(data: st.DataObject) -> None:
    b = bl.Builder(opset=21)
    sketch = Sketch(data, b)
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=8), "steps"):
        sketch.keep(data.draw(st.sampled_from(ENDS), "end")(step(sketch)))
    seen = {len(sketch.bytes) - 1} | data.draw(st.sets(st.integers(0, len(sketch.bytes) - 1)), "seen")
    for index in sorted(seen):
        b.output(f"y{index}", sketch.bytes[index])
    if data.draw(st.booleans(), "numbers too"):
        b.output("numbers", sketch.numbers[-1])
        b.output("more", sketch.pick().sigmoid())
    model = b.to_onnx()
    feed = feed_of(model)
    expected = reference(model, feed)
    for layout in ("auto", data.draw(st.sampled_from(LAYOUTS[1:]), "layout")):
        session = bl.load(
            model,
            layout=layout,
            tune="model",
            recipes={"winograd": False},
            threads=data.draw(st.integers(1, 2), "threads"),
        )
        for got, wanted in zip(session.run(None, feed), expected, strict=True):
            check_within(got, wanted, quanta=0)
        assert Plan.from_json(session.plan.to_json()) == session.plan


# --- any operators and scales, one quantisation after the other


class Segment(NamedTuple):
    """A quantised value, made of others by floats in between."""

    sources: tuple[int, ...]
    make: Callable[..., BuildValue]
    scheme: Scheme
    seed: int

    def written(self, *numbers: BuildValue) -> BuildValue:
        return self.make(np.random.default_rng(self.seed), *numbers)


def _conv_by(size: int, stride: int = 1, *, is_depthwise: bool = False) -> Callable[..., BuildValue]:
    def make(rng: np.random.Generator, x: BuildValue) -> BuildValue:
        b = x.builder
        n_channels = x.shape[1] if is_depthwise else int(rng.choice((8, 17, 32)))
        kernel = (n_channels, 1 if is_depthwise else x.shape[1], size, size)
        group = n_channels if is_depthwise else 1
        return x.conv(weights(rng, b, *kernel), bias(rng, b, n_channels), pads=size // 2, strides=stride, group=group)

    return make


UNARY: tuple[Callable[..., BuildValue], ...] = (
    _conv_by(1),
    _conv_by(3),
    _conv_by(3, 2),
    _conv_by(3, is_depthwise=True),
    lambda rng, x: _conv_by(3)(rng, x).relu(),
    lambda rng, x: _conv_by(1)(rng, x).sigmoid(),
    lambda rng, x: x.builder.op("HardSwish", _conv_by(1)(rng, x)),
    lambda rng, x: x.builder.op("LeakyRelu", _conv_by(1)(rng, x), alpha=0.1),
    lambda rng, x: x.builder.op("PRelu", x, rng.standard_normal((x.shape[1], 1, 1)).astype(np.float32)),
    lambda rng, x: x * rng.standard_normal((x.shape[1], 1, 1)).astype(np.float32) + np.float32(0.3),
    lambda _, x: x * x.global_average_pool().sigmoid(),
    lambda _, x: x.average_pool(3, strides=1, pads=1),
    lambda _, x: x.max_pool(3, strides=2, pads=1),
    lambda _, x: x.softmax(axis=1),
    lambda _, x: x.builder.op("Resize", x, None, np.array([1, 1, 2, 2], np.float32), mode="linear"),
    lambda _, x: x.transpose((0, 1, 3, 2)).matmul(x),
    lambda rng, x: x.matmul(weights(rng, x.builder, x.shape[3], 6, axis=1)),
    lambda _, x: x - x.builder.op("ReduceMean", x, [1]),
)
BINARY: tuple[Callable[..., BuildValue], ...] = (
    lambda _, x, y: x + y,
    lambda _, x, y: (x - y).relu(),
    lambda _, x, y: x * y,
    lambda _, x, y: x.builder.concat([x, y], 1),
    lambda rng, x, y: _conv_by(3)(rng, x.builder.concat([x, y], 1)),
)


def scheme_for(numbers: np.ndarray, dtype: str) -> Scheme:
    """As a quantiser takes it from what it saw: around 0 where signed, else from the least to the most."""
    low, high = min(float(numbers.min()), 0.0), max(float(numbers.max()), 1e-3)
    if dtype == "s8":
        return dtype, max(-low, high) / 127, 0
    scale = (high - low) / 255
    return dtype, scale, round(-low / scale)


def alone(segment: Segment, sources: Sequence[tuple[np.ndarray, Scheme]], *, is_quantized: bool) -> np.ndarray:
    """The reference's result of one segment, for the bytes that it reads."""
    b = bl.Builder(opset=21)
    numbers = []
    for index, (array, (dtype, scale, zero)) in enumerate(sources):
        numbers.append(dequantized(b.input(f"x{index}", array.shape, dtype), scale, zero))
    y = segment.written(*numbers)
    b.output("result", quantized(y, *segment.scheme) if is_quantized else y)
    return reference(b.to_onnx(), {f"x{index}": array for index, (array, _) in enumerate(sources)})[0]


@settings(max_examples=25)
@given(st.data())
def test_random_networks_are_a_quantum_from_the_reference_at_each_quantisation(data: st.DataObject) -> None:
    shape = (data.draw(st.sampled_from((1, 2)), "batch"), data.draw(st.sampled_from((3, 16, 17)), "channels"), 6, 6)
    given_scheme = data.draw(st.sampled_from(SCHEMES), "input")
    limits = np.iinfo(np.uint8 if given_scheme[0] == "u8" else np.int8)
    fed = np.random.default_rng(1).integers(limits.min, limits.max, shape, limits.dtype, endpoint=True)
    known, segments = [(fed, given_scheme)], list[Segment]()
    for _ in range(data.draw(st.integers(1, 6), "segments")):
        first = data.draw(st.sampled_from(range(max(0, len(known) - 3), len(known))), "source")
        alike = [index for index, (array, _) in enumerate(known) if array.shape == known[first][0].shape]
        sources: tuple[int, ...] = (first,)
        if data.draw(st.booleans(), "of two"):
            sources, make_it = (first, data.draw(st.sampled_from(alike), "other")), data.draw(st.sampled_from(BINARY))
        else:
            make_it = data.draw(st.sampled_from(UNARY))
        segment = Segment(sources, make_it, SCHEMES[0], len(segments))
        numbers = alone(segment, [known[index] for index in sources], is_quantized=False)
        segment = segment._replace(scheme=scheme_for(numbers, data.draw(st.sampled_from(BYTES), "type")))
        segments.append(segment)
        known.append((alone(segment, [known[index] for index in sources], is_quantized=True), segment.scheme))

    b = bl.Builder(opset=21)
    dtype, scale, zero = given_scheme
    values = [dequantized(b.input("x", shape, dtype), scale, zero)]
    for index, segment in enumerate(segments):
        stored = quantized(segment.written(*(values[source] for source in segment.sources)), *segment.scheme)
        b.output(f"y{index}", stored)
        values.append(dequantized(stored, *segment.scheme[1:]))
    layout = data.draw(st.sampled_from(LAYOUTS), "layout")
    found = [fed, *bl.load(b, layout=layout, tune="model").run(None, {"x": fed})]
    read = list(zip(found, [given_scheme, *(segment.scheme for segment in segments)], strict=True))
    for segment, got in zip(segments, found[1:], strict=True):
        check_within(got, alone(segment, [read[index] for index in segment.sources], is_quantized=True))


# --- which steps there are


@exact
@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=pytest.mark.needs_bf16)])
def test_convolutions_hand_bytes_to_each_other(dtype: str) -> None:
    plan = bl.load(model_of(chain), dtype=dtype, tune="model").plan
    kinds = [step.spec.kind for step in plan.steps]
    first, last = kinds.index("convolution"), len(kinds) - 1 - kinds[::-1].index("convolution")
    assert set(kinds[first : last + 1]) == {"convolution"}
    for step in computing(plan, "convolution"):
        types = dtypes_of(step)
        assert {types["src"], types["weights"], types["dst"]} <= {*BYTES}


@exact
def test_primitives_compute_with_bytes() -> None:
    plan = bl.load(model_of(residual), tune="model").plan
    assert kinds_in_bytes(plan) >= {"convolution", "binary", "inner_product"}
    for step in computing(plan, "convolution"):
        assert {dtype for arg, dtype in dtypes_of(step).items() if arg in ("src", "dst", "weights")} <= {*BYTES}


@pytest.mark.skipif(not own.multiplies_bytes(), reason="on this CPU nothing multiplies bytes exactly")
def test_large_products_are_computed_with_bytes() -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (1, 128, 28, 28), "u8"), 0.03, 7)
        x = through(x.conv(weights(rng, b, 128, 128, 3, 3), pads=1).relu())
        b.output("y", quantized(x.conv(weights(rng, b, 256, 128, 1, 1))))

    assert "convolution" in kinds_in_bytes(check(model_of(make), ("auto",))[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", [chain, residual], ids=lambda make: make.__name__)
def test_numbers_are_made_where_they_are_read(make: Any, layout: str) -> None:
    plan = bl.load(model_of(make), layout=layout, tune="model").plan
    assert any("dequantizelinear" in choice.kernel for choice in plan.choices)
    assert not [node for step in plan.steps for node in step.nodes if "dequantizelinear" in node]


@exact
def test_weights_take_a_quarter() -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        chain(b, rng, channels=64, size=7)

    def in_floats(b: bl.Builder, rng: np.random.Generator) -> None:
        x = b.input("x", (1, 64, 7, 7))
        for _ in range(3):
            x = x.conv(rng.standard_normal((64, 64, 3, 3), np.float32), np.zeros(64, np.float32), pads=1).relu()
        b.output("y", x)

    sizes = []
    for make_net in (make, in_floats):
        session = bl.load(model_of(make_net), layout="nhwc", tune="model", recipes={"winograd": False})
        sizes.append(sum(buffer.nbytes for buffer in session.plan.buffers if buffer.kind == "constant"))
    assert 3 * 64 * 64 * 9 < sizes[0] < 0.27 * sizes[1]


def test_bytes_of_the_caller_are_read_where_they_lie() -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (1, 32, 10, 10), "u8"), 0.03, 7)
        b.output("y", quantized(x.conv(weights(rng, b, 32, 32, 3, 3)), zero=100))

    model = model_of(make)
    session = bl.load(model, io_layout={"x": "nhwc", "y": "nhwc"}, tune="model")
    feed = feed_of(model)
    [got] = session.run(None, {"x": np.ascontiguousarray(feed["x"].transpose(0, 2, 3, 1))})
    check_within(np.ascontiguousarray(got.transpose(0, 3, 1, 2)), reference(model, feed)[0])
    if dnnl.sums_bytes_exactly():
        assert [step.spec.kind for step in session.plan.steps] == ["convolution"]


def test_numbers_with_several_readers() -> None:
    model = model_of(several_readers)
    feed = feed_of(model)
    names = [info.name for info in model.graph.output]
    for layout in LAYOUTS:
        results = dict(zip(names, bl.load(model, layout=layout, tune="model").run(None, feed), strict=True))
        expected = dict(zip(names, reference(model, feed), strict=True))
        check_within(results["given"], expected["given"])
        check_within(results["stored"], expected["stored"])
        # behind, what the bytes that were found stand for
        numbers = (results["stored"].astype(np.float32) - 3) * np.float32(0.03)
        check_within(results["numbers"], numbers)
        np.testing.assert_allclose(results["sigmoid"], 1 / (1 + np.exp(-numbers)), rtol=1e-5)
        np.testing.assert_allclose(results["mean"], numbers.mean((2, 3), keepdims=True), rtol=1e-5)
        for name in ("conv", "again", "other"):
            quantum = np.ptp(expected[name].astype(np.float32)) / 100
            np.testing.assert_allclose(results[name].astype(np.float32), expected[name], atol=quantum)


@pytest.mark.parametrize("layout", ["auto", "nhwc", "blocked", "nChw8c", "per-op"])
@pytest.mark.parametrize("zero", [0, 131])
def test_padding_of_bytes_is_none_of_the_numbers(layout: str, zero: int) -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (2, 17, 6, 5), "u8"), 0.03, zero)
        y = through(x.conv(weights(rng, b, 19, 17, 3, 3), pads=1), "u8", 0.03, zero)
        b.output("mean", b.op("ReduceMean", y, [1]))
        b.output("sum", b.op("ReduceSum", y + np.float32(1), [1, 2, 3]))
        b.output("softmax", y.softmax(axis=1))
        b.output("sigmoid", y.sigmoid().conv(np.ones((5, 19, 1, 1), np.float32)))

    model = model_of(make)
    session = bl.load(model, layout=layout, tune="model", check="padding")
    for got, wanted in zip(results_of(session, model), reference(model, feed_of(model)), strict=True):
        np.testing.assert_allclose(got, wanted, atol=0.031 * max(1.0, float(np.abs(wanted).max()) / 10))


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
@pytest.mark.parametrize("dtype", BYTES)
def test_what_is_out_of_range_saturates(dtype: str, scale: float) -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (1, 8, 4, 4), "u8"), 1.0, 3)
        given = dequantized(b.constant(rng.integers(-9, 9, (8, 8, 1, 1)).astype(np.int8)), 1.0)
        for name, y in {"same": x, "sum": x + x.transpose((0, 1, 3, 2)), "conv": x.conv(given)}.items():
            b.output(name, y)
            b.output(f"{name} in bytes", quantized(y, dtype, scale, 4))
        b.output("floats in bytes", quantized(b.input("floats", (1, 8, 1, 1)), dtype, scale, 4))

    model = model_of(make)
    floats = np.array([np.inf, -np.inf, 1e20, -1e20, 3e9, -3e9, 3e38, 0], np.float32).reshape(1, 8, 1, 1)
    feed = feed_of(model) | {"floats": floats}
    results = bl.load(model, tune="model").run(None, feed)
    limits = np.iinfo(results[-1].dtype)
    for numbers, got in [*zip(results[:-1:2], results[1:-1:2], strict=True), (floats, results[-1])]:
        wanted = np.clip(np.rint(numbers.astype(np.float64) / np.float32(scale)) + 4, limits.min, limits.max)
        check_within(got, wanted.astype(got.dtype))


def test_weights_that_several_read_in_several_ways() -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        given = weights(rng, b, 16, 16, 1, 1)
        x, y = (
            dequantized(b.input("x", (1, 16, 6, 6), "u8"), 0.03, 7),
            dequantized(b.input("z", (1, 16, 6, 6), "s8"), 0.05),
        )
        b.output("first", quantized(x.conv(given)))
        b.output("second", quantized(y.conv(given), "s8"))
        b.output("third", b.input("floats", (1, 16, 6, 6)).conv(given))
        b.output("itself", b.input("more", (16, 16, 1, 1)) + given)
        b.output("computed", quantized(y.conv(dequantized(b.input("w", (8, 16, 3, 3), "s8"), 0.001)), "s8"))

    check(model_of(make))


@pytest.mark.parametrize("opset", [10, 12, 13, 18, 19, 23])
def test_every_operator_set_has_bytes(opset: int) -> None:
    b, rng = bl.Builder(opset=opset), np.random.default_rng(0)
    x = dequantized(b.input("x", (1, 16, 8, 8), "u8"), 0.03, 7)
    given = weights(rng, b, 16, 16, 3, 3, axis=0 if opset >= 13 else None)
    y = through(x.conv(given, pads=1).relu()).max_pool(2).conv(weights(rng, b, 16, 16, 1, 1, axis=None))
    b.output("y", quantized(y, "s8"))
    model, known = b.to_onnx(), b.to_onnx()
    known.opset_import[0].version, known.ir_version = 21, 10  # the reference has these operators from 19 on
    session = bl.load(model, tune="model")
    check_within(session.run(None, feed_of(model))[0], reference(known, feed_of(model))[0])
    assert "convolution" in kinds_in_bytes(session.plan) or not dnnl.sums_bytes_exactly()


def test_a_demanded_precision_is_no_bytes() -> None:
    model = model_of(chain)
    for demanded, n_floats in (({"Conv": "f32"}, 3), ({"conv_2": "f32"}, 1)):
        session = bl.load(model, precision=demanded, tune="model")
        found = [dtypes_of(step)["src"] for step in computing(session.plan, "convolution")]
        assert found.count("f32") == n_floats or (not dnnl.sums_bytes_exactly() and found.count("f32") > n_floats)
        np.testing.assert_allclose(results_of(session, model)[0], reference(model, feed_of(model))[0], atol=0.031)


@exact
def test_a_product_by_a_matrix_computes_with_bytes() -> None:
    def make(b: bl.Builder, rng: np.random.Generator) -> None:
        x = dequantized(b.input("x", (16, 512), "u8"), 0.03)
        b.output("gemm", quantized(x.gemm(weights(rng, b, 256, 512), bias(rng, b, 256), trans_b=True), "s8"))
        b.output("matmul", quantized(x.matmul(weights(rng, b, 512, 256, axis=1)), "s8"))

    [plan] = check(model_of(make), ("auto",))
    products = [step for step in plan.steps if step.spec.kind in ("convolution", "inner_product", "matmul")]
    assert [dtypes_of(step)["src"] for step in products] == ["u8", "u8"]
