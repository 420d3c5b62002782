"""Numbers of bytes that stay in place, in C of our own: numpy's, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import Attr, own
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

SCALED, SHIFTED = Attr(scales=(("src", 0),)), Attr(scales=(("src", 0),), zero_points=(("src", 0),))
SOURCE = MemoryDesc((2, 17, 5, 3), "u8", "nhwc")


def offered(src: MemoryDesc, dst: MemoryDesc, attr: Attr) -> list[dnnl.Spec]:
    """Ours among the implementations."""
    found = dnnl.optimised(dnnl.reorder(src, dst, attr=attr, n_threads=2))
    return [each.spec for each in found if own.implementation(each.spec.impl)]


@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 17, 5, 3), (1, 3, 95, 97)])  # the last enough for several threads
@pytest.mark.parametrize("attr", [SCALED, SHIFTED], ids=["scale", "zero point"])
@pytest.mark.parametrize("dst", ["f32", "bf16"])
@pytest.mark.parametrize("src", ["u8", "s8"])
def test_each_number_is_that_of_numpy(src: str, dst: str, attr: Attr, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    limits = np.iinfo(to_numpy(src))
    x = rng.integers(limits.min, limits.max + 1, shape).astype(to_numpy(src))
    scale, zero_point = np.array([0.0371], np.float32), np.array([11 if attr is SHIFTED else 0], np.int32)
    [spec] = offered(MemoryDesc(shape, src), MemoryDesc(shape, dst), attr)
    fed = {"src": x, "scale_src": scale} | ({"zero_point_src": zero_point} if attr is SHIFTED else {})
    expected = ((x.astype(np.int32) - zero_point).astype(np.float32) * scale).astype(to_numpy(dst))
    np.testing.assert_array_equal(execute(spec, fed)["dst"], expected)


@given(st.integers(1, 200), st.floats(2**-20, 1024, width=32), st.integers(-128, 127))
@settings(deadline=None, max_examples=50)
def test_any_length_scale_and_zero_point(n: int, scale: float, zero_point: int) -> None:
    x = np.random.default_rng(n).integers(-128, 128, n).astype(np.int8)
    [spec] = offered(MemoryDesc((n,), "s8"), MemoryDesc((n,), "f32"), SHIFTED)
    numbers = np.array([scale], np.float32), np.array([zero_point], np.int32)
    found = execute(spec, {"src": x, "scale_src": numbers[0], "zero_point_src": numbers[1]})["dst"]
    np.testing.assert_array_equal(found, (x.astype(np.int32) - zero_point).astype(np.float32) * numbers[0])


@pytest.mark.parametrize(
    ("dst", "attr"),
    [
        (MemoryDesc(SOURCE.dims, "f32", "nchw"), SCALED),  # in another order
        (MemoryDesc(SOURCE.dims, "f32", "nhwc"), Attr(scales=(("src", 2),))),  # by channel
        (MemoryDesc(SOURCE.dims, "f32", "nhwc"), Attr(scales=(("src", 0), ("dst", 0)))),
        (MemoryDesc(SOURCE.dims, "f32", "nhwc"), Attr()),
    ],
)
def test_the_library_has_all_else(dst: MemoryDesc, attr: Attr) -> None:
    assert not offered(SOURCE, dst, attr)


def test_padding_is_left_to_the_library() -> None:
    blocked = MemoryDesc(SOURCE.dims, "u8", "nChw16c")
    assert not offered(blocked, blocked.with_dtype("f32"), SCALED)


BITS = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 65504, 65519.9, 65520, 1e-8, 3e38, -1e-40], np.float32)
NARROW = [dtype for dtype in ("f16", "bf16") if dnnl.has_isa("avx2") and dnnl.missing_isa(dtype)]
"""There are none of ours without AVX2."""


def among_halves(dtype: str) -> np.ndarray:
    """All numbers of a type as f32, those half way between two, those beside, and other special ones."""
    each = BITS.view(to_numpy(dtype)).astype(np.float32)
    beside = np.nextafter(each[None], np.array([[-np.inf], [np.inf]], np.float32))
    halfway = (each[1:] + each[:-1]) / 2
    return np.concatenate([each, *beside, halfway, *np.nextafter(halfway, np.float32(0))[None], SPECIAL])


@pytest.mark.parametrize("dtype", NARROW)
@np.errstate(all="ignore")
def test_halves_are_those_of_numpy(dtype: str) -> None:
    for x in (BITS.view(to_numpy(dtype)), among_halves(dtype)):
        to = "f32" if x.dtype != np.float32 else dtype
        [spec] = offered(MemoryDesc(x.shape, "f32" if to == dtype else dtype), MemoryDesc(x.shape, to), Attr())
        found, expected = execute(spec, {"src": x})["dst"], x.astype(to_numpy(to))
        np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("dtype", NARROW)
def test_halves_in_blocks_keep_padding_zero(dtype: str) -> None:
    blocked = MemoryDesc(SOURCE.dims, "f32", "nChw8c")
    x = np.random.default_rng(0).standard_normal(SOURCE.dims, np.float32).astype(to_numpy(dtype))
    [spec] = offered(blocked.with_dtype(dtype), blocked, Attr())
    np.testing.assert_array_equal(execute(spec, {"src": x})["dst"], x.astype(np.float32))
    assert not offered(MemoryDesc(SOURCE.dims, dtype), blocked, Attr())
