"""Bytes brought to another scale, alone or side by side, in C of our own: numpy's, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import Attr, own
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import Array, execute

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

Number = tuple[float, int]
"""A scale and a zero point."""

SCALED = Attr(scales=(("src", 0), ("dst", 0)))
SHAPE = (2, 17, 5, 3)


def ours(spec: dnnl.Spec) -> list[dnnl.Spec]:
    return [each.spec for each in dnnl.optimised(spec) if own.implementation(each.spec.impl)]


def any_bytes(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    limits = np.iinfo(to_numpy(dtype))
    drawn: Array = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape)
    return drawn.astype(limits.dtype)


def numbers(**given: Number) -> tuple[Attr, dict[str, Array]]:
    """Attributes by argument, and what they are fed."""
    shifted = {arg: zero for arg, (_, zero) in given.items() if zero}
    fed = {f"scale_{arg}": np.array([scale], np.float32) for arg, (scale, _) in given.items()}
    fed |= {f"zero_point_{arg}": np.array([zero], np.int32) for arg, zero in shifted.items()}
    return Attr(scales=tuple((arg, 0) for arg in given), zero_points=tuple((arg, 0) for arg in shifted)), fed


def requantized(x: Array, before: Number, after: Number, dtype: str) -> Array:
    """As DequantizeLinear and QuantizeLinear."""
    limits = np.iinfo(to_numpy(dtype))
    real = (x.astype(np.int32) - before[1]).astype(np.float32) * np.float32(before[0])
    found: Array = np.clip(np.rint(real / np.float32(after[0])) + after[1], limits.min, limits.max)
    return found.astype(limits.dtype)


@pytest.mark.parametrize("shape", [(1,), (3, 5), SHAPE, (1, 3, 195, 97)])  # the last enough for several threads
@pytest.mark.parametrize("dst", ["u8", "s8"])
@pytest.mark.parametrize("src", ["u8", "s8"])
def test_each_byte_of_one_tensor(src: str, dst: str, shape: tuple[int, ...]) -> None:
    before, after = (0.0371, 11), (0.0213, -3 if dst == "s8" else 7)
    attr, fed = numbers(src=before, dst=after)
    [spec] = ours(dnnl.reorder(MemoryDesc(shape, src), MemoryDesc(shape, dst), attr=attr, n_threads=2))
    x = any_bytes(shape, src)
    np.testing.assert_array_equal(execute(spec, fed | {"src": x})["dst"], requantized(x, before, after, dst))


SCALES = st.floats(2**-20, 1024, width=32)
SCHEMES = st.sampled_from(["u8", "s8"]).flatmap(
    lambda dtype: st.tuples(st.just(dtype), SCALES, st.integers(0, 127) if dtype == "u8" else st.integers(-128, 127))
)


@given(
    st.lists(st.tuples(SCHEMES, st.integers(1, 150)), min_size=1, max_size=5),
    SCHEMES,
    st.sampled_from(["nchw", "nhwc"]),
    st.integers(0, 3),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=100)
def test_any_parts_side_by_side(
    parts: Sequence[tuple[tuple[str, float, int], int]],
    result: tuple[str, float, int],
    tag: str,
    axis: int,
    n_threads: int,
) -> None:
    dims = (2, 3, 4, 5)
    shapes = [(*dims[:axis], extent, *dims[axis + 1 :]) for _, extent in parts]
    xs = [
        any_bytes(shape, dtype, seed) for seed, (((dtype, *_), _), shape) in enumerate(zip(parts, shapes, strict=True))
    ]
    given = {f"src_{index}": (scale, zero) for index, ((_, scale, zero), _) in enumerate(parts)}
    dtype, *after = result
    attr, fed = numbers(**given, dst=(after[0], after[1]))
    srcs = [MemoryDesc(x.shape, each, tag) for x, ((each, *_), _) in zip(xs, parts, strict=True)]
    whole = tuple(sum(shape[axis] for shape in shapes) if dim == axis else n for dim, n in enumerate(dims))
    [spec] = ours(dnnl.concat(srcs, MemoryDesc(whole, dtype, tag), axis, attr=attr, n_threads=n_threads))
    found = execute(spec, fed | {f"src_{index}": x for index, x in enumerate(xs)})["dst"]
    made = [requantized(x, before, (after[0], after[1]), dtype) for x, before in zip(xs, given.values(), strict=True)]
    np.testing.assert_array_equal(found, np.concatenate(made, axis))


@pytest.mark.parametrize("n_channels", [(64, 64), (3, 70, 129)])
def test_bytes_of_one_scale_are_copied(n_channels: tuple[int, ...]) -> None:
    xs = [any_bytes((1, n, 24, 24), "u8", n) for n in n_channels]
    srcs = [MemoryDesc(x.shape, "u8", "nhwc") for x in xs]
    dst = MemoryDesc((1, sum(n_channels), 24, 24), "u8", "nhwc")
    [spec] = ours(dnnl.concat(srcs, dst, n_threads=2))
    found = execute(spec, {f"src_{index}": x for index, x in enumerate(xs)})["dst"]
    np.testing.assert_array_equal(found, np.concatenate(xs, 1))


@pytest.mark.parametrize(
    ("src", "dst", "attr"),
    [
        ("nhwc", "nchw", SCALED),  # in another order
        ("nChw16c", "nChw16c", SCALED),  # padding, which stays 0
        ("nhwc", "nhwc", Attr(scales=(("src", 2), ("dst", 2)))),  # by channel
        ("nhwc", "nhwc", Attr()),
    ],
)
def test_the_library_has_all_else(src: str, dst: str, attr: Attr) -> None:
    descs = (MemoryDesc(SHAPE, "u8", tag) for tag in (src, dst))
    assert not ours(dnnl.reorder(*descs, attr=attr, n_threads=2))


@pytest.mark.parametrize("n_parts", [64, 65])
def test_more_parts_than_it_takes_are_left_to_the_library(n_parts: int) -> None:
    spec = dnnl.concat([MemoryDesc((2, 2), "u8")] * n_parts, MemoryDesc((2, 2 * n_parts), "u8"), n_threads=1)
    assert bool(ours(spec)) == (n_parts <= 64)
