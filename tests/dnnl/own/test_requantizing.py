"""Bytes by a table, or brought to another scale side by side, in C of our own: numpy's, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import Attr, own
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import Array, execute

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

Number = tuple[float, int]
"""A scale and a zero point."""

SHAPE = (2, 17, 5, 3)


def ours(spec: dnnl.Spec) -> list[dnnl.Spec]:
    return [each.spec for each in own.offers(spec)]


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


LAYOUTS = [((1,), "a"), (SHAPE, "nchw"), (SHAPE, "nhwc"), ((2, 32, 5, 3), "nChw16c"), ((1, 3, 195, 97), "nhwc")]
"""The last has enough for several threads."""


@pytest.mark.parametrize(("shape", "tag"), LAYOUTS, ids=str)
@pytest.mark.parametrize("dst", ["u8", "s8"])
@pytest.mark.parametrize("src", ["u8", "s8"])
def test_each_byte_by_a_table(src: str, dst: str, shape: tuple[int, ...], tag: str) -> None:
    x, table = any_bytes(shape, src), any_bytes((256,), dst, 1)
    desc = MemoryDesc(shape, src, tag)
    [spec] = ours(dnnl.lookup(desc, MemoryDesc((256,), dst), desc.with_dtype(dst), n_threads=2))
    np.testing.assert_array_equal(execute(spec, {"src": x, "table": table})["dst"], table[x.view(np.uint8)])


@pytest.mark.parametrize(("src", "dst"), [("nhwc", "nchw"), ("nChw16c", "nChw16c")])
def test_bytes_that_change_places_and_padding_take_no_table(src: str, dst: str) -> None:
    descs = (MemoryDesc(SHAPE, "u8", tag) for tag in (src, dst))
    spec = dnnl.lookup(next(descs), MemoryDesc((256,), "u8"), next(descs), n_threads=2)
    with pytest.raises(UnimplementedError):
        dnnl.resolve(spec)


@pytest.mark.parametrize(
    ("table", "dst", "message"),
    [
        (MemoryDesc((255,), "u8"), "u8", "table"),
        (MemoryDesc((256,), "f32"), "f32", "table is f32"),
        (MemoryDesc((256,), "u8"), "s8", "dst is s8"),
    ],
)
def test_a_wrong_table_is_named(table: MemoryDesc, dst: str, message: str) -> None:
    src = MemoryDesc(SHAPE, "u8")
    with pytest.raises(InvalidArgumentsError, match=message):
        dnnl.lookup(src, table, src.with_dtype(dst), n_threads=1)


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
    dtype, *_ = result
    after = result[1:]
    attr, fed = numbers(**given, dst=after)
    srcs = [MemoryDesc(x.shape, each, tag) for x, ((each, *_), _) in zip(xs, parts, strict=True)]
    whole = tuple(sum(shape[axis] for shape in shapes) if dim == axis else n for dim, n in enumerate(dims))
    [spec] = ours(dnnl.concat(srcs, MemoryDesc(whole, dtype, tag), axis, attr=attr, n_threads=n_threads))
    found = execute(spec, fed | {f"src_{index}": x for index, x in enumerate(xs)})["dst"]
    made = [requantized(x, before, after, dtype) for x, before in zip(xs, given.values(), strict=True)]
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
        ("nhwc", "nchw", Attr()),  # in another order
        ("nChw16c", "nChw16c", Attr()),  # in blocks
        ("nhwc", "nhwc", Attr(scales=(("src_0", 2),))),  # by channel
    ],
)
def test_the_library_has_all_else(src: str, dst: str, attr: Attr) -> None:
    parts = [MemoryDesc((2, 16, 5, 3), "u8", src)] * 2
    assert not ours(dnnl.concat(parts, MemoryDesc((2, 32, 5, 3), "u8", dst), attr=attr, n_threads=2))


@pytest.mark.parametrize("n_parts", [64, 65])
def test_more_parts_than_it_takes_are_left_to_the_library(n_parts: int) -> None:
    spec = dnnl.concat([MemoryDesc((2, 2), "u8")] * n_parts, MemoryDesc((2, 2 * n_parts), "u8"), n_threads=1)
    assert bool(ours(spec)) == (n_parts <= 64)
