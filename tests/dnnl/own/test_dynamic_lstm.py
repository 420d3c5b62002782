"""LSTMs whose state is quantised at each place, against numpy in integers of 64 bits and in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute

pytestmark = pytest.mark.skipif(
    not dnnl.has_native_executor() or not dnnl.has_isa("avx2"), reason="needs AVX2 and a compiler at installation"
)


def operands(n_places: int, n_sides: int, batch: int, size: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims, np.float32)

    sources = {"src": normal(n_places * batch, 4 * size), "src_1": normal(n_places * batch, 4 * size)}
    return {
        **dict(list(sources.items())[:n_sides]),
        "weights_iter": rng.integers(-128, 128, (n_sides, size, 4 * size)).astype(np.int8),
        "scale": np.abs(normal(n_sides, 4 * size)) / 100,
        "zero_point": rng.integers(-128, 128, (n_sides, 4 * size)).astype(np.int32),
        "src_iter": normal(n_sides, batch, size),
        "src_iter_c": normal(n_sides, batch, size),
    }


def computed(arrays: dict[str, Any], results: tuple[str, ...], *, is_reverse: bool, n_threads: int) -> dict[str, Any]:
    n_sides, batch, size = arrays["src_iter"].shape
    dtypes = {"weights_iter": ("s8", "aCB16b32c2b"), "zero_point": ("s32",)}
    descs = {name: MemoryDesc(array.shape, *dtypes.get(name, ())) for name, array in arrays.items()}
    descs |= dict.fromkeys(results, descs["src_iter"])
    dst = MemoryDesc((len(arrays["src"]) // batch, n_sides, batch, size))
    [ours] = own.offers(dnnl.dynamic_lstm(**descs, dst=dst, is_reverse=is_reverse, n_threads=n_threads))
    return execute(ours.spec, arrays)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def in_bytes(state: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """ONNX's formula, less the zero point."""
    low, high = min(state.min(), np.float32(0)), max(state.max(), np.float32(0))
    scale = np.float32((high - low or np.float32(1)) / np.float32(255))
    zero = np.rint(np.clip(-low / scale, 0, 255))
    return (np.clip(np.rint(state / scale) + zero, 0, 255) - zero).astype(np.int64), scale


def check(problem: tuple[int, int, int, int], *, is_reverse: bool = False, n_threads: int = 2, seed: int = 0) -> None:
    n_places, n_sides, batch, size = problem
    arrays = operands(*problem, seed)
    found = computed(arrays, ("dst_iter", "dst_iter_c"), is_reverse=is_reverse, n_threads=n_threads)
    for side in range(n_sides):
        # each state follows from the one before, as the kernel rounded that: bytes are the same then
        state, cell = arrays["src_iter"][side], arrays["src_iter_c"][side].astype(np.float64)
        weights = arrays["weights_iter"][side].astype(np.int64) - arrays["zero_point"][side]
        gates = arrays["src_1" if side else "src"].reshape(n_places, batch, 4 * size)
        for place in range(n_places)[:: -1 if is_reverse or side else 1]:
            quanta, scale = in_bytes(state)
            sums = gates[place] + quanta @ weights * (float(scale) * arrays["scale"][side])
            i, o, f, new = np.split(sums, 4, 1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(new)
            state = found["dst"][place, side]
            np.testing.assert_allclose(state, sigmoid(o) * np.tanh(cell), rtol=0, atol=5e-6)
        np.testing.assert_array_equal(found["dst_iter"][side], state)
        np.testing.assert_allclose(found["dst_iter_c"][side], cell, rtol=0, atol=5e-6)


@settings(max_examples=100, deadline=None)
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 2), st.integers(1, 5), st.integers(1, 70)),
    st.booleans(),
    st.integers(1, 3),
    st.integers(0, 1000),
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_any_lstm(problem: tuple[int, int, int, int], is_reverse: bool, n_threads: int, seed: int) -> None:  # noqa: FBT001
    check(problem, is_reverse=is_reverse and problem[1] == 1, n_threads=n_threads, seed=seed)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 31, 32, 33, 256])
def test_tails(size: int) -> None:
    check((3, 2, 3, size))


def test_last_states_are_written_where_they_are_asked_for() -> None:
    arrays = operands(4, 2, 1, 5, 0)
    every = computed(arrays, ("dst_iter", "dst_iter_c"), is_reverse=False, n_threads=1)
    for results in ((), ("dst_iter",), ("dst_iter_c",)):
        for name, array in computed(arrays, results, is_reverse=False, n_threads=1).items():
            np.testing.assert_array_equal(array, every[name])


def test_largest_products_are_exact() -> None:
    arrays = operands(1, 1, 1, 300, 0)
    arrays["weights_iter"][:] = -128
    arrays["zero_point"][:] = 127
    arrays["src_iter"][:] = 1
    arrays["src"][:] = arrays["src_iter_c"][:] = 0
    arrays["scale"][:] = 1 / (255 * 300)
    dst = computed(arrays, (), is_reverse=False, n_threads=1)["dst"]
    gate = sigmoid(np.array(-1.0))
    np.testing.assert_allclose(dst, gate * np.tanh(gate * np.tanh(-1.0)), rtol=0, atol=1e-6)


def test_nan_is_in_all_states_behind_it() -> None:
    arrays = operands(4, 1, 2, 9, 0)
    arrays["src"][2 * 1 + 1, 3] = np.nan  # of the second place
    dst = computed(arrays, (), is_reverse=False, n_threads=1)["dst"]
    assert np.isfinite(dst[0]).all()
    assert np.isnan(dst[1]).any()
    assert np.isnan(dst[2:]).all()


def test_none_is_offered_for_other_layouts() -> None:
    state, vector = MemoryDesc((1, 2, 8)), MemoryDesc((1, 32))
    plain = MemoryDesc((1, 8, 32), "s8")
    spec = dnnl.dynamic_lstm(
        MemoryDesc((6, 32)), plain, vector, vector.with_dtype("s32"), state, state, MemoryDesc((3, 1, 2, 8))
    )
    assert not list(own.offers(spec))
