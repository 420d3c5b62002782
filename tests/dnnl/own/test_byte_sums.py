"""Our own sums of bytes, against numpy's in double precision and against the library's."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import Attr, Eltwise, own
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import Array, execute, offer_of, packed

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2") or dnnl.has_isa("avx512_core"),
    reason="needs AVX2 without AVX-512, and a compiler at installation",
)

SCALES = tuple((f"src_{k}", 0) for k in range(2))
RELU = Eltwise("relu")
BYTES = st.sampled_from(["u8", "s8"])
NUMBERS = st.floats(2**-20, 1024, width=32)


def addition(
    n: int = 40_000,
    dtypes: tuple[str, str, str] = ("u8", "u8", "u8"),
    post_ops: tuple[dnnl.PostOp, ...] = (),
    n_threads: int = 2,
    **others: Any,
) -> dnnl.Spec:
    src_0, src_1, dst = (MemoryDesc((1, n), dtype) for dtype in dtypes)
    options = {"attr": Attr(post_ops, SCALES), "algorithm": "add", **others}
    return dnnl.binary(src_0, src_1, dst, n_threads=n_threads, **options)


offer = partial(offer_of, "byte_sums")


def any_bytes(n: int, dtype: str, seed: int) -> Array:
    limits = np.iinfo(to_numpy(dtype))
    drawn: Array = np.random.default_rng(seed).integers(limits.min, limits.max + 1, (1, n))
    return drawn.astype(limits.dtype)


def fed(scales: tuple[float, float], *xs: Array) -> dict[str, Array]:
    numbers = {f"scale_src_{k}": np.array([scale], np.float32) for k, scale in enumerate(scales)}
    return numbers | {f"src_{k}": x for k, x in enumerate(xs)}


@settings(max_examples=200, deadline=None)
@given(
    n=st.one_of(st.integers(1, 300), st.integers(30_000, 70_000)),
    dtypes=st.tuples(BYTES, BYTES, BYTES),
    scales=st.tuples(NUMBERS, NUMBERS),
    alpha=NUMBERS | NUMBERS.map(float.__neg__),
    beta=st.floats(-1000, 1000, width=32),
    before=st.sampled_from([(), (RELU,)]),
    n_threads=st.integers(1, 3),
)
def test_any_sum(
    n: int,
    dtypes: tuple[str, str, str],
    scales: tuple[float, float],
    alpha: float,
    beta: float,
    before: tuple[dnnl.PostOp, ...],
    n_threads: int,
) -> None:
    ours = offer(addition(n, dtypes, (*before, Eltwise("linear", alpha, beta)), n_threads))
    assert ours is not None
    xs = [any_bytes(n, dtype, seed) for seed, dtype in enumerate(dtypes[:2])]
    found = execute(ours.spec, fed(scales, *xs))["dst"]
    total = sum(scale * x.astype(np.float64) for scale, x in zip(scales, xs, strict=True))
    exact = alpha * (np.maximum(total, 0) if before else total) + beta
    limits = np.iinfo(found.dtype)
    rounding = 2**-21 * (255 * abs(alpha) * sum(scales) + abs(beta))  # some units of the last place of the largest
    low, high = (np.clip(exact + sign * rounding, limits.min, limits.max) for sign in (-1, 1))
    assert ((np.rint(low) <= found) & (found <= np.rint(high))).all()


@pytest.mark.parametrize("dst", ["u8", "s8"])
@pytest.mark.parametrize("post_ops", [(), (RELU,), (Eltwise("linear", 0.5, -3.0),), (RELU, Eltwise("linear", -2, 9))])
def test_ties_go_to_the_even_number(post_ops: tuple[dnnl.PostOp, ...], dst: str) -> None:
    pairs = np.indices((256, 256), np.uint8).reshape(2, 1, -1)
    xs = pairs[0], pairs[1].view(np.int8)
    ours = offer(addition(1 << 16, ("u8", "s8", dst), post_ops))
    assert ours is not None
    exact = xs[0] * 0.5 + xs[1] * 0.25
    exact = np.maximum(exact, 0) if RELU in post_ops else exact
    line = next((each for each in post_ops if each != RELU), Eltwise("linear", 1))
    assert isinstance(line, Eltwise)
    limits = np.iinfo(to_numpy(dst))
    expected = np.clip(np.rint(exact * line.alpha + line.beta), limits.min, limits.max)
    np.testing.assert_array_equal(execute(ours.spec, fed((0.5, 0.25), *xs))["dst"], expected)


@pytest.mark.parametrize("dst", ["u8", "s8"])
@pytest.mark.parametrize("scales", [(0.013, 0.021), (3e9, 1e-3), (-3e9, 2.0), (-0.4137, 0.7291)])
@pytest.mark.parametrize("post_ops", [(), (RELU,), (RELU, Eltwise("linear", 27.7, -52.5)), (Eltwise("linear", 36, 7),)])
def test_of_all_pairs_the_library_rounds_few_otherwise(
    post_ops: tuple[dnnl.PostOp, ...], scales: tuple[float, float], dst: str
) -> None:
    pairs = np.indices((256, 256), np.uint8).reshape(2, 1, -1)
    spec = addition(1 << 16, ("u8", "u8", dst), post_ops)
    ours, given = offer(spec), fed(scales, *pairs)
    theirs = next(each for each in dnnl.implementations(spec) if each.spec.impl == "jit:uni")
    assert ours is not None
    found, expected = (execute(each.spec, given)["dst"].astype(int) for each in (ours, theirs))
    assert abs(found - expected).max() <= 1
    assert np.count_nonzero(found != expected) <= found.size // 1000


@pytest.mark.parametrize("n", [31, 100_001])
@pytest.mark.parametrize("name", ["src_0", "src_1"])
def test_the_result_may_lie_where_a_source_does(name: str, n: int) -> None:
    ours = offer(addition(n, post_ops=(Eltwise("linear", 1.0, 5.0),)))
    assert ours is not None
    given = fed((0.3, 0.6), *(any_bytes(n, "u8", seed) for seed in range(2)))
    memories = {arg: packed(ours.spec.memory_desc(arg), array) for arg, array in given.items()}
    execution = dnnl.Primitive(ours.spec).bind(memories | {"dst": memories[name]})
    dnnl.run_parallel(execution.run, 2)
    found = np.asarray(memories[name].buffer).view(np.uint8)[:n].reshape(1, n)
    np.testing.assert_array_equal(found, execute(ours.spec, given)["dst"])


def test_sources_may_have_no_scales() -> None:
    xs = [any_bytes(99, "u8", seed) for seed in range(2)]
    ours = offer(addition(99, attr=Attr()))
    assert ours is not None
    found = execute(ours.spec, dict(zip(("src_0", "src_1"), xs, strict=True)))["dst"]
    np.testing.assert_array_equal(found, np.minimum(xs[0].astype(int) + xs[1], 255))


def test_a_settled_spec_is_made_again() -> None:
    ours = offer(addition())
    assert ours is not None
    assert dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict())) == ours


def test_it_is_the_first_of_those_on_offer() -> None:
    assert own.name_of(dnnl.favourite(addition()).spec.impl) == "byte_sums"


def test_what_it_does_not_compute_is_not_offered() -> None:
    images = {tag: MemoryDesc((1, 16, 3, 3), "u8", tag) for tag in ("nchw", "nhwc")}
    padded = MemoryDesc((1, 17, 3, 3), "u8", "nChw16c")
    strange = [
        addition(algorithm="mul"),
        addition(dtypes=("u8", "u8", "f32")),
        addition(dtypes=("f32", "u8", "u8")),
        addition(post_ops=(Eltwise("relu", 0.1),)),
        addition(post_ops=(Eltwise("linear", 2.0, 1.0), RELU)),
        addition(post_ops=(RELU, RELU, Eltwise("linear", 2.0, 1.0))),
        addition(post_ops=(Eltwise("tanh"),)),
        addition(post_ops=(dnnl.Sum(),)),
        dnnl.binary(images["nchw"], images["nhwc"], images["nchw"], "add", n_threads=1),
        dnnl.binary(MemoryDesc((2, 9), "u8"), MemoryDesc((1, 9), "u8"), MemoryDesc((2, 9), "u8"), "add", n_threads=1),
        dnnl.binary(padded, padded, padded, "add", n_threads=1),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
