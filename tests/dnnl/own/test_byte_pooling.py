"""Our own max pooling of bytes, against numpy's."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute, offer_of

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)


def pooling(
    src: tuple[int, ...] = (1, 64, 9, 9),
    kernel: tuple[int, int] = (3, 3),
    dtype: str = "u8",
    tag: str = "nhwc",
    algorithm: str = "max",
    **window: Any,
) -> dnnl.Spec:
    options = {"n_threads": 2, "prop_kind": "forward_inference", **window}
    return dnnl.pooling(MemoryDesc(src, dtype, tag), None, algorithm, kernel=kernel, **options)


offer = partial(offer_of, "byte_pooling")


@settings(max_examples=80, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(16, 200), st.integers(1, 20), st.integers(1, 20)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    dilations=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    dtype=st.sampled_from(["u8", "s8"]),
    n_threads=st.integers(1, 5),
    data=st.data(),
)
def test_any_problem(
    extents: tuple[int, ...],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    dtype: str,
    n_threads: int,
    data: st.DataObject,
) -> None:
    reach = [(k - 1) * (dilation + 1) + 1 for k, dilation in zip(kernel, dilations, strict=True)]
    pads = tuple(data.draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    dims = (*extents[:2], *(max(extent, r) for extent, r in zip(extents[2:], reach, strict=True)))
    ours = offer(pooling(dims, kernel, dtype, strides=strides, dilations=dilations, pads=pads, n_threads=n_threads))
    assert ours is not None
    limits = np.iinfo(to_numpy(dtype))
    x = np.random.default_rng(dims).integers(limits.min, limits.max, dims, endpoint=True).astype(to_numpy(dtype))
    around = [(0, 0), (0, 0), *((pads[dim], pads[2 + dim]) for dim in range(2))]
    padded = np.pad(x, around, constant_values=limits.min)
    _, _, *counts = ours.spec.desc("dst").dims
    taps: list[Any] = [
        (
            ...,
            *(
                slice(tap * (dilation + 1), tap * (dilation + 1) + (n - 1) * stride + 1, stride)
                for tap, n, stride, dilation in zip(place, counts, strides, dilations, strict=True)
            ),
        )
        for place in product(*map(range, kernel))
    ]
    expected = np.max([padded[tap] for tap in taps], 0)
    np.testing.assert_array_equal(execute(ours.spec, {"src": x})["dst"], expected)


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(pooling())
    assert ours is not None
    assert dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict())) == ours


def test_it_is_the_first_of_those_on_offer() -> None:
    assert own.name_of(dnnl.favourite(pooling()).spec.impl) == "byte_pooling"


def test_what_it_does_not_compute_is_not_offered() -> None:
    strange = [
        pooling((1, 8, 9, 9)),
        pooling(tag="nchw"),
        pooling(tag="nChw16c"),
        pooling(dtype="f32"),
        pooling(algorithm="avg_include_padding"),
        pooling(prop_kind="forward_training"),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
