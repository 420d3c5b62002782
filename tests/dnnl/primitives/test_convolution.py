"""Convolution and deconvolution against numpy, in every layout, on 17 channels."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.errors import UnimplementedError
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import LAYOUTS, assert_close, check, convolve, deconvolve, desc, execute, random


@dataclass(frozen=True)
class Problem:
    """A convolution as numpy would state it; weights (OC, IC/G, kernel...)."""

    src: tuple[int, ...]
    weights: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int = 1
    bias: bool = True
    named: str = field(default="", compare=False)

    @property
    def geometry(self) -> dict[str, Any]:
        return {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}

    def dnnl_weights(self, array: np.ndarray) -> np.ndarray:
        if self.groups == 1:
            return array
        return array.reshape(self.groups, array.shape[0] // self.groups, *array.shape[1:])

    def __str__(self) -> str:
        return self.named


PROBLEMS = (
    Problem((2, 17, 9), (5, 17, 3), (1,), (1, 1), (0,), named="1d"),
    Problem((2, 17, 7, 6), (19, 17, 3, 3), (1, 1), (1, 1, 1, 1), (0, 0), named="3x3"),
    Problem((2, 17, 7, 6), (19, 17, 1, 1), (1, 1), (0, 0, 0, 0), (0, 0), bias=False, named="1x1"),
    Problem((1, 3, 11, 11), (16, 3, 7, 7), (2, 2), (3, 3, 3, 3), (0, 0), named="stem"),
    Problem((1, 17, 8, 7), (9, 17, 3, 2), (2, 1), (0, 1, 1, 0), (0, 0), named="asymmetric"),
    Problem((1, 17, 9, 9), (8, 17, 3, 3), (1, 1), (2, 2, 2, 2), (1, 1), named="dilated"),
    Problem((1, 18, 6, 6), (12, 9, 3, 3), (1, 1), (1, 1, 1, 1), (0, 0), groups=2, named="two groups"),
    Problem((1, 17, 6, 6), (17, 1, 3, 3), (1, 1), (1, 1, 1, 1), (0, 0), groups=17, named="depthwise"),
    Problem((1, 17, 4, 5, 6), (6, 17, 3, 1, 3), (1, 1, 2), (1, 0, 1, 1, 0, 1), (0, 0, 0), named="3d"),
)


@pytest.mark.parametrize("layout", ["any", *LAYOUTS])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_convolution(problem: Problem, layout: str) -> None:
    x, w, b = random(*problem.src), random(*problem.weights), random(problem.weights[0])
    expected = convolve(x, w, problem.strides, problem.pads, problem.dilations, problem.groups)
    given = {"src": x, "weights": problem.dnnl_weights(w)}
    if problem.bias:
        given["bias"] = b
        expected = expected + b.reshape(-1, *(1,) * len(problem.strides))
    is_any = layout == "any"
    spec = dnnl.convolution(
        dnnl.AnyDesc(x.shape) if is_any else desc(x.shape, layout),
        dnnl.AnyDesc(given["weights"].shape),
        None if is_any else desc(expected.shape, layout),
        dnnl.AnyDesc(b.shape) if problem.bias else None,
        **problem.geometry,
    )
    assert spec.desc("dst").dims == expected.shape
    check(spec, given, expected)


@pytest.mark.parametrize("prop_kind", ["forward_inference", "forward_training"])
def test_any_proposes_layouts_for_either_propagation(prop_kind: str) -> None:
    x, w = random(1, 32, 8, 8), random(32, 32, 3, 3)
    spec = dnnl.convolution(dnnl.AnyDesc(x.shape), dnnl.AnyDesc(w.shape), pads=1, prop_kind=prop_kind)
    check(spec, {"src": x, "weights": w}, convolve(x, w, (1, 1), (1, 1, 1, 1), (0, 0)))


@pytest.mark.parametrize("layout", ["any", *LAYOUTS])
@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p.named != "stem"], ids=str)
def test_deconvolution(problem: Problem, layout: str) -> None:
    x, b = random(*problem.src), random(problem.weights[0])
    w = random(*problem.weights)
    spec = dnnl.deconvolution(
        dnnl.AnyDesc(x.shape) if layout == "any" else desc(x.shape, layout),
        dnnl.AnyDesc(problem.dnnl_weights(w).shape),
        None,
        dnnl.AnyDesc(b.shape),
        **problem.geometry,
    )
    dims = spec.desc("dst").dims
    if layout != "any":
        spec = spec.replace(descs=(*spec.descs[:-1], ("dst", desc(dims, layout))))
    expected = deconvolve(x, w, problem.strides, problem.pads, problem.dilations, dims[2:], problem.groups)
    expected = expected + b.reshape(-1, *(1,) * len(problem.strides))
    check(spec, {"src": x, "weights": problem.dnnl_weights(w), "bias": b}, expected)


def test_deconvolution_with_output_padding() -> None:
    x, w = random(1, 5, 4, 4), random(3, 5, 3, 3)
    spec = dnnl.deconvolution(
        dnnl.AnyDesc(x.shape), dnnl.AnyDesc(w.shape), desc((1, 3, 8, 8), "plain"), strides=2, pads=(1, 1, 0, 0)
    )
    check(spec, {"src": x, "weights": w}, deconvolve(x, w, (2, 2), (1, 1, 0, 0), (0, 0), (8, 8)))


@pytest.mark.parametrize("layout", ["any", "plain", "channels_last", "blocked8"])
def test_backward_data_is_the_deconvolution_with_weights_turned(layout: str) -> None:
    w, diff_dst = random(19, 17, 3, 3), random(2, 19, 7, 6)
    make = dnnl.AnyDesc if layout == "any" else (lambda dims: desc(dims, layout))
    spec = dnnl.convolution_backward_data(make((2, 17, 7, 6)), dnnl.AnyDesc(w.shape), make(diff_dst.shape), pads=1)
    expected = deconvolve(diff_dst, w.swapaxes(0, 1), (1, 1), (1, 1, 1, 1), (0, 0), (7, 6))
    assert_close(execute(spec, {"weights": w, "diff_dst": diff_dst})["diff_src"], expected)


@pytest.mark.parametrize("layout", ["any", "plain", "channels_last", "blocked8"])
def test_backward_weights(layout: str) -> None:
    x, diff_dst = random(2, 17, 7, 6), random(2, 19, 7, 6)
    make = dnnl.AnyDesc if layout == "any" else (lambda dims: desc(dims, layout))
    spec = dnnl.convolution_backward_weights(
        make(x.shape), dnnl.AnyDesc((19, 17, 3, 3)), make(diff_dst.shape), dnnl.AnyDesc((19,)), pads=1
    )
    found = dnnl.Primitive(spec)(src=x, diff_dst=diff_dst)
    assert isinstance(found, dict)
    turned = convolve(x.swapaxes(0, 1), diff_dst.swapaxes(0, 1), (1, 1), (1, 1, 1, 1), (0, 0)).swapaxes(0, 1)
    assert_close(found["diff_weights"], turned)
    assert_close(found["diff_bias"], diff_dst.sum(axis=(0, 2, 3), dtype=np.float64))


def test_backward_implementations_can_be_walked_and_had_again() -> None:
    weights = dnnl.AnyDesc((19, 17, 3, 3))
    src, dst = desc((2, 17, 7, 6), "plain"), desc((2, 19, 7, 6), "plain")
    for spec in (
        dnnl.convolution_backward_data(src, weights, dst, pads=1),
        dnnl.convolution_backward_weights(src, weights, dst, pads=1),
    ):
        for resolved in dnnl.implementations(spec):
            assert dnnl.resolve(resolved.spec) == resolved


def test_winograd_is_not_there() -> None:
    spec = dnnl.convolution(dnnl.AnyDesc((1, 16, 8, 8)), dnnl.AnyDesc((16, 16, 3, 3)), algorithm="winograd")
    with pytest.raises(UnimplementedError, match="convolution_winograd"):
        dnnl.resolve(spec)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("layout", ["any", "channels_last", "blocked16"])
def test_convolution_in_bf16(layout: str) -> None:
    x, w = random(2, 17, 7, 6, dtype="bf16"), random(19, 17, 3, 3, dtype="bf16")
    expected = convolve(x.astype(np.float32), w.astype(np.float32), (1, 1), (1, 1, 1, 1), (0, 0))
    is_any = layout == "any"
    spec = dnnl.convolution(
        dnnl.AnyDesc(x.shape, "bf16") if is_any else desc(x.shape, layout, "bf16"),
        dnnl.AnyDesc(w.shape, "bf16"),
        None if is_any else desc(expected.shape, layout, "bf16"),
        pads=1,
    )
    check(spec, {"src": x, "weights": w}, expected, 2e-2)


@pytest.mark.parametrize(("channels", "kernel"), [(512, 4), (256, 6)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_large_strided_deconvolution_is_right_or_refused(channels: int, kernel: int, has_bias: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(0)
    src = rng.standard_normal((1, channels, 8, 8)).astype(np.float32)
    weights = (rng.standard_normal((16, channels, kernel, kernel)) * 0.02).astype(np.float32)
    arrays = {"src": src, "weights": weights} | ({"bias": np.ones(16, np.float32)} if has_bias else {})
    dims = (1, 16, *[14 + kernel - 2] * 2)
    results: list[Any] = []
    for layout in ("nchw", "nhwc"):
        spec = dnnl.deconvolution(
            MemoryDesc(src.shape, "f32", layout),
            dnnl.AnyDesc(weights.shape, "f32"),
            MemoryDesc(dims, "f32", layout),
            MemoryDesc((16,)) if has_bias else None,
            strides=2,
            pads=1,
            attr=dnnl.Attr((dnnl.Eltwise("relu"),)),
            n_threads=1,
        )
        with contextlib.suppress(UnimplementedError):
            results.append(dnnl.Primitive(spec)(**arrays))
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-4, atol=1e-4)
