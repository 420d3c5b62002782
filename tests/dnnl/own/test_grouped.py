"""Our own convolution of groups of few channels, against numpy's in double precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dnnl.own.grouped import multiply_adds
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import check_convolution, execute, offer_of, random

N_READ = 32
"""Channels that are read together, at most."""

DTYPES = ("f32", "bf16") if dnnl.has_isa("avx512_core_bf16") else ("f32",)
GROUPS = (4, 8, 16, 32) if dnnl.has_isa("avx512_core") else (4, 8)
TOLERANCE = {"f32": 2e-6, "bf16": 2**-8}
RELU = dnnl.Eltwise("relu")

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)


offer = partial(offer_of, "grouped")


def convolution(
    src: tuple[int, ...] = (1, N_READ, 8, 8),
    group: int = 4,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    dtypes: tuple[str, str] = ("f32", "f32"),
    tags: tuple[str, str] = ("nhwc", "nhwc"),
    tail: tuple[Any, ...] = (),
    **changes: Any,
) -> dnnl.Spec:
    extents = [
        (src[dim + 2] + pads[dim] + pads[dim + 2] - kernel[dim]) // strides[dim] + 1 for dim in range(len(kernel))
    ]
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((src[1],), "f32"),
        "strides": strides,
        "pads": pads,
        "attr": dnnl.Attr(tail),
        "n_threads": 2,
    }
    weights = dnnl.AnyDesc((src[1] // group, group, group, *kernel), dtypes[0])
    dst = MemoryDesc((*src[:2], *extents), dtypes[1], tags[1])
    return dnnl.convolution(MemoryDesc(src, dtypes[0], tags[0]), weights, dst, **arguments | changes)


def check(spec: dnnl.Spec) -> None:
    ours = offer(spec)
    assert ours is not None
    check_convolution(ours.spec, TOLERANCE[spec.desc("dst").dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "tail",
    [(), (RELU,), (dnnl.Eltwise("relu", 0.1),), (dnnl.Eltwise("clip", 0, 6),), (dnnl.Eltwise("clip_v2", -1, 1),)],
    ids=["none", "relu", "leaky", "clip", "clip_v2"],
)
def test_post_ops(dtype: str, tail: tuple[Any, ...]) -> None:
    for group in GROUPS:
        check(convolution((2, 2 * N_READ, 9, 17), group, dtypes=(dtype, dtype), tail=tail))


@settings(max_examples=60, deadline=None)
@given(
    dtypes=st.sampled_from([("f32", "f32"), *[("bf16", each) for each in ("bf16", "f32")[: 2 * len(DTYPES) - 2]]]),
    group=st.sampled_from(GROUPS),
    extents=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 20), st.integers(1, 40)),
    kernel=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    strides=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    n_threads=st.integers(1, 5),
    bias=st.sampled_from([{}, {"bias": None}]),
)
def test_any_extents(
    dtypes: tuple[str, str],
    group: int,
    extents: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    n_threads: int,
    bias: dict[str, Any],
) -> None:
    n_images, n_parts, *sides = extents
    src = (n_images, n_parts * N_READ, *(max(side, taps) for side, taps in zip(sides, kernel, strict=True)))
    check(convolution(src, group, kernel, strides, pads, dtypes, tail=(RELU,), n_threads=n_threads, **bias))


def test_more_channels_than_are_held_at_once() -> None:
    check(convolution((2, 20 * N_READ, 9, 60), 8))


def test_channels_of_a_larger_tensor() -> None:
    whole = MemoryDesc((2, 3 * N_READ, 8, 8), "f32", "nhwc")
    part, dense = MemoryDesc((2, N_READ, 8, 8), strides=whole.strides), MemoryDesc((2, N_READ, 8, 8), "f32", "nhwc")
    check(dnnl.convolution(part, dnnl.AnyDesc((N_READ // 4, 4, 4, 3, 3)), dense, pads=1, n_threads=2))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_windows_and_its_group(value: float) -> None:
    ours = offer(convolution(bias=None))
    assert ours is not None
    given = {name: random(*desc.dims) for name, desc in ours.spec.descs if name != "dst"}
    expected = execute(ours.spec, given)["dst"]
    given["src"][0, 5, 4, 6] = value
    got = execute(ours.spec, given)["dst"]
    window = np.zeros_like(got, bool)
    window[:, 4:8, 3:6, 5:8] = True
    assert not np.isfinite(got[window]).any()
    assert (got == expected)[~window].all()


def test_it_is_the_first_of_those_offered() -> None:
    spec = convolution()
    assert own.name_of(dnnl.optimised(spec)[0].spec.impl) == "grouped"


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(convolution(tail=(RELU,)))
    assert ours is not None
    again = dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict()))
    assert again == ours
    assert dnnl.multiply_adds(again.spec) == multiply_adds(ours.spec) == 9 * 4 * N_READ * 64


def test_what_it_does_not_compute_is_not_offered() -> None:
    strange = [
        convolution(tags=("nchw", "nhwc")),
        convolution(tags=("nhwc", "nChw8c")),
        convolution((1, N_READ + 4, 8, 8)),
        convolution((1, 4 * N_READ, 8, 8), 2 * GROUPS[-1]),
        convolution((1, 2 * N_READ, 8, 8), 2),
        convolution(kernel=(9, 9), pads=(4, 4, 4, 4)),
        convolution(kernel=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)),
        convolution(bias=dnnl.AnyDesc((N_READ,), "s8")),
        convolution(tail=(dnnl.Sum(),)),
        convolution(tail=(dnnl.Eltwise("tanh"),)),
        convolution(prop_kind="forward_training"),
        convolution(attr=dnnl.Attr(scales=(("src", 0),))),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
