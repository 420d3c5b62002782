"""Max pooling in C of our own, and the way back: any window in any layout, and no byte beside results is written."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import POISON, Array, assert_padding_is_zero

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="takes a compiler at installation")

GUARD = 1 << 14
LAYOUTS = ("ab.", "a.b", ".ba", "ba.", "a.b reversed", "ab. reversed", "aB.4b", "aB.8b", "aB.16b")
DTYPES = ("f32",) if dnnl.missing_isa("bf16") else ("f32", "bf16")
Along = tuple[int, int, int, int, int, int]  # extent, kernel, stride, dilation, and pads


def formed(dims: tuple[int, ...], layout: str, dtype: str) -> MemoryDesc:
    order, _, is_reversed = layout.partition(" ")
    spatial = "cde"[: len(dims) - 2]
    return MemoryDesc(dims, dtype, order.replace(".", spatial[::-1] if is_reversed else spatial))


def guarded(desc: MemoryDesc, array: Array | None = None) -> tuple[dnnl.Memory, Array]:
    """What holds an array, or nothing yet, and the bytes with as many around it as must stay: NaN to who reads them."""
    whole = dnnl.aligned_empty(desc.nbytes + 2 * GUARD)
    whole[:] = POISON
    own = whole[GUARD : GUARD + desc.nbytes]
    if array is not None:
        desc.pack(array, own)
    return dnnl.Memory(desc, own), whole


def run(spec: dnnl.Spec, given: dict[str, Array]) -> dict[str, Array]:
    primitive = dnnl.Primitive(spec)
    bound = {name: guarded(desc, given.get(name)) for name, desc in primitive.spec.descs}  # type: ignore[arg-type]
    before = {name: bound[name][1].copy() for name in given}
    execution = primitive.bind({name: memory for name, (memory, _) in bound.items()})
    dnnl.run_parallel(execution.run, spec.n_threads)
    results = {}
    for name, (memory, whole) in bound.items():
        assert (whole[:GUARD] == POISON).all(), f"written before {name}"
        assert (whole[-GUARD:] == POISON).all(), f"written behind {name}"
        if name in given:
            assert np.array_equal(whole, before[name])
        else:
            own = whole[GUARD:-GUARD]
            assert_padding_is_zero(memory.desc, own)
            results[name] = memory.desc.unpack(own)
    return results


def largest(x: Array, windows: list[Along]) -> tuple[Array, Array]:
    """Each window's first NaN or largest, and its number; -1 where all of it is padding."""
    around = [(0, 0), (0, 0), *((begin, end) for *_, begin, end in windows)]
    padded = np.pad(x.astype(np.float32), around, constant_values=-np.inf)
    numbers = np.pad(np.arange(x.size).reshape(x.shape), around, constant_values=-1)
    counts = results_of(windows)
    taps: list[Any] = [
        (
            ...,
            *(
                slice(tap * dilation, tap * dilation + (n - 1) * stride + 1, stride)
                for tap, n, (_, _, stride, dilation, *_) in zip(place, counts, windows, strict=True)
            ),
        )
        for place in product(*(range(kernel) for _, kernel, *_ in windows))
    ]
    seen, which = (np.stack([each[tap] for tap in taps], -1) for each in (padded, numbers))
    first = seen.argmax(-1)[..., None]
    return tuple(np.take_along_axis(each, first, -1)[..., 0] for each in (seen, which))  # type: ignore[return-value]


def results_of(windows: list[Along]) -> list[int]:
    return [
        (extent + begin + end - (kernel - 1) * dilation - 1) // stride + 1
        for extent, kernel, stride, dilation, begin, end in windows
    ]


def along(extents: Any, kernels: Any, strides: Any, dilations: Any, pads: Any) -> Any:
    return st.tuples(extents, kernels, strides, dilations, pads, pads).map(padded_less)


def padded_less(window: Along) -> Along:
    """With pads below what the kernel spans, as they must be."""
    extent, kernel, stride, dilation, begin, end = window
    span = (kernel - 1) * dilation + 1
    return extent, kernel, stride, dilation, begin % span, end % span


def upto(most: int) -> Any:
    return st.integers(1, most)


SHORT = along(upto(6), upto(3), upto(3), upto(3), st.integers(0, 3))
ROW = along(upto(40), upto(5), upto(10), upto(4), st.integers(0, 6))
LONG = along(st.integers(900, 1500), upto(60), upto(10), upto(12), st.integers(0, 300))


@settings(max_examples=300)
@given(
    leading=st.tuples(upto(3), upto(40)),
    windows=st.one_of(
        st.tuples(st.one_of(ROW, LONG)),
        st.tuples(SHORT, ROW),
        st.tuples(SHORT, SHORT, ROW),
    ).map(list),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    is_indexed=st.booleans(),
    n_threads=upto(2),
    seed=upto(99),
)
@example((1, 1), [(2000, 60, 10, 10, 100, 100)], "ab.", "f32", False, 1, 0)  # beyond what code of vectors is for
@example((1, 2), [(3, 2, 1, 1, 0, 0), (3, 2, 1, 1, 1, 1)], "ab.", "f32", True, 1, 0)  # rows shorter than vectors
@example((1, 2), [(3, 2, 1, 1, 0, 0), (30, 2, 9, 1, 1, 1)], "ab. reversed", "f32", True, 2, 0)
@example((1, 20), [(1, 2, 1, 1, 1, 1)], "ab.", "f32", True, 1, 0)  # one pixel, which might be of either layout
@example((3, 1), [(1, 2, 1, 1, 1, 1), (1, 3, 1, 1, 1, 2)], "ab.", "f32", True, 2, 0)
# Lines a little longer than some vectors at once: two threads wrote the same results, as ThreadSanitizer tells.
@example((1, 67), [(3, 1, 1, 1, 0, 0), (4, 2, 1, 1, 0, 0)], "a.b", "f32", True, 2, 0)
def test_any_window_in_any_layout(
    leading: tuple[int, int],
    windows: list[Along],
    layout: str,
    dtype: str,
    is_indexed: bool,  # noqa: FBT001
    n_threads: int,
    seed: int,
) -> None:
    counts, rng = results_of(windows), np.random.default_rng(seed)
    assume(min(counts) > 0)
    dims, of_result = (*leading, *(extent for extent, *_ in windows)), (*leading, *counts)
    x = rng.integers(-9, 9, dims).astype(to_numpy(dtype))
    x[rng.random(dims) < 0.02] = np.nan
    _, kernel, strides, dilations, begins, ends = (list(each) for each in zip(*windows, strict=True))
    src, indices = formed(dims, layout, dtype), formed(of_result, layout, "s64") if is_indexed else None
    skipped = [each - 1 for each in dilations]
    spec = dnnl.max_pooling(src, None, indices, kernel, strides, begins + ends, skipped, n_threads=n_threads)
    found = run(spec, {"src": x})
    values, numbers = largest(x, windows)
    assert np.array_equal(found["dst"].astype(np.float32), values, equal_nan=True)
    if is_indexed:
        assert np.array_equal(np.where(numbers < 0, -1, found["indices"]), numbers)


@given(
    dims=st.one_of(*(st.tuples(upto(3), upto(40), *[upto(9)] * n) for n in (1, 2, 3))),
    kernel=upto(3),
    layout=st.sampled_from(LAYOUTS),
    dtype=st.sampled_from(DTYPES),
    n_threads=upto(2),
)
def test_the_way_back_writes_nothing_else(
    dims: tuple[int, ...], kernel: int, layout: str, dtype: str, n_threads: int
) -> None:
    of_source = (*dims[:2], *(-(-each // kernel) for each in dims[2:]))
    y = np.arange(1, 1 + np.prod(of_source)).reshape(of_source) % 200
    corners: Any = (..., *[slice(None, None, kernel)] * (len(dims) - 2))
    numbers = np.arange(np.prod(dims)).reshape(dims)[corners]
    expected = np.zeros(dims)
    expected.ravel()[numbers] = y
    descs = (formed(of_source, layout, dtype), formed(of_source, layout, "s64"), formed(dims, layout, dtype))
    found = run(dnnl.max_unpooling(*descs, n_threads=n_threads), {"src": y.astype(to_numpy(dtype)), "indices": numbers})
    assert np.array_equal(found["dst"].astype(np.float64), expected)
