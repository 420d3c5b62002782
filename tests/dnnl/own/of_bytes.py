"""Convolutions of bytes by code of ours, against numpy's in double precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from tests.dnnl.running import Array, convolve, execute, function_of

TYPES = ("u8", "s8")
ZEROS = (("src", 0), ("dst", 0))
RELU = dnnl.Eltwise("relu")
HARDSWISH = dnnl.Eltwise("hardswish", 1 / 6, 0.5)
TAILS: tuple[tuple[dnnl.Eltwise, ...], ...] = (
    (),
    (RELU,),
    (dnnl.Eltwise("clip", 0, 6),),
    (HARDSWISH,),
    (dnnl.Eltwise("gelu_erf"),),
    (HARDSWISH, dnnl.Eltwise("linear", -0.6), dnnl.Eltwise("linear", 1.0, 0.4)),
)


def operands(spec: dnnl.Spec) -> dict[str, Array]:
    """Any bytes, and scales and zero points that spread results over all of them."""
    rng, found = np.random.default_rng(len(spec.descs)), {}
    for name, desc in spec.descs:
        if name.startswith("scale"):
            values: Any = rng.uniform(0.01, 0.05, desc.dims)
        elif name.startswith("zero_point"):
            values = rng.integers(1, 20, desc.dims)
        elif desc.dtype == "f32":
            values = rng.standard_normal(desc.dims)
        else:
            limits = np.iinfo(to_numpy(desc.dtype))
            values = rng.integers(limits.min, limits.max, desc.dims, endpoint=True)
        found[name] = values.astype(to_numpy(desc.dtype))
    return found


def check(spec: dnnl.Spec, given: Mapping[str, Array] | None = None) -> None:
    """Each byte is the nearest to the number, but for errors in f32 of this; floats are the numbers."""
    values = operands(spec) | dict(given or {})
    assert len(spec.attr.scales) + len(spec.attr.zero_points) == sum(
        name.startswith(("scale", "zero")) for name in values
    )
    del values["dst"]

    def number(name: str, default: float) -> Any:
        return values[name].astype(np.float64) if name in values else np.array([default])

    def of_channels(name: str, default: float) -> Any:
        return number(name, default).reshape(-1, *(1,) * (len(spec.desc("dst").dims) - 2))

    src, weights = (number(name, 0) - number(f"zero_point_{name}", 0) for name in ("src", "weights"))
    if spec.kind == "convolution":
        weights = weights.reshape(spec.desc("dst").dims[1], -1, *weights.shape[2 - src.ndim :])
        strides, pads, dilations = (spec.param(name) for name in ("strides", "pads", "dilations"))
        expected = convolve(src, weights, strides, pads, dilations, src.shape[1] // weights.shape[1])
    else:
        expected = src @ (weights if spec.kind == "matmul" else weights.T)
    expected *= number("scale_src", 1).item() * of_channels("scale_weights", 1)
    expected += of_channels("bias", 0)
    for index, function in enumerate(spec.attr.post_ops):
        if isinstance(function, dnnl.Binary):
            expected *= values[f"post_op_{index}_src_1"]
            continue
        assert isinstance(function, dnnl.Eltwise)
        expected = function_of(function)(expected)
    expected = expected / number("scale_dst", 1) + number("zero_point_dst", 0)
    got = execute(spec, values)["dst"].astype(np.float64)
    if spec.desc("dst").dtype == "f32":
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
        return
    if spec.desc("dst").dtype == "s32":
        np.testing.assert_array_equal(got, expected)
        return
    limits = np.iinfo(to_numpy(spec.desc("dst").dtype))
    assert np.abs(got - np.clip(expected, limits.min, limits.max)).max() <= 0.501
