"""Bytes by a scale that is found among the numbers, against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from onnx.reference import ReferenceEvaluator

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)

NUMBER = MemoryDesc((1,), "f32")


def quantized(x: np.ndarray, n_threads: int = 2) -> dict[str, Any]:
    src = MemoryDesc(x.shape)
    numbers = {"scale": NUMBER, "zero_point": NUMBER.with_dtype("u8")}
    spec = dnnl.dynamic_quantization(src, src.with_dtype("u8"), **numbers, n_threads=n_threads)
    [ours] = own.offers(spec)
    return execute(ours.spec, {"src": x})


def check(x: np.ndarray, n_threads: int = 2) -> None:
    node = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    expected: Any = ReferenceEvaluator(node).run(None, {"x": x})
    found = quantized(x, n_threads)
    for name, array in zip(("dst", "scale", "zero_point"), expected, strict=True):
        np.testing.assert_array_equal(found[name].reshape(array.shape), array)


@settings(max_examples=100, deadline=None)
@given(
    st_numpy.arrays(np.float32, st.integers(1, 300), elements=st.floats(-(2.0**60), 2.0**60, width=32)),
    st.integers(1, 5),
)
def test_any_numbers(x: np.ndarray, n_threads: int) -> None:
    with np.errstate(all="ignore"):
        scale = np.float32(max(x.max(), 0) - min(x.min(), 0)) / np.float32(255)
    if scale == 0 or scale >= np.finfo(np.float32).tiny:  # others are no quotients that the reference rounds alike
        check(x, n_threads)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 1 << 14, (1 << 16) + 5])
@pytest.mark.parametrize("shift", [-9, 0, 9])
def test_many_numbers(n: int, shift: int) -> None:
    check((np.random.default_rng(n).standard_normal(n) + shift).astype(np.float32))


def test_nan_is_seen_in_the_scale() -> None:
    for place in (0, 40, 99):
        x = np.ones(100, np.float32)
        x[place] = np.nan
        assert np.isnan(quantized(x)["scale"]).all()
