"""Our own depthwise convolution, against numpy's in double precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl.own.depthwise import multiply_adds
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import Array, convolve, execute, function_of, offer_of, random

LANES = 16 if dnnl.has_isa("avx512_core") else 8
TAGS = ("nhwc", "nChw16c") if LANES == 16 else ("nChw8c",)
DTYPES = ("f32", "bf16") if dnnl.has_bf16() else ("f32",)
ROUNDING = {"f32": 2.0**-20, "bf16": 2.0**-8}
"""Of a result; sums have an error of their own."""

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)

RELU = dnnl.Eltwise("relu")
TAILS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "relu": (RELU,),
    "leaky": (dnnl.Eltwise("relu", 0.1),),
    "clip": (dnnl.Eltwise("clip", 0, 6),),
    "clip_v2": (dnnl.Eltwise("clip_v2", -1, 1),),
    "swish": (dnnl.Eltwise("swish", 1.0),),
    "gelu": (dnnl.Eltwise("gelu_erf"),),
    "gelu tanh": (dnnl.Eltwise("gelu_tanh"),),
    "steep swish": (dnnl.Eltwise("swish", 60.0),),
    "hardswish": (dnnl.Eltwise("hardswish", 1 / 6, 0.5),),
    "hardswish linear": (dnnl.Eltwise("hardswish", 1 / 6, 0.5), dnnl.Eltwise("linear", -0.7)),
    "sum": (dnnl.Sum(),),
    "sum relu": (dnnl.Sum(), RELU),
    "add clip": ("add", dnnl.Eltwise("clip", 0, 6)),
}


def depthwise(
    src: tuple[int, ...],
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    tail: tuple[Any, ...] = (),
    tags: tuple[str, str] = (TAGS[0], TAGS[0]),
    dtype: str = "f32",
    **changes: Any,
) -> dnnl.Spec:
    n_channels, room = src[1], [extent + sum(pads[dim::2]) for dim, extent in enumerate(src[2:])]
    reach = [(k - 1) * (d + 1) + 1 for k, d in zip(kernel, changes.get("dilations", (0, 0)), strict=True)]
    extents = [(n - r) // s + 1 for n, r, s in zip(room, reach, strides, strict=True)]
    dst = MemoryDesc((src[0], n_channels, *extents), dtype, tags[1])
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((n_channels,), "f32"),
        "strides": strides,
        "pads": pads,
        "attr": dnnl.Attr(tuple(dnnl.Binary("add", dst) if each == "add" else each for each in tail)),
        "n_threads": 2,
    }
    weights = dnnl.AnyDesc((n_channels, 1, 1, *kernel), dtype)
    return dnnl.convolution(MemoryDesc(src, dtype, tags[0]), weights, dst, **arguments | changes)


offer = partial(offer_of, "depthwise")


def operands(spec: dnnl.Spec) -> dict[str, Array]:
    return {
        name: random(*desc.dims, dtype=desc.dtype, seed=seed)
        for seed, (name, desc) in enumerate(spec.descs)
        if name != "dst" or spec.attr.has_sum
    }


def check(spec: dnnl.Spec) -> None:
    """Compare on poisoned buffers, padding included."""
    ours = offer(spec)
    assert ours is not None
    values = operands(ours.spec)
    weights = values["weights"][:, :, 0].astype(np.float64)
    strides, pads, n_channels = spec.param("strides"), spec.param("pads"), weights.shape[0]
    expected = convolve(values["src"].astype(np.float64), weights, strides, pads, (0, 0), n_channels)
    expected += values["bias"][:, None, None] if "bias" in values else 0
    largest = np.abs(expected).max()  # what a clip leaves of it may be much smaller
    for index, post_op in enumerate(spec.attr.post_ops):
        if isinstance(post_op, dnnl.Eltwise):
            expected = function_of(post_op)(expected)
        else:
            expected += values["dst" if isinstance(post_op, dnnl.Sum) else f"post_op_{index}_src_1"]
    got = execute(ours.spec, values)["dst"].astype(np.float64)
    assert got.shape == expected.shape
    assert (np.abs(got - expected) <= 1.01 * ROUNDING[spec.desc("src").dtype] * np.abs(expected) + 2e-6 * largest).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
def test_layouts_and_post_ops(tag: str, tail: tuple[Any, ...], dtype: str) -> None:
    check(depthwise((2, 3 * LANES, 9, 17), tail=tail, tags=(tag, tag), dtype=dtype))


@pytest.mark.parametrize("tag", TAGS)
def test_what_is_added_last_is_not_added_to_padding(tag: str) -> None:
    tail = (dnnl.Eltwise("clip", 0, 6), dnnl.Eltwise("linear", 2.0, -0.3))
    check(depthwise((1, 2 * LANES, 9, 17), tail=tail, tags=(tag, tag)))
    padded = depthwise((1, 2 * LANES - 1, 9, 17), tail=tail, tags=(tag, tag))
    if tag == "nhwc":
        check(padded)
    else:
        assert offer(padded) is None


@settings(max_examples=100, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(2, 100), st.integers(1, 20), st.integers(1, 34)),
    window=st.tuples(
        st.tuples(st.integers(1, 7), st.sampled_from([3, 5, 7])),
        st.tuples(st.integers(1, 3), st.integers(1, 2)),
        st.tuples(*[st.integers(0, 8)] * 4),
    ),
    tail=st.sampled_from(list(TAILS.values())),
    tag=st.sampled_from(TAGS),
    dtype=st.sampled_from(DTYPES),
    n_threads=st.integers(1, 5),
    bias=st.sampled_from([{}, {"bias": None}]),
)
def test_any_problem(
    extents: tuple[int, ...],
    window: tuple[Any, Any, Any],
    tail: tuple[Any, ...],
    tag: str,
    dtype: str,
    n_threads: int,
    bias: dict[str, Any],
) -> None:
    kernel, strides, pads = window
    height, width = (max(k - sum(pads[dim::2]), extents[2 + dim]) for dim, k in enumerate(kernel))
    src = (*extents[:2], height, width)
    check(depthwise(src, kernel, strides, pads, tail, (tag, tag), dtype, n_threads=n_threads, **bias))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_in_the_windows_of_its_channel(value: float, tag: str, dtype: str) -> None:
    ours = offer(depthwise((1, 3 * LANES + LANES // 2, 12, 20), tags=(tag, tag), dtype=dtype))
    assert ours is not None
    values = operands(ours.spec)
    expected = execute(ours.spec, values)["dst"]
    values["src"][0, 3, 5, 6] = value
    got = execute(ours.spec, values)["dst"]
    is_changed = np.zeros(got.shape, bool)
    is_changed[:, 3, 4:7, 5:8] = True
    assert not np.isfinite(got[is_changed].astype(np.float32)).any()
    assert (got == expected)[~is_changed].all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("place", [(0, 0), (2, 2), (0, 2), (1, 0)])
def test_a_product_in_the_padding_is_not_computed(place: tuple[int, int], tag: str, dtype: str) -> None:
    ours = offer(depthwise((1, 2 * LANES, 8, 9), tags=(tag, tag), dtype=dtype))
    assert ours is not None
    values = operands(ours.spec)
    values["weights"][(5, 0, 0, *place)] = np.inf
    got = execute(ours.spec, values)["dst"].astype(np.float32)
    is_there = [np.arange(extent) + tap for extent, tap in zip((8, 9), place, strict=True)]
    is_inside = np.outer(*((each >= 1) & (each <= extent) for each, extent in zip(is_there, (8, 9), strict=True)))
    assert (np.isinf(got[0, 5]) == is_inside).all()
    assert np.isfinite(np.delete(got, 5, axis=1)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tail", [RELU, dnnl.Eltwise("clip", 0, 6), dnnl.Eltwise("swish", 1.0)], ids=str)
def test_functions_keep_nan_and_infinity(tail: dnnl.Eltwise, dtype: str) -> None:
    spec = depthwise((1, LANES, 6, 6), pads=(0, 0, 0, 0), tail=(tail,), bias=None, dtype=dtype)
    ours = offer(spec)
    assert ours is not None
    src, weights = np.zeros(ours.spec.desc("src").dims), np.zeros(ours.spec.desc("weights").dims)
    weights[..., 0, 0] = 1
    src[0, :3, 1, 1] = np.nan, np.inf, -200
    values = {name: array.astype(to_numpy(dtype)) for name, array in (("src", src), ("weights", weights))}
    got = execute(ours.spec, values)["dst"].astype(np.float32)
    assert np.isnan(got[0, 0, 1, 1])
    assert got[0, 1, 1, 1] == (6 if tail.algorithm == "eltwise_clip" else np.inf)
    assert abs(got[0, 2, 1, 1]) < 1e-30


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_settled_spec_is_made_again(dtype: str) -> None:
    ours = offer(depthwise((1, 2 * LANES, 8, 8), tail=("add", RELU), dtype=dtype))
    assert ours is not None
    assert ours.spec.impl in [
        each.spec.impl for each in dnnl.implementations(depthwise((1, 2 * LANES, 8, 8), dtype=dtype))
    ]
    again = dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict()))
    assert again == ours
    assert dnnl.multiply_adds(again.spec) == multiply_adds(ours.spec) == 9 * 64 * 2 * LANES


def test_what_it_does_not_compute_is_not_offered() -> None:
    src = (1, 2 * LANES, 8, 8)
    strange = [
        depthwise(src, tags=("nhwc", TAGS[-1])),
        depthwise(src, tags=("nchw", "nchw")),
        depthwise(src, tags=("nChw4c", "nChw4c")),
        depthwise(src, kernel=(3, 4)),
        depthwise(src, kernel=(8, 3), pads=(4, 1, 4, 1)),
        depthwise(src, strides=(1, 3)),
        depthwise(src, pads=(2, 2, 2, 2), dilations=(1, 1)),
        depthwise(src, tail=(RELU, dnnl.Sum())),
        depthwise(src, tail=(dnnl.Sum(2.0),)),
        depthwise(src, tail=(dnnl.Eltwise("tanh"),)),
        depthwise(src, tail=(dnnl.Eltwise("clip", 1, 2),)),
        depthwise(src, tail=(dnnl.Binary("mul", MemoryDesc((1, 2 * LANES, 1, 1))),)),
        depthwise(src, prop_kind="forward_training"),
        depthwise(src, attr=dnnl.Attr(scales=(("src", 0),))),
        depthwise(src, bias=dnnl.AnyDesc((2 * LANES,), "s8")),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
