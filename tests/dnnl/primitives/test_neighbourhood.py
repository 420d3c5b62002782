"""Pooling, normalisations, softmax and resampling against numpy, in every layout, on 17 channels."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from tests.dnnl.running import LAYOUTS, assert_close, check, desc, execute, padded, random, windows

Array = np.ndarray
DIMS = (2, 17, 7, 6)


def pool(x: Array, algorithm: str, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> Array:
    n = len(kernel)
    taps, dense = tuple(range(-n, 0)), (0,) * n
    if algorithm == "max":
        return np.asarray(windows(padded(x, pads, -np.inf), kernel, strides, dense).max(axis=taps))
    sums = windows(padded(x, pads), kernel, strides, dense).sum(axis=taps)
    if algorithm == "avg_include_padding":
        return np.asarray(sums / np.prod(kernel))
    return np.asarray(sums / windows(padded(np.ones_like(x), pads), kernel, strides, dense).sum(axis=taps))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
@pytest.mark.parametrize(
    ("src", "kernel", "strides", "pads"),
    [
        (DIMS, (3, 3), (2, 2), (1, 1, 1, 1)),
        (DIMS, (2, 3), (1, 2), (0, 1, 1, 0)),
        (DIMS, (7, 6), (1, 1), (0, 0, 0, 0)),
        ((2, 17, 9), (3,), (2,), (1, 1)),
        ((1, 17, 4, 5, 6), (2, 2, 3), (2, 1, 2), (0, 0, 1, 0, 1, 1)),
    ],
    ids=str,
)
def test_pooling(
    src: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    algorithm: str,
    layout: str,
) -> None:
    x = random(*src)
    spec = dnnl.pooling(desc(src, layout), None, algorithm, kernel, strides, pads)
    check(spec, {"src": x}, pool(x, algorithm, kernel, strides, pads))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dilated_pooling(layout: str) -> None:
    x = random(*DIMS)
    spec = dnnl.pooling(desc(DIMS, layout), None, "max", 2, dilations=1)
    check(spec, {"src": x}, windows(x, (2, 2), (1, 1), (1, 1)).max(axis=(-2, -1)))


def test_max_pooling_has_a_workspace_in_training_only() -> None:
    x, src = random(*DIMS), desc(DIMS, "plain")
    inference = dnnl.resolve(dnnl.pooling(src, None, "max", 2)).spec
    training = dnnl.pooling(src, None, "max", 2, prop_kind="forward_training")
    assert [name for name, _ in inference.descs] == ["src", "dst"]
    assert [name for name, _ in dnnl.resolve(training).spec.descs] == ["src", "dst", "workspace"]
    found = dnnl.Primitive(training)(src=x)
    assert isinstance(found, dict)
    assert found["workspace"].shape == found["dst"].shape
    assert_close(found["dst"], windows(x, (2, 2), (1, 1), (0, 0)).max(axis=(-2, -1)), 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("algorithm", ["accurate", "log"])
def test_softmax(algorithm: str, axis: int, layout: str) -> None:
    x = random(*DIMS)
    raised = np.exp(x.astype(np.float64))
    expected = raised / raised.sum(axis=axis, keepdims=True)
    spec = dnnl.softmax(desc(DIMS, layout), None, axis, algorithm)
    check(spec, {"src": x}, expected if algorithm == "accurate" else np.log(expected))


@pytest.mark.parametrize("tag", ["acbd", "bcad", "cabd", "cbda", "bacd"])
def test_every_softmax_stays_within_its_destination(tag: str) -> None:
    x = random(*DIMS)
    raised = np.exp(x.astype(np.float64))
    md = dnnl.MemoryDesc(DIMS, "f32", tag)
    for each in dnnl.implementations(dnnl.softmax(md, md, -1)):
        assert_close(execute(each.spec, {"src": x})["dst"], raised / raised.sum(axis=-1, keepdims=True))


def normalise(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean, variance


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_normalization_with_given_statistics(layout: str) -> None:
    x = random(*DIMS)
    given = {name: random(17, seed=i) for i, name in enumerate(("mean", "scale", "shift"))}
    given["variance"] = np.abs(random(17, seed=9))
    flags = ("use_global_stats", "use_scale", "use_shift")
    spec = dnnl.batch_normalization(desc(DIMS, layout), None, 1e-3, flags)
    mean, variance, scale, shift = (given[n].reshape(17, 1, 1) for n in ("mean", "variance", "scale", "shift"))
    check(spec, {"src": x, **given}, (x - mean) / np.sqrt(variance + 1e-3) * scale + shift)
    names = {name for name, _ in dnnl.resolve(spec).spec.descs}
    assert names == {"src", "mean", "variance", "scale", "shift", "dst"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("prop_kind", ["forward_inference", "forward_training"])
def test_batch_normalization_that_computes_statistics(prop_kind: str, layout: str) -> None:
    x = random(*DIMS)
    spec = dnnl.batch_normalization(desc(DIMS, layout), None, 1e-3, prop_kind=prop_kind)
    expected, mean, variance = normalise(x, (0, 2, 3), 1e-3)
    found = execute(spec, {"src": x})
    assert_close(found["dst"], expected)
    if prop_kind == "forward_training":
        assert_close(found["mean"], mean.ravel(), 1e-4)
        assert_close(found["variance"], variance.ravel(), 1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_batch_normalization_with_relu(layout: str) -> None:
    x = random(*DIMS)
    spec = dnnl.batch_normalization(desc(DIMS, layout), None, 1e-3, "fuse_norm_relu")
    check(spec, {"src": x}, np.maximum(normalise(x, (0, 2, 3), 1e-3)[0], 0))


@pytest.mark.parametrize("dims", [(4, 17), (2, 5, 17), (2, 3, 5, 16)], ids=str)
@pytest.mark.parametrize("prop_kind", ["forward_inference", "forward_training"])
def test_layer_normalization(prop_kind: str, dims: tuple[int, ...]) -> None:
    x, scale, shift = random(*dims), random(dims[-1], seed=1), random(dims[-1], seed=2)
    flags = "use_scale|use_shift"
    spec = dnnl.layer_normalization(desc(dims, "plain"), None, 1e-3, flags, prop_kind=prop_kind)
    expected, mean, variance = normalise(x, (-1,), 1e-3)
    found = execute(spec, {"src": x, "scale": scale, "shift": shift})
    assert_close(found["dst"], expected * scale + shift)
    if prop_kind == "forward_training":
        assert_close(found["mean"], mean[..., 0], 1e-4)
        assert_close(found["variance"], variance[..., 0], 1e-4)


def test_layer_normalization_with_given_statistics() -> None:
    x, mean = random(2, 5, 17), random(2, 5, seed=1)
    variance = np.abs(random(2, 5, seed=2))
    stat = dnnl.MemoryDesc((2, 5), "f32", "ba")
    spec = dnnl.layer_normalization(desc(x.shape, "plain"), None, 1e-3, "use_global_stats", stat)
    assert dnnl.resolve(spec).spec.desc("mean") == stat
    expected = (x - mean[..., None]) / np.sqrt(variance[..., None] + 1e-3)
    check(spec, {"src": x, "mean": mean, "variance": variance}, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("prop_kind", ["forward_inference", "forward_training"])
def test_lrn_across_channels(prop_kind: str, layout: str) -> None:
    x = random(*DIMS)
    spec = dnnl.lrn(desc(DIMS, layout), None, "across_channels", 5, 0.5, 0.75, 2.0, prop_kind=prop_kind)
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), (2, 2), (0, 0), (0, 0)])
    sums = sum(squares[:, i : i + 17] for i in range(5))
    check(spec, {"src": x}, x / (2 + 0.5 / 5 * sums) ** 0.75)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lrn_within_channel(layout: str) -> None:
    x = random(*DIMS)
    spec = dnnl.lrn(desc(DIMS, layout), None, "within_channel", 3, 0.5, 0.75, 2.0)
    sums = windows(padded(x**2, (1, 1, 1, 1)), (3, 3), (1, 1), (0, 0)).sum(axis=(-2, -1))
    check(spec, {"src": x}, x / (2 + 0.5 / 9 * sums) ** 0.75)


def linear_along(x: Array, axis: int, extent: int) -> Array:
    """Half-pixel linear resampling along an axis, clamped at the edges."""
    old = x.shape[axis]
    place = np.clip((np.arange(extent) + 0.5) * old / extent - 0.5, 0, old - 1)
    low = np.floor(place).astype(int)
    high = np.minimum(low + 1, old - 1)
    shape = [1] * x.ndim
    shape[axis] = extent
    part = (place - low).reshape(shape)
    return np.asarray(np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("src", "spatial"), [(DIMS, (14, 9)), ((2, 17, 8), (4,)), ((1, 17, 3, 4, 5), (6, 4, 5))], ids=str
)
def test_linear_resampling(src: tuple[int, ...], spatial: tuple[int, ...], layout: str) -> None:
    x = random(*src)
    expected = x.astype(np.float64)
    for axis, extent in enumerate(spatial, 2):
        expected = linear_along(expected, axis, extent)
    check(dnnl.resampling(desc(src, layout), desc((*src[:2], *spatial), layout), "linear"), {"src": x}, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nearest_resampling(layout: str) -> None:
    x = random(*DIMS)
    spec = dnnl.resampling(desc(DIMS, layout), None, "nearest", (2, 3))
    check(spec, {"src": x}, x.repeat(2, axis=2).repeat(3, axis=3), 0)


@pytest.mark.needs_bf16
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pooling_in_bf16(layout: str) -> None:
    x = random(*DIMS, dtype="bf16")
    spec = dnnl.pooling(desc(DIMS, layout, "bf16"), None, "max", 2)
    check(spec, {"src": x}, windows(x.astype(np.float32), (2, 2), (1, 1), (0, 0)).max(axis=(-2, -1)), 0)
