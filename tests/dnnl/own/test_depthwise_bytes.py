"""Our own depthwise convolution of bytes, against numpy's in double precision."""

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
from tests.dnnl.own.of_bytes import TAILS, TYPES, ZEROS
from tests.dnnl.running import execute, offer_of

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)

SCALES = (("src", 0), ("weights", 3), ("dst", 0))


def depthwise(  # noqa: PLR0917 - a problem
    src: tuple[int, ...] = (1, 40, 8, 8),
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    types: tuple[str, str] = ("u8", "u8"),
    tag: str = "nhwc",
    tail: tuple[Any, ...] = (),
    scales: tuple[tuple[str, int], ...] = SCALES,
    zero_points: tuple[tuple[str, int], ...] = ZEROS,
    **changes: Any,
) -> dnnl.Spec:
    extents = [(src[2 + dim] + sum(pads[dim::2]) - kernel[dim]) // strides[dim] + 1 for dim in range(len(kernel))]
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((src[1],), "f32"),
        "strides": strides,
        "pads": pads,
        "attr": dnnl.Attr(tail, scales=scales, zero_points=zero_points),
        "n_threads": 2,
    }
    weights, dst = dnnl.AnyDesc((src[1], 1, 1, *kernel), "s8"), MemoryDesc((*src[:2], *extents), types[1], tag)
    return dnnl.convolution(MemoryDesc(src, types[0], tag), weights, dst, **arguments | changes)


offer = partial(offer_of, "depthwise")


def check(spec: dnnl.Spec) -> None:
    ours = offer(spec)
    assert ours is not None
    of_bytes.check(ours.spec)


@settings(max_examples=80, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(2, 100), st.integers(1, 20), st.integers(1, 34)),
    kernel=st.tuples(st.integers(1, 7), st.sampled_from([3, 5, 7])),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 8)] * 4),
    types=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
    tail=st.sampled_from(TAILS),
    scales=st.sampled_from([SCALES, SCALES[1:], (("src", 0), ("weights", 0)), SCALES[::2], ()]),
    zero_points=st.sampled_from([(), ZEROS, ZEROS[:1], ZEROS[1:]]),
    n_threads=st.integers(1, 5),
    bias=st.sampled_from([{}, {"bias": None}]),
)
def test_any_problem(
    extents: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    pads: tuple[int, int, int, int],
    types: tuple[str, str],
    bias: dict[str, Any],
    **others: Any,
) -> None:
    height, width = (max(k - sum(pads[dim::2]), extents[2 + dim]) for dim, k in enumerate(kernel))
    check(depthwise((*extents[:2], height, width), kernel, strides, pads, types, **others, **bias))


@pytest.mark.parametrize("stride", [1, 2])
def test_rows_wider_than_what_is_held_at_once(stride: int) -> None:
    check(depthwise((1, 40, 5, 200), (5, 5), (1, stride), (2, 2, 2, 2)))


def test_numbers_far_beyond_all_bytes_saturate() -> None:
    ours = offer(depthwise(zero_points=(), bias=None))
    assert ours is not None
    values = of_bytes.operands(ours.spec) | {"scale_src": np.full(1, 1e30, np.float32)}
    values["src"][:], values["weights"][:20], values["weights"][20:] = 255, 127, -128
    got = execute(ours.spec, {name: array for name, array in values.items() if name != "dst"})["dst"]
    assert (got[:, :20] == 255).all()
    assert (got[:, 20:] == 0).all()


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(depthwise())
    assert ours is not None
    assert dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict())) == ours


def test_what_it_does_not_compute_is_not_offered() -> None:
    strange = [
        depthwise(tag="nchw"),
        depthwise(tag="nChw16c"),
        depthwise(types=("u8", "f32")),
        depthwise(types=("u8", "s32"), scales=SCALES[:2], zero_points=()),
        depthwise(tail=(dnnl.Sum(),)),
        depthwise(tail=(dnnl.Eltwise("tanh"),)),
        depthwise(zero_points=(("src", 2),)),
        depthwise(bias=dnnl.AnyDesc((40,), "s32")),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
