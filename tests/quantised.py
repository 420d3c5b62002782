"""Networks between QuantizeLinear and DequantizeLinear, and the reference's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.model import BuildValue
from blocklayout.plan import Plan

BYTES = ("u8", "s8")
OPSET = 21
NUMPY = {"u8": np.uint8, "s8": np.int8, "s32": np.int32}
SCALE = 0.03
Scheme = tuple[str, float, int]
"""Data type, scale, zero point."""


def dequantized(x: BuildValue, scale: Any = SCALE, zero: Any = 0, **attrs: Any) -> BuildValue:
    """The numbers that bytes stand for."""
    dtype = NUMPY[x.dtype]
    result: BuildValue = x.builder.op("DequantizeLinear", x, np.float32(scale), np.asarray(zero, dtype), **attrs)
    return result


def quantized(x: BuildValue, dtype: str = "u8", scale: Any = SCALE, zero: Any = 0, **attrs: Any) -> BuildValue:
    """The bytes that stand for numbers."""
    result: BuildValue = x.builder.op("QuantizeLinear", x, np.float32(scale), np.asarray(zero, NUMPY[dtype]), **attrs)
    return result


def through(x: BuildValue, dtype: str = "u8", scale: Any = SCALE, zero: Any = 0) -> BuildValue:
    """To bytes and back."""
    return dequantized(quantized(x, dtype, scale, zero), scale, zero)


def weights(
    rng: np.random.Generator, b: bl.Builder, *shape: int, axis: int | None = 0, scale: float = 0.0
) -> BuildValue:
    """Signed bytes with a scale for each index along ``axis``, or one; by default results are about 1 for each 1."""
    fan_in = int(np.prod(shape)) // (shape[axis] if axis is not None else shape[0])
    usual = scale or float(np.float32(0.02 / np.sqrt(fan_in)))
    scales: Any = usual if axis is None else usual * 2.0 ** rng.integers(-1, 2, shape[axis])
    zeros: Any = 0 if axis is None else np.zeros(shape[axis])
    integers = b.constant(rng.integers(-127, 128, shape).astype(np.int8))
    return dequantized(integers, scales, zeros, **({} if axis is None else {"axis": axis}))


def bias(rng: np.random.Generator, b: bl.Builder, size: int, scale: float = 2.0**-12) -> BuildValue:
    """As quantisers leave it: integers of 32 bits."""
    integers = b.constant(rng.integers(-3000, 3000, size).astype(np.int32))
    return dequantized(integers, np.full(size, scale), np.zeros(size), axis=0)


def feed_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Bytes of the whole range, and numbers of a few units, for each input."""
    rng = np.random.default_rng(seed)
    feed = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        is_byte = dtype.kind in "ui"
        limits = np.iinfo(dtype) if is_byte else None
        feed[info.name] = (
            rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
            if limits
            else (rng.standard_normal(shape) * 2).astype(np.float32)
        )
    return feed


def results_of(session: bl.Session, model: onnx.ModelProto) -> list[np.ndarray]:
    """What a session computes of the model's feed."""
    return [np.asarray(array) for array in session.run(None, feed_of(model))]


def reference(model: onnx.ModelProto, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ``onnx.reference`` computes."""
    with np.errstate(all="ignore"):
        found: Any = ReferenceEvaluator(model).run(None, dict(feed))
    return list(found)


def check_within(given: np.ndarray, expected: np.ndarray, quanta: float = 1) -> None:
    """Compare types and extents, and bytes to so many quanta, numbers as f32 may differ."""
    assert given.dtype == expected.dtype
    assert given.shape == expected.shape
    if expected.dtype == np.float32:
        np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(expected).max())))
    else:
        assert int(np.abs(given.astype(np.int32) - expected).max(initial=0)) <= quanta


def model_of(make: Callable[[bl.Builder, np.random.Generator], None], seed: int = 0) -> onnx.ModelProto:
    """The file of a network that a function builds."""
    b = bl.Builder(opset=OPSET)
    make(b, np.random.default_rng(seed))
    return b.to_onnx()


def kinds_in_bytes(plan: Plan) -> set[str]:
    """The kinds of primitives that compute with bytes; those that only convert or move are none."""
    steps = [
        step for step in plan.steps if isinstance(step.spec, dnnl.Spec) and step.spec.kind not in ("reorder", "copy")
    ]
    return {
        step.spec.kind
        for step in steps
        if any(arg.startswith("src") and operand.desc.dtype in BYTES for arg, operand in step.operands)
    }


def chain(b: bl.Builder, rng: np.random.Generator, *, channels: int = 32, size: int = 14, n_convs: int = 3) -> None:
    """A quantised image through convolutions, each followed by a Relu."""
    x = through(b.input("x", (1, channels, size, size)), "u8", 0.02, 0)
    for _ in range(n_convs):
        x = through(x.conv(weights(rng, b, channels, channels, 3, 3), bias(rng, b, channels), pads=1).relu())
    b.output("y", x)


def residual(b: bl.Builder, rng: np.random.Generator, channels: int = 16, size: int = 12) -> None:
    """Blocks with and without a projection, branches of different schemes, a concatenation and a classifier."""
    x = through(b.input("x", (2, 3, size, size)), "s8", 0.03, 5)
    stem = through(x.conv(weights(rng, b, channels, 3, 3, 3), bias(rng, b, channels), pads=1).relu()).max_pool(2)
    main = through(stem.conv(weights(rng, b, channels, channels, 3, 3), pads=1).relu(), "u8", 0.025)
    main = through(main.conv(weights(rng, b, channels, channels, 3, 3), pads=1), "s8", 0.04)
    side = through(stem.conv(weights(rng, b, channels, channels, 1, 1)), "u8", 0.05, 120)
    y = through((main + side).relu(), "u8", 0.04)
    z = through(y.conv(weights(rng, b, channels, channels, 3, 3), pads=1), "s8", 0.03, -3)
    z = through((z + y).relu())
    wide = b.concat([z, through(y.conv(weights(rng, b, 8, channels, 1, 1)).relu())], 1)
    flat = through(wide.global_average_pool()).flatten()
    scores = flat.gemm(weights(rng, b, 10, channels + 8), bias(rng, b, 10), trans_b=True)
    b.output("scores", quantized(scores, "s8", 0.02))


def several_readers(b: bl.Builder, rng: np.random.Generator) -> None:
    """Numbers that a convolution, a sigmoid, a product and the caller read, some of them bytes for the caller too."""
    x = dequantized(b.input("x", (1, 16, 9, 9), "s8"), 0.03, -7)
    b.output("given", x)
    stored = quantized(x.conv(weights(rng, b, 16, 16, 3, 3), pads=1).relu(), zero=3)
    y = dequantized(stored, zero=3)
    b.output("stored", stored)
    b.output("numbers", y)
    b.output("sigmoid", y.sigmoid())
    b.output("conv", y.conv(weights(rng, b, 24, 16, 1, 1)))
    b.output("again", quantized(y * x, "s8", 0.07, 1))
    b.output("other", quantized(y, "s8", 0.05))
    b.output("mean", b.op("ReduceMean", y, [2, 3]))
