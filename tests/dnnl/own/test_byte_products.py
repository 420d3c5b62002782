"""Our own products of bytes, exact without VNNI, against numpy's in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc
from tests.dnnl.own import of_bytes
from tests.dnnl.own.of_bytes import RELU, TAILS, TYPES, ZEROS
from tests.dnnl.running import execute

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2") or dnnl.sums_bytes_exactly(),
    reason="needs AVX2 without VNNI and a compiler at installation",
)

RESULTS = (*TYPES, "f32", "s32")
SCALES = (("src", 0), ("weights", 1), ("dst", 0))


def convolution(
    src: tuple[int, ...], n_dst: int, kernel: tuple[int, ...], types: tuple[str, str] = ("u8", "u8"), **changes: Any
) -> dnnl.Spec:
    tag = "nhwc" if len(src) == 4 else "nwc"
    arguments: dict[str, Any] = {
        "bias": dnnl.AnyDesc((n_dst,), "f32"),
        "attr": dnnl.Attr((RELU,), scales=SCALES, zero_points=ZEROS),
        "n_threads": 2,
    }
    weights = dnnl.AnyDesc((n_dst, src[1], *kernel), "s8")
    made = dnnl.convolution(MemoryDesc(src, types[0], tag), weights, None, **arguments | changes)
    dst = MemoryDesc(made.desc("dst").dims, types[1], tag)
    return dnnl.convolution(MemoryDesc(src, types[0], tag), weights, dst, **arguments | changes)


def check(spec: dnnl.Spec, **given: np.ndarray) -> None:
    ours = next((each for each in own.offers(spec) if own.name_of(each.spec.impl) == "byte_products"), None)
    assert ours is not None
    of_bytes.check(ours.spec, given)


SCALED = (SCALES, SCALES[1:], (("src", 0), ("weights", 0)), SCALES[::2], ())
SHIFTED = ((), ZEROS, ZEROS[:1], ZEROS[1:], (("src", 0), ("weights", 0)), (*ZEROS, ("weights", 0)))


def attr_of(dtype: str, tail: tuple[Any, ...] = (), scales: Any = (), zero_points: Any = ()) -> dnnl.Attr:
    """Of results of a data type; floats have neither scale nor zero point, and sums zero points of operands alone."""
    if dtype == "s32":
        return dnnl.Attr(zero_points=tuple(each for each in zero_points if each[0] != "dst"))
    kept = [tuple(each for each in masks if each[0] != "dst" or dtype != "f32") for masks in (scales, zero_points)]
    return dnnl.Attr(tail, scales=kept[0], zero_points=kept[1])


def bias_of(dtype: str) -> dict[str, Any]:
    """Sums have none."""
    return {"bias": None} if dtype == "s32" else {}


@settings(max_examples=150, deadline=None)
@given(
    extents=st.tuples(st.integers(1, 3), st.integers(1, 90), st.integers(1, 20), st.integers(1, 20)),
    n_dst=st.integers(1, 70),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    types=st.tuples(st.sampled_from(TYPES), st.sampled_from(RESULTS)),
    attr=st.tuples(st.sampled_from(TAILS), st.sampled_from(SCALED), st.sampled_from(SHIFTED)),
    given=st.fixed_dictionaries(
        {
            "strides": st.tuples(st.integers(1, 3), st.integers(1, 3)),
            "dilations": st.tuples(st.integers(0, 2), st.integers(0, 2)),
            "n_threads": st.integers(1, 5),
        },
        optional={"bias": st.none()},
    ),
    data=st.data(),
)
def test_any_convolution(
    extents: tuple[int, ...],
    n_dst: int,
    kernel: tuple[int, int],
    types: tuple[str, str],
    attr: tuple[Any, ...],
    given: dict[str, Any],
    data: st.DataObject,
) -> None:
    reach = [(k - 1) * (dilation + 1) + 1 for k, dilation in zip(kernel, given["dilations"], strict=True)]
    pads = tuple(data.draw(st.integers(0, k)) for k in (*kernel, *kernel))
    spatial = (max(extent, r) for extent, r in zip(extents[2:], reach, strict=True))
    given = {**given, "pads": pads, "attr": attr_of(types[1], *attr)} | bias_of(types[1])
    check(convolution((*extents[:2], *spatial), n_dst, kernel, types, **given))


@pytest.mark.parametrize("n_src", [128, 300, 1100, 2052])
@pytest.mark.parametrize("size", [(1, 1), (7, 7), (14, 14)])
def test_many_channels(n_src: int, size: tuple[int, int]) -> None:
    """More than stay near are summed part by part; whether sources are copied, or read where they lie."""
    check(convolution((2, n_src, *size), 40, (1, 1)))
    check(convolution((1, n_src, *size), 24, (3, 3), pads=1))


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("dtype", RESULTS[:-1])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_factor_for_each_channel(tail: tuple[Any, ...], dtype: str, sign: int) -> None:
    factor = dnnl.Binary("mul", MemoryDesc((1, 40, 1, 1), "f32"))
    attr = dnnl.Attr((*tail, factor), scales=(("src", 0), ("weights", 1)))
    factors = sign * np.random.default_rng(0).uniform(1, 20, (1, 40, 1, 1)).astype(np.float32)
    spec = convolution((1, 24, 9, 9), 40, (3, 3), ("s8", dtype), pads=1, attr=attr)
    check(spec, **{f"post_op_{len(tail)}_src_1": factors})


def test_padding_behind_an_image_alone() -> None:
    check(convolution((1, 16, 2, 1), 16, (1, 1), pads=(0, 0, 0, 1)))


def test_a_line() -> None:
    check(convolution((2, 24, 50), 40, (5,), pads=2, strides=2))


@pytest.mark.parametrize("result", ["f32", "s32"])
@pytest.mark.parametrize("dtype", TYPES)
def test_sums_of_the_largest_bytes(dtype: str, result: str) -> None:
    """Where instructions would saturate each sum of two."""
    src = np.full((1, 64, 6, 6), np.iinfo(to_numpy(dtype)).max)
    spec = convolution((1, 64, 6, 6), 32, (3, 3), (dtype, result), pads=1, attr=dnnl.Attr(), **bias_of(result))
    for weight in (127, -128):
        check(spec, src=src.astype(to_numpy(dtype)), weights=np.full((32, 64, 3, 3), weight, np.int8))


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("n_src", [3, 64, 1500])
@pytest.mark.parametrize("dtype", RESULTS)
def test_products_of_matrices(rows: int, n_src: int, dtype: str) -> None:
    src, dst = MemoryDesc((rows, n_src), "u8"), MemoryDesc((rows, 50), dtype)

    def given(mask: int, *bias: int) -> dict[str, Any]:
        attr = attr_of(dtype, (RELU,), (("src", 0), ("weights", mask), ("dst", 0)), SHIFTED[-1])
        return {"bias": dnnl.AnyDesc(bias, "f32"), "attr": attr, "n_threads": 2} | bias_of(dtype)

    inner = dnnl.inner_product(src, dnnl.AnyDesc((50, n_src), "s8"), dst, **given(1, 50))
    product = dnnl.matmul(src, dnnl.AnyDesc((n_src, 50), "s8"), dst, **given(2, 1, 50))
    check(inner)
    check(product)


def test_sources_with_gaps_between_pixels() -> None:
    whole = MemoryDesc((1, 96, 9, 9), "u8", "nhwc")
    part = whole.submemory((1, 32, 9, 9), (0, 0, 0, 0))
    for kernel, pads in (((1, 1), 0), ((3, 3), 0), ((3, 3), 1)):
        made = convolution((1, 32, 9, 9), 32, kernel, pads=pads)
        check(made.replace(descs=tuple((name, part if name == "src" else desc) for name, desc in made.descs)))


@pytest.mark.parametrize("name", ["src", "weights"])
def test_zero_points_that_no_byte_has(name: str) -> None:
    spec = convolution((1, 16, 5, 5), 16, (3, 3), pads=1, attr=dnnl.Attr(zero_points=((name, 0),)))
    [ours] = [each for each in own.offers(spec) if own.name_of(each.spec.impl) == "byte_products"]
    given = of_bytes.operands(ours.spec) | {f"zero_point_{name}": np.array([300], np.int32)}
    del given["dst"]
    with pytest.raises(InvalidArgumentsError, match="zero point of the source or the weights"):
        execute(ours.spec, given)


@pytest.mark.parametrize(
    "changes",
    [
        {"attr": dnnl.Attr(zero_points=(("weights", 1),))},
        {"attr": dnnl.Attr((dnnl.Eltwise("tanh"),))},
        {"attr": dnnl.Attr((dnnl.Sum(),))},
        {"bias": dnnl.AnyDesc((16,), "s32")},
    ],
)
def test_what_it_does_not_take(changes: dict[str, Any]) -> None:
    spec = convolution((1, 16, 5, 5), 16, (3, 3), **changes)
    assert not [each for each in own.offers(spec) if own.name_of(each.spec.impl) == "byte_products"]


@pytest.mark.parametrize("bias", [(1, 1), (4, 1), (4, 32)])
def test_biases_that_are_not_of_channels(bias: tuple[int, int]) -> None:
    src, weights, dst = MemoryDesc((4, 16), "u8"), dnnl.AnyDesc((16, 32), "s8"), MemoryDesc((4, 32), "f32")
    spec = dnnl.matmul(src, weights, dst, dnnl.AnyDesc(bias, "f32"), n_threads=1)
    assert not [each for each in own.offers(spec) if own.name_of(each.spec.impl) == "byte_products"]
