"""Group normalisation in C of our own, against numpy's in double precision, in any layout and by several threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl.own import offers
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import Array, assert_close, desc, execute

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

LAYOUTS = ("plain", "channels_last", "blocked4", "blocked8", "blocked16")
EPSILON = 1e-5
TAILS: dict[str, Any] = {
    "none": ((), lambda y: y),
    "relu": ((dnnl.Eltwise("relu"),), lambda y: np.maximum(y, 0)),
    "leaky": ((dnnl.Eltwise("relu", 0.1),), lambda y: np.where(y < 0, 0.1 * y, y)),
    "clip": ((dnnl.Eltwise("clip", -0.5, 0.75),), lambda y: np.clip(y, -0.5, 0.75)),
}


def in_layout(dims: tuple[int, ...], layout: str, dtype: str = "f32") -> MemoryDesc:
    return desc(dims, "plain" if len(dims) < 3 else layout, dtype)


def each_channel(vector: Array, x: Array) -> Array:
    """A number for each channel of each image, over the pixels."""
    repeated = np.repeat(vector.astype(np.float64), x.shape[1] // vector.shape[1], axis=1)
    return repeated.reshape(vector.shape[0], x.shape[1], *(1,) * (x.ndim - 2))


def normalized(x: Array, n_groups: int) -> Array:
    rows = x.astype(np.float64).reshape(x.shape[0], n_groups, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + EPSILON)
    return np.asarray(rows.reshape(x.shape))


def divisors(n: int) -> list[int]:
    return [each for each in range(1, n + 1) if n % each == 0]


@st.composite
def problems(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """Extents around the lengths of vectors and of what is computed at once, and groups."""
    channels = draw(st.one_of(st.integers(1, 40), st.sampled_from([48, 64, 96, 1023, 1024, 1025, 2048])))
    spatial = draw(
        st.one_of(
            st.just(()),
            st.tuples(st.integers(1, 70)),
            st.tuples(st.integers(1, 9), st.integers(1, 17)),
            st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
        )
    )
    return (draw(st.integers(1, 5)), channels, *spatial), draw(st.sampled_from(divisors(channels)))


@settings(max_examples=150, deadline=None)
@given(
    problem=problems(),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(["f32", "bf16"]),
    n_threads=st.integers(1, 3),
    tail=st.sampled_from(sorted(TAILS)),
    seed=st.integers(0, 99),
)
@example(((1, 512, 801), 1), "channels_last", "f32", 2, "none", 0)
@example(((1, 24, 1001), 1), "plain", "f32", 3, "relu", 0)
@example(((1, 24, 41, 41), 1), "blocked8", "f32", 2, "clip", 0)
@example(((2, 24, 21, 21), 8), "blocked16", "f32", 3, "leaky", 0)
@example(((1, 40, 41, 41), 40), "channels_last", "bf16", 2, "none", 0)
@example(((3, 30000), 1), "plain", "f32", 2, "none", 0)
def test_agrees_with_numpy(
    problem: tuple[tuple[int, ...], int], layout: str, dtype: str, n_threads: int, tail: str, seed: int
) -> None:
    dims, n_groups = problem
    generator = np.random.default_rng(seed)
    src = in_layout(dims, layout, dtype)
    x = generator.normal(3, 2, dims).astype(np.float32)
    x = x.astype(to_numpy(dtype)).astype(np.float32)
    scale = generator.uniform(-2, 2, (generator.choice([1, dims[0]]), generator.choice([n_groups, dims[1]])))
    shift = generator.uniform(-2, 2, (1, dims[1]))
    factor, addend = generator.uniform(-2, 2, (2, 1, dims[1], *(1,) * (len(dims) - 2))).astype(np.float32)
    functions, function = TAILS[tail]
    per_channel = MemoryDesc(factor.shape)
    spec = dnnl.group_normalization(
        src,
        None,
        MemoryDesc(scale.shape),
        MemoryDesc(shift.shape),
        n_groups,
        EPSILON,
        attr=dnnl.Attr((dnnl.Binary("mul", per_channel), dnnl.Binary("add", per_channel), *functions)),
        n_threads=n_threads,
    )
    given = {"src": x, "scale": scale, "shift": shift, "post_op_0_src_1": factor, "post_op_1_src_1": addend}
    expected = normalized(x, n_groups) * each_channel(scale, x) + each_channel(shift, x)
    result = run(spec, given)
    assert_close(result, function(expected * factor + addend), 1e-5 if dtype == "f32" else 5e-3)


def run(spec: dnnl.Spec, given: dict[str, Array]) -> Array:
    """Its results, having checked that padding is zero."""
    resolved = dnnl.resolve(spec).spec
    assert resolved.impl.startswith("group_normalization:")
    typed = {name: array.astype(to_numpy(resolved.desc(name).dtype)) for name, array in given.items()}
    return execute(resolved, typed)["dst"]


def plain_problem(dims: tuple[int, ...], n_groups: int, layout: str, n_threads: int = 2, **changes: Any) -> dnnl.Spec:
    return dnnl.group_normalization(
        in_layout(dims, layout), None, None, None, n_groups, EPSILON, n_threads=n_threads, **changes
    )


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked16"])
@pytest.mark.parametrize("n_groups", [1, 4, 32])
def test_results_are_the_same_for_any_number_of_threads(layout: str, n_groups: int) -> None:
    x = np.random.default_rng(0).standard_normal((1, 32, 40, 41)).astype(np.float32)
    first, *others = (run(plain_problem(x.shape, n_groups, layout, n), {"src": x}) for n in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8"])
@pytest.mark.parametrize("n_groups", [1, 4, 24])
def test_a_large_mean_leaves_a_small_variance_what_it_is(layout: str, n_groups: int) -> None:
    """Elements are multiples of what f32 can tell apart there, so that none is rounded before it is read."""
    steps = np.random.default_rng(0).integers(-40, 41, (2, 24, 33, 33))
    x = (1e6 + steps / 16).astype(np.float32)
    assert_close(run(plain_problem(x.shape, n_groups, layout), {"src": x}), normalized(x, n_groups), 2e-6)


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_group_nan_and_no_other(layout: str, special: float) -> None:
    x = np.random.default_rng(0).standard_normal((2, 16, 30, 31)).astype(np.float32)
    expected = normalized(x, 4)
    x[1, 5, 29, 30] = special
    expected[1, 4:8] = np.nan
    result = run(plain_problem(x.shape, 4, layout), {"src": x})
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["plain", "channels_last", "blocked8"])
def test_constant_groups_become_zero(layout: str) -> None:
    x = np.full((1, 12, 9, 9), 0.1, np.float32)
    assert not run(plain_problem(x.shape, 3, layout), {"src": x}).any()


@pytest.mark.parametrize(
    "spec",
    [
        plain_problem((1, 8, 4), 2, "plain", attr=dnnl.Attr((dnnl.Eltwise("tanh"),))),
        plain_problem((1, 8, 4), 2, "plain", attr=dnnl.Attr((dnnl.Eltwise("clip", 1, 2),))),
        plain_problem((1, 8, 4), 2, "plain", attr=dnnl.Attr((dnnl.Eltwise("relu"), dnnl.Eltwise("relu")))),
        plain_problem((1, 8, 4), 2, "plain", attr=dnnl.Attr((dnnl.Binary("mul", MemoryDesc((1, 8, 4))),))),
        plain_problem((1, 8, 4), 2, "plain", attr=dnnl.Attr((dnnl.Binary("max", MemoryDesc((1, 8, 1))),))),
        dnnl.group_normalization(MemoryDesc((1, 8, 4), "f16"), n_threads=1),
        dnnl.group_normalization(MemoryDesc((1, 8, 4), "f32", "abc", offset=4), n_threads=1),
        dnnl.group_normalization(MemoryDesc((2, 8, 4), "f32", "bca"), n_threads=1),
        dnnl.group_normalization(MemoryDesc((1, 8, 6, 6), "f32", "abCd4c"), n_threads=1),
        dnnl.group_normalization(MemoryDesc((1, 8, 4)), MemoryDesc((1, 8, 4), "f32", "acb"), n_threads=1),
        dnnl.group_normalization(MemoryDesc((0, 8, 4)), n_threads=1),
        dnnl.group_normalization(MemoryDesc((1, 8, 0)), n_threads=1),
        dnnl.softmax(MemoryDesc((2, 3)), n_threads=1),
    ],
    ids=str,
)
def test_others_are_not_ours(spec: dnnl.Spec) -> None:
    assert not list(offers(spec))


def test_what_nobody_computes_is_unimplemented() -> None:
    with pytest.raises(UnimplementedError, match="group_normalization"):
        dnnl.resolve(dnnl.group_normalization(MemoryDesc((1, 8, 4), "f16"), n_threads=1))


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"n_groups": 3}, "divide 8 channels"),
        ({"n_groups": 0}, "at least 1"),
        ({"epsilon": -1.0}, "at least 0"),
        ({"scale": MemoryDesc((8,))}, "scale has extents"),
        ({"scale": MemoryDesc((2, 8))}, "scale has extents"),
        ({"shift": MemoryDesc((1, 8), "bf16")}, "shift is bf16"),
        ({"dst": MemoryDesc((1, 8, 5))}, "dst has extents"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], rule: str) -> None:
    arguments: dict[str, Any] = {"src": MemoryDesc((1, 8, 4)), "n_groups": 2, "n_threads": 1} | changes
    with pytest.raises(InvalidArgumentsError, match=rule):
        dnnl.group_normalization(**arguments)
