"""Our own convolution of bytes by Winograd, which is exact, against numpy's in double precision."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.layout import MemoryDesc
from tests.dnnl.own import of_bytes
from tests.dnnl.own.of_bytes import RELU, TAILS, TYPES, ZEROS
from tests.dnnl.running import offer_of

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2") or dnnl.has_isa("avx512_core_amx"),
    reason="needs AVX2 without AMX and a compiler at installation",
)

SCALES = (("src", 0), ("weights", 1), ("dst", 0))


def convolution(
    src: tuple[int, ...],
    n_dst: int,
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    types: tuple[str, str] = ("u8", "u8"),
    tag: str = "nhwc",
    **changes: Any,
) -> dnnl.Spec:
    (top, left, bottom, right) = pads
    dst = MemoryDesc((src[0], n_dst, src[2] + top + bottom - 2, src[3] + left + right - 2), types[1], tag)
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((n_dst,), "f32"),
        "pads": pads,
        "attr": dnnl.Attr((RELU,), scales=SCALES, zero_points=ZEROS),
        "n_threads": 2,
    }
    weights = dnnl.AnyDesc((n_dst, src[1], 3, 3), "s8")
    return dnnl.convolution(MemoryDesc(src, types[0], tag), weights, dst, **arguments | changes)


offer = partial(offer_of, "winograd")


def check(spec: dnnl.Spec, **given: np.ndarray) -> None:
    ours = offer(spec)
    assert ours is not None
    of_bytes.check(ours.spec, given)


@settings(max_examples=80, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(1, 260), st.integers(3, 30), st.integers(3, 30)),
    n_dst=st.integers(1, 100),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    types=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
    tail=st.sampled_from(TAILS),
    scales=st.sampled_from([SCALES, SCALES[1:], (("src", 0), ("weights", 0)), SCALES[::2], ()]),
    zero_points=st.sampled_from([(), ZEROS, ZEROS[:1], ZEROS[1:]]),
    n_threads=st.integers(1, 5),
    bias=st.sampled_from([{}, {"bias": None}]),
)
def test_any_problem(
    extents: tuple[int, ...],
    n_dst: int,
    pads: tuple[int, int, int, int],
    types: tuple[str, str],
    tail: tuple[Any, ...],
    scales: tuple[tuple[str, int], ...],
    zero_points: tuple[tuple[str, int], ...],
    bias: dict[str, Any],
    **others: Any,
) -> None:
    attr = dnnl.Attr(tail, scales=scales, zero_points=zero_points)
    check(convolution(extents, n_dst, pads, types, attr=attr, **others, **bias))


@pytest.mark.parametrize("n_src", [96, 113, 224, 600])
@pytest.mark.parametrize(("low", "high"), [(127, 127), (-128, -128), (-128, 127)])
def test_sums_of_the_largest_bytes_are_exact(n_src: int, low: int, high: int) -> None:
    """They would exceed what the last bits tell, if all were added up in one."""
    attr = dnnl.Attr(scales=SCALES[:1], zero_points=ZEROS[1:])
    spec = convolution((1, n_src, 9, 10), 40, attr=attr, bias=None)
    weights = np.where(np.arange(40 * n_src * 9) % 2, low, high).astype(np.int8).reshape(40, n_src, 3, 3)
    scale = 100 / (255 * 128 * 9 * n_src)
    src = np.where(np.arange(n_src * 90) % 7, 255, 0).astype(np.uint8).reshape(1, n_src, 9, 10)
    check(
        spec,
        src=src,
        weights=weights,
        scale_src=np.full(1, scale, np.float32),
        zero_point_dst=np.full(1, 120, np.int32),
    )


def test_more_tiles_than_are_held_at_once() -> None:
    check(convolution((1, 128, 60, 100), 16))


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(convolution((1, 32, 8, 8), 32))
    assert ours is not None
    assert dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict())) == ours


def test_what_it_does_not_compute_is_not_offered() -> None:
    src, n_dst = (1, 32, 8, 8), 32
    strange = [
        convolution(src, n_dst, tag="nchw"),
        convolution(src, n_dst, tag="nChw16c"),
        convolution(src, n_dst, types=("u8", "f32")),
        convolution(src, n_dst, attr=dnnl.Attr((dnnl.Sum(),))),
        convolution(src, n_dst, attr=dnnl.Attr((dnnl.Eltwise("tanh"),))),
        convolution(src, n_dst, attr=dnnl.Attr(zero_points=(("src", 2),))),
        convolution(src, n_dst, bias=dnnl.AnyDesc((n_dst,), "s32")),
        convolution(src, n_dst, algorithm="convolution_winograd"),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
