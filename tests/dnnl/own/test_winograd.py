"""Our own convolution by Winograd, against numpy's in double precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dnnl.own.winograd import multiply_adds
from blocklayout.dtypes import to_numpy
from blocklayout.ir import WinogradWeights
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import check_convolution, convolve, execute, offer_of, random

LANES = 16 if dnnl.has_isa("avx512_core") else 8
BLOCKED = f"nChw{LANES}c"
TAGS = ("nhwc", BLOCKED)
needs_products_of_bf16 = pytest.mark.skipif(not dnnl.has_isa("avx512_core_bf16"), reason="needs AVX512-BF16")

without_amx = pytest.mark.skipif(dnnl.has_isa("avx512_core_amx"), reason="AMX is faster")

IN_GROUPS = [
    ("f32", "direct"),
    pytest.param(("bf16", "direct"), marks=[pytest.mark.needs_bf16, without_amx]),
    pytest.param(("bf16", "winograd"), marks=[needs_products_of_bf16, without_amx]),
]
"""Data types, and the algorithms that are asked for: in bf16 products are of f32, or of bf16 in tiles of 2x2."""

METHODS = [*IN_GROUPS, pytest.param(("bf16", "winograd_domain"), marks=[needs_products_of_bf16, without_amx])]
"""And of weights that were transformed before."""

TOLERANCES = {
    ("f32", "direct"): 2e-5,
    ("bf16", "direct"): 2**-8,
    ("bf16", "winograd"): 2**-6,
    ("bf16", "winograd_domain"): 2**-6,
}
"""Of the largest sum."""

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)

RELU = dnnl.Eltwise("relu")


offer = partial(offer_of, "winograd")


TAILS: dict[str, tuple[Any, ...]] = {
    "none": (),
    "relu": (RELU,),
    "leaky": (dnnl.Eltwise("relu", 0.1),),
    "clip": (dnnl.Eltwise("clip", 0, 6),),
    "clip_v2": (dnnl.Eltwise("clip_v2", -1, 1),),
    "swish": (dnnl.Eltwise("swish", 1.0),),
    "gelu": (dnnl.Eltwise("gelu_erf"),),
    "gelu tanh": (dnnl.Eltwise("gelu_tanh"),),
    "hardswish": (dnnl.Eltwise("hardswish", 1 / 6, 0.5),),
    "hardswish linear": (dnnl.Eltwise("hardswish", 1 / 6, 0.5), dnnl.Eltwise("linear", -0.7)),
    "sum": (dnnl.Sum(),),
    "sum relu": (dnnl.Sum(), RELU),
    "add relu": ("add", RELU),
    "add swish": ("add", dnnl.Eltwise("swish", 1.7)),
}


def convolution(
    src: tuple[int, ...],
    n_dst: int,
    tags: tuple[str, str] = ("nhwc", "nhwc"),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    tail: tuple[Any, ...] = (),
    n_groups: int = 1,
    method: tuple[str, str] = ("f32", "direct"),
    **changes: Any,
) -> dnnl.Spec:
    (top, left, bottom, right), (dtype, algorithm) = pads, method
    dst = MemoryDesc((src[0], n_dst, src[2] + top + bottom - 2, src[3] + left + right - 2), dtype, tags[1])
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((n_dst,), "f32"),
        "pads": pads,
        "attr": dnnl.Attr(tuple(dnnl.Binary("add", dst) if each == "add" else each for each in tail)),
        "n_threads": 2,
        "algorithm": f"convolution_{algorithm}",
    }
    side = 4 if algorithm == "winograd_domain" else 3
    weights = (n_dst // n_groups, src[1] // n_groups, side, side)
    weights_desc = dnnl.AnyDesc((n_groups, *weights) if n_groups > 1 else weights, dtype)
    return dnnl.convolution(MemoryDesc(src, dtype, tags[0]), weights_desc, dst, **arguments | changes)


def check(spec: dnnl.Spec) -> None:
    ours = offer(spec)
    assert ours is not None
    check_convolution(ours.spec, TOLERANCES[spec.desc("dst").dtype, spec.algorithm.removeprefix("convolution_")])


@pytest.mark.parametrize("dst_tag", TAGS)
@pytest.mark.parametrize("src_tag", TAGS)
@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
@pytest.mark.parametrize("method", METHODS)
def test_layouts_and_post_ops(method: tuple[str, str], src_tag: str, dst_tag: str, tail: tuple[Any, ...]) -> None:
    check(convolution((2, 2 * LANES, 9, 14), 5 * LANES, (src_tag, dst_tag), tail=tail, method=method))


@pytest.mark.parametrize(
    ("n_groups", "group_src", "group_dst"),
    [(32, 4, 4), (8, 8, 8), (4, 16, 16), (2, 32, 32), (8, 4, 8), (16, 2, 4), (2, 8, 16), (2, 72, 64), (16, 6, 4)],
)
@pytest.mark.parametrize("tags", [("nhwc", "nhwc"), (BLOCKED, BLOCKED)])
@pytest.mark.parametrize("method", IN_GROUPS)
def test_groups(method: tuple[str, str], n_groups: int, group_src: int, group_dst: int, tags: tuple[str, str]) -> None:
    scale = LANES // 8
    src = (1, n_groups * group_src * scale, 7, 9)
    check(convolution(src, n_groups * group_dst * scale, tags, tail=(RELU,), n_groups=n_groups, method=method))


@settings(max_examples=60, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(1, 150), st.integers(1, 30), st.integers(1, 30)),
    n_dst=st.integers(1, 100),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    n_threads=st.integers(1, 5),
    bias=st.sampled_from([{}, {"bias": None}]),
)
@pytest.mark.parametrize("method", METHODS)
def test_any_extents_in_blocks(
    method: tuple[str, str],
    extents: tuple[int, ...],
    n_dst: int,
    pads: tuple[int, int, int, int],
    n_threads: int,
    bias: dict[str, Any],
) -> None:
    src = (*extents[:2], *(max(extent, 3) for extent in extents[2:]))
    check(convolution(src, n_dst, (BLOCKED, BLOCKED), pads, (RELU,), method=method, n_threads=n_threads, **bias))


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_finite_stays_in_the_tiles_that_read_it(method: tuple[str, str], value: float) -> None:
    ours = offer(convolution((1, LANES, 12, 12), 2 * LANES, bias=None, method=method))
    assert ours is not None
    given = {name: random(*desc.dims, dtype=desc.dtype) for name, desc in ours.spec.descs if name != "dst"}
    expected = execute(ours.spec, given)["dst"]
    given["src"][0, 3, 5, 6] = value
    got = execute(ours.spec, given)["dst"]
    window = np.s_[:, :, 4:7, 5:8]
    assert not np.isfinite(got[window].astype(np.float32)).any()
    tile = np.zeros_like(got, bool)
    tile[:, :, 4:8, 4:8] = True
    assert (got == expected)[~tile].all()


@pytest.mark.parametrize("method", METHODS)
def test_more_tiles_than_are_held_at_once(method: tuple[str, str]) -> None:
    check(convolution((1, 128, 60, 100), 16, tail=(RELU,), method=method))


@without_amx
@needs_products_of_bf16
def test_products_of_bf16_have_at_most_three_times_the_error_of_a_direct_convolution() -> None:
    """As they have it with rectified normal data: half of what is added is the rounding of transformed values."""
    errors = []
    for algorithm in ("direct", "winograd", "winograd_domain"):
        ours = offer(convolution((1, 128, 14, 14), 64, bias=None, method=("bf16", algorithm)))
        assert ours is not None
        generator = np.random.default_rng(0)
        src, weights = (generator.standard_normal(dims) for dims in (ours.spec.desc("src").dims, (64, 128, 3, 3)))
        given = {"src": np.maximum(src, 0).astype(to_numpy("bf16")), "weights": weights.astype(to_numpy("bf16"))}
        wide = {name: array.astype(np.float64) for name, array in given.items()}
        exact = convolve(wide["src"], wide["weights"], (1, 1), (1,) * 4, (0, 0), 1)
        if algorithm == "winograd_domain":
            given["weights"] = WinogradWeights().of(given["weights"]).astype(to_numpy("bf16"))
        got = execute(ours.spec, given)["dst"].astype(np.float64)
        errors.append(np.linalg.norm(got - exact) / np.linalg.norm(exact))
    assert errors[0] < min(errors[1:]) <= max(errors[1:]) < 3 * errors[0]


def test_it_is_the_last_of_those_offer() -> None:
    spec = convolution((1, 2 * LANES, 8, 8), 2 * LANES)
    impls = [resolved.spec.impl for resolved in dnnl.optimised(spec)]
    assert [own.name_of(impl) == "winograd" for impl in impls] == [*[False] * (len(impls) - 1), True]
    assert [resolved.spec.impl for resolved in dnnl.implementations(spec)][-1] == impls[-1]


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(convolution((1, 2 * LANES, 8, 8), 2 * LANES, tail=("add", RELU)))
    assert ours is not None
    again = dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict()))
    assert again == ours
    assert dnnl.multiply_adds(again.spec) == multiply_adds(ours.spec) == 36 * 4 * (2 * LANES) ** 2


def test_what_it_does_not_compute_is_not_offer() -> None:
    src = (1, 2 * LANES, 8, 8)
    n_dst = 2 * LANES
    strange = [
        convolution(src, n_dst, ("nchw", "nhwc")),
        convolution((1, 2 * LANES + 1, 8, 8), n_dst),
        convolution(src, n_dst + 4),
        convolution(src, n_dst, ("nhwc", "nChw4c")),
        convolution(src, n_dst, tail=(RELU, dnnl.Sum())),
        convolution(src, n_dst, tail=(dnnl.Sum(2.0),)),
        convolution(src, n_dst, tail=(dnnl.Eltwise("tanh"),)),
        convolution(src, n_dst, tail=(dnnl.Eltwise("clip", 1, 2),)),
        convolution(src, n_dst, prop_kind="forward_training"),
        convolution(src, n_dst, attr=dnnl.Attr(scales=(("src", 0),))),
        convolution(src, n_dst, tail=(dnnl.Binary("mul", MemoryDesc((1, n_dst, 1, 1))),)),
        convolution(src, n_dst, n_groups=n_dst),
        convolution((1, 40 * LANES, 8, 8), 40 * LANES, n_groups=8 * LANES),
        convolution(src, n_dst, method=("f32", "winograd_domain")),
        convolution(src, n_dst, n_groups=2, method=("bf16", "winograd_domain")),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
