"""Our own direct convolution, which fetches weights ahead, against numpy's in double precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dnnl.own.direct import multiply_adds
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import check_convolution, execute, offer_of, random

DTYPES = ["f32", "bf16"] if dnnl.has_isa("avx512_core_bf16") else ["f32"]
TOLERANCE = {"f32": 2e-6, "bf16": 2**-8}
RELU = dnnl.Eltwise("relu")

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2") or dnnl.has_isa("avx512_core_amx"),
    reason="needs AVX2, no AMX, and a compiler at installation",
)


offer = partial(offer_of, "direct")


def convolution(
    src: tuple[int, ...] = (1, 64, 7, 7),
    n_dst: int = 96,
    kernel: tuple[int, int] = (1, 1),
    dtype: str = "f32",
    *,
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: tuple[int, int] = (0, 0),
    tail: tuple[Any, ...] = (),
    tags: tuple[str, str] = ("nhwc", "nhwc"),
    **changes: Any,
) -> dnnl.Spec:
    window = [(taps - 1) * (gap + 1) + 1 for taps, gap in zip(kernel, dilations, strict=True)]
    extents = [(src[i + 2] + pads[i] + pads[i + 2] - window[i]) // strides[i] + 1 for i in range(2)]
    dst = MemoryDesc((src[0], n_dst, *extents), dtype, tags[1])
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((n_dst,), "f32"),
        "strides": strides,
        "pads": pads,
        "dilations": dilations,
        "attr": dnnl.Attr(tuple(dnnl.Binary("add", dst) if each == "add" else each for each in tail)),
        "n_threads": 2,
    }
    weights = dnnl.AnyDesc((n_dst, src[1], *kernel), dtype)
    return dnnl.convolution(MemoryDesc(src, dtype, tags[0]), weights, dst, **arguments | changes)


def product(
    n_rows: int, n_src: int, n_dst: int, dtype: str = "f32", *, tail: tuple[Any, ...] = (), row: str = "", **given: Any
) -> dnnl.Spec:
    dst = MemoryDesc((n_rows, n_dst), dtype)
    added = {"row": MemoryDesc((1, n_dst), row or dtype), "add": dst}
    attr = dnnl.Attr(tuple(dnnl.Binary("add", added[each]) if each in added else each for each in tail))
    src, weights = MemoryDesc((n_rows, n_src), dtype), dnnl.AnyDesc((n_src, n_dst), dtype)
    arguments: dict[str, Any] = {"src": src, "weights": weights, "dst": dst, "attr": attr, "n_threads": 2}
    return dnnl.matmul(**arguments | given)


def check(spec: dnnl.Spec) -> None:
    ours = offer(spec)
    assert ours is not None
    check_convolution(ours.spec, TOLERANCE[spec.desc("dst").dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "tail",
    [
        (),
        (RELU,),
        (dnnl.Eltwise("relu", 0.1),),
        (dnnl.Eltwise("clip", 0, 6),),
        (dnnl.Eltwise("hardswish", 1 / 6, 0.5), dnnl.Eltwise("linear", -0.7)),
        (dnnl.Sum(), RELU),
        ("add", dnnl.Eltwise("swish", 1.7)),
        (dnnl.Eltwise("gelu_erf"),),
        ("add", dnnl.Eltwise("gelu_tanh"), dnnl.Eltwise("linear", -0.7, 0.3)),
    ],
    ids=["none", "relu", "leaky", "clip", "hardswish linear", "sum relu", "add swish", "gelu", "add gelu linear"],
)
def test_post_ops(dtype: str, tail: tuple[Any, ...]) -> None:
    check(convolution((2, 62, 5, 9), 71, dtype=dtype, tail=tail))
    check(product(19, 62, 71, dtype, tail=tail))
    check(product(19, 62, 71, dtype, tail=("row", *tail)))
    check(convolution((2, 62, 5, 9), 71, (3, 3), dtype, pads=(1, 1, 1, 1), tail=tail))


@settings(max_examples=80, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    extents=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 12), st.integers(1, 30)),
    n_dst=st.integers(1, 100),
    window=st.tuples(*[st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 1))] * 2),
    pads=st.tuples(*[st.integers(0, 3)] * 4),
    n_threads=st.integers(1, 5),
    bias=st.sampled_from([{}, {"bias": None}]),
)
def test_any_extents(
    dtype: str,
    extents: tuple[int, ...],
    n_dst: int,
    window: tuple[tuple[int, int, int], ...],
    pads: tuple[int, int, int, int],
    n_threads: int,
    bias: dict[str, Any],
) -> None:
    n_images, n_pairs, *sides = extents
    kernel, strides, dilations = zip(*window, strict=True)
    sides = [max(side, taps * (gap + 1)) for side, taps, gap in zip(sides, kernel, dilations, strict=True)]
    src = n_images, 2 * n_pairs, *sides
    windows = {"strides": strides, "pads": pads, "dilations": dilations}
    check(convolution(src, n_dst, kernel, dtype, **windows, tail=(RELU,), n_threads=n_threads, **bias))


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from(DTYPES),
    n_rows=st.integers(1, 60),
    n_pairs=st.integers(1, 60),
    n_dst=st.integers(1, 100),
    tail=st.sampled_from([(), ("row",), ("add",), ("row", "add", RELU), ("row", dnnl.Sum())]),
    n_threads=st.integers(1, 5),
)
def test_products_of_any_extents(
    dtype: str, n_rows: int, n_pairs: int, n_dst: int, tail: tuple[Any, ...], n_threads: int
) -> None:
    if n_rows == 1 and len(tail) > 1:
        tail = tail[1:]  # a row as large as the result is an addend, of which there is one
    check(product(n_rows, 2 * n_pairs, n_dst, dtype, tail=tail, n_threads=n_threads))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_may_be_f32(dtype: str) -> None:
    check(product(19, 62, 71, dtype, tail=("row", "add"), row="f32"))


def test_an_odd_number_of_sources() -> None:
    check(convolution((1, 7, 5, 5), 20, (3, 3), pads=(1, 1, 1, 1)))
    check(product(5, 7, 20))


@pytest.mark.parametrize("dtype", DTYPES)
def test_pixels_in_several_parts(dtype: str) -> None:
    check(convolution((2, 700, 20, 21), 40, dtype=dtype))
    check(convolution((2, 700, 20, 21), 40, strides=(2, 1), dtype=dtype))


@pytest.mark.parametrize("tail", [("add", RELU), (dnnl.Sum(), RELU)], ids=["add", "sum"])
def test_many_sources(tail: tuple[Any, ...]) -> None:
    for n_src in (2048, 2090):
        check(convolution((1, n_src, 6, 7), 70, tail=tail))
        check(convolution((1, n_src, 6, 7), 70, strides=(2, 2), tail=tail))
        check(product(40, n_src, 70, tail=("row", *tail)))


def test_channels_of_a_larger_tensor() -> None:
    src = MemoryDesc((2, 32, 8, 8), strides=MemoryDesc((2, 96, 8, 8), "f32", "nhwc").strides)
    check(dnnl.convolution(src, dnnl.AnyDesc((48, 32, 1, 1)), MemoryDesc((2, 48, 8, 8), "f32", "nhwc"), n_threads=2))
    check(product(9, 32, 48, src=MemoryDesc((9, 32), strides=(96, 1))))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_stays_in_its_windows(value: float) -> None:
    ours = offer(convolution((1, 16, 8, 8), 8, (3, 3), pads=(1, 1, 1, 1), bias=None))
    assert ours is not None
    given = {name: random(*desc.dims) for name, desc in ours.spec.descs if name != "dst"}
    expected = execute(ours.spec, given)["dst"]
    given["src"][0, 5, 4, 6] = value
    got = execute(ours.spec, given)["dst"]
    window = np.zeros_like(got, bool)
    window[:, :, 3:6, 5:8] = True
    assert not np.isfinite(got[window]).any()
    assert (got == expected)[~window].all()


def test_it_is_the_first_where_there_are_many_weights_for_few_pixels() -> None:
    few, many = (dnnl.optimised(convolution((1, 512, side, side), 512))[0] for side in (7, 56))
    assert own.name_of(few.spec.impl) == "direct"
    assert own.name_of(many.spec.impl) != "direct"


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(convolution(tail=(RELU,)))
    assert ours is not None
    again = dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict()))
    assert again == ours
    assert dnnl.multiply_adds(again.spec) == multiply_adds(ours.spec) == 64 * 96 * 49


def test_what_it_does_not_compute_is_not_offered() -> None:
    image, groups = MemoryDesc((1, 64, 8, 8), "f32", "nhwc"), dnnl.AnyDesc((2, 32, 32, 1, 1))
    strange = [
        convolution(tags=("nchw", "nhwc")),
        convolution(tags=("nhwc", "nChw8c")),
        convolution((1, 10_000, 1, 1)),
        dnnl.convolution(image, groups, image, n_threads=2),
        convolution(bias=dnnl.AnyDesc((96,), "s8")),
        convolution(tail=(dnnl.Eltwise("tanh"),)),
        convolution(prop_kind="forward_training"),
        convolution(attr=dnnl.Attr(scales=(("src", 0),))),
        product(5, 64, 96, tail=("add", "row")),
        product(5, 64, 96, tail=("row", "row")),
        product(5, 64, 96, tail=(dnnl.Eltwise("tanh"),)),
        product(5, 64, 96, weights=MemoryDesc((64, 96))),
        product(5, 64, 96, src=MemoryDesc((5, 64), "f32", "ba")),
        product(5, 64, 96, bias=MemoryDesc((1, 96))),
        product(5, 64, 96, attr=dnnl.Attr(scales=(("src", 0),))),
        dnnl.matmul(MemoryDesc((2, 5, 64)), dnnl.AnyDesc((1, 64, 96)), n_threads=2),
        *[convolution((1, 7, 5, 5), dtype=dtype) for dtype in DTYPES if dtype == "bf16"],
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
