"""Our own functions of each element, against numpy's in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)

DTYPES = ("f32", "bf16") if dnnl.has_bf16() and dnnl.has_isa("avx512_core") else ("f32",)
ALGORITHMS = ("swish", "logistic", "gelu_tanh")


def logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0, -x)))


def expected(algorithm: str, alpha: float, x: np.ndarray) -> np.ndarray:
    if algorithm == "gelu_tanh":
        return np.asarray(x * logistic(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return np.asarray(x * logistic(alpha * x)) if algorithm == "swish" else logistic(x)


def offer(desc: MemoryDesc, algorithm: str, **others: Any) -> dnnl.Resolved | None:
    spec = dnnl.eltwise(desc, None, algorithm, **{"alpha": 1.0, "n_threads": 2} | others)
    return next((each for each in own.offers(spec) if own.name_of(each.spec.impl) == "functions"), None)


@settings(max_examples=60, deadline=None)
@given(
    dims=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    dtype=st.sampled_from(DTYPES),
    algorithm=st.sampled_from(ALGORITHMS),
    alpha=st.sampled_from([1.0, 1.702, -3.0]),
    scale=st.sampled_from([0.01, 1.0, 30.0, 1e4]),
    n_threads=st.integers(1, 5),
)
def test_any_extents(
    dims: tuple[int, ...], dtype: str, algorithm: str, alpha: float, scale: float, n_threads: int
) -> None:
    ours = offer(MemoryDesc(dims, dtype, "nhwc"), algorithm, alpha=alpha, n_threads=n_threads)
    assert ours is not None
    x = (np.random.default_rng(0).standard_normal(dims) * scale).astype(to_numpy(dtype))
    got = execute(ours.spec, {"src": x})["dst"].astype(np.float64)
    right = expected(algorithm, alpha, x.astype(np.float64))
    # The argument of the exponential is rounded, too: the farther from 1 its value, the more that counts.
    of_argument = 6e-7 * (1 + np.abs(np.log(np.abs(right) + 1e-30)))
    assert (np.abs(got - right) <= (1.06 * 2.0**-8 if dtype == "bf16" else of_argument) * np.abs(right) + 1e-30).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ["swish", "gelu_tanh"])
def test_padding_stays_zero(algorithm: str, dtype: str) -> None:
    ours = offer(MemoryDesc((2, 17, 3, 3), dtype, "nChw8c"), algorithm)
    assert ours is not None
    execute(ours.spec, {"src": np.ones((2, 17, 3, 3), to_numpy(dtype))})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nan_and_infinity(algorithm: str, dtype: str) -> None:
    ours = offer(MemoryDesc((3,), dtype), algorithm)
    assert ours is not None
    x = np.array([np.nan, np.inf, -200], to_numpy(dtype))
    got = execute(ours.spec, {"src": x})["dst"].astype(np.float64)
    assert np.isnan(got[0])
    assert got[1] == (1 if algorithm == "logistic" else np.inf)
    assert abs(got[2]) < 1e-30


def test_a_settled_spec_is_made_again_and_is_the_first() -> None:
    ours = offer(MemoryDesc((2, 17)), "swish")
    assert ours is not None
    assert dnnl.resolve(dnnl.Spec.from_dict(ours.spec.to_dict())) == ours
    assert dnnl.optimised(dnnl.eltwise(MemoryDesc((2, 17)), None, "swish", 1.0, n_threads=2))[0] == ours


def test_what_it_does_not_compute_is_not_offered() -> None:
    dense = MemoryDesc((2, 16, 3, 3), "f32", "nChw8c")
    strange = [
        offer(dense, "tanh"),
        offer(dense, "swish", prop_kind="forward_training"),
        offer(dense, "swish", attr=dnnl.Attr((dnnl.Binary("add", MemoryDesc((1, 1, 1, 1))),))),
        offer(MemoryDesc((2, 17, 3, 3), "f32", "nChw8c"), "logistic"),
        offer(MemoryDesc((2, 16), strides=(32, 1)), "swish"),
    ]
    assert strange == [None] * len(strange)
    backward = dnnl.eltwise_backward(dense, dense, dense, "swish", 1.0, n_threads=2)
    assert not any(own.name_of(each.spec.impl) == "functions" for each in own.offers(backward))
