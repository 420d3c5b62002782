"""Copies in steps of any sign against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute, offer_of, random

CASES = [
    ((7,), "a", "a", (0,)),
    ((1,), "a", "a", (0,)),
    ((5, 3), "ab", "ab", (0,)),
    ((5, 3), "ab", "ba", (0, 1)),
    ((2, 3, 4, 5), "acdb", "abcd", (1, 3)),
    ((2, 3, 4, 5), "acdb", "acdb", (2,)),
    ((2, 3, 90, 70), "abcd", "abcd", (2,)),  # enough to share among threads
]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8"])
@pytest.mark.parametrize(("dims", "src", "dst", "axes"), CASES)
def test_a_reversal_is_numpys_flip(
    dims: tuple[int, ...], src: str, dst: str, axes: tuple[int, ...], dtype: str
) -> None:
    x = (100 * random(*dims)).astype(to_numpy(dtype))
    spec = dnnl.reversal(MemoryDesc(dims, dtype, src), MemoryDesc(dims, dtype, dst), axes, n_threads=2)
    np.testing.assert_array_equal(execute(spec, {"src": x})["dst"], np.flip(x, axes))


def test_blocks_have_no_implementation() -> None:
    src = MemoryDesc((1, 16, 4, 4), "f32", "nChw16c")
    with pytest.raises(UnimplementedError):
        dnnl.resolve(dnnl.reversal(src, src, (2,), n_threads=1))


@pytest.mark.parametrize("axes", [(), (2,), (0, 0), (-1,), ("a",)])
def test_axes_are_named_once_each(axes: tuple[int, ...]) -> None:
    src = MemoryDesc((4, 3), "f32")
    with pytest.raises(InvalidArgumentsError, match=r"axes is .* give some of 0, 1, each once"):
        dnnl.reversal(src, src, axes, n_threads=1)


def in_turn(n_srcs: int, dims: tuple[int, ...], src: str, dst: str, dtype: str = "f32", axis: int = 2) -> dnnl.Spec:
    """Tensors of one element along ``axis``, side by side along it."""
    srcs = [MemoryDesc((*dims[:axis], 1, *dims[axis + 1 :]), dtype, src)] * n_srcs
    whole = MemoryDesc((*dims[:axis], n_srcs, *dims[axis + 1 :]), dtype, dst)
    return dnnl.concat(srcs, whole, axis=axis, n_threads=2)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "u8"])
@pytest.mark.parametrize(
    ("n_srcs", "dims", "src", "dst"),
    [
        (2, (1, 3, 1), "abc", "abc"),
        (2, (2, 29, 1, 5, 4), "adebc", "adebc"),
        (3, (2, 29, 1, 5, 4), "adebc", "adebc"),
        (8, (1, 5, 1, 3), "adbc", "dabc"),
        (2, (1, 37, 1, 40, 30), "adebc", "adebc"),  # enough to share among threads
        (2, (2, 7, 1, 5), "abcd", "adbc"),
    ],
)
def test_elements_of_several_tensors_lie_in_turn(
    n_srcs: int, dims: tuple[int, ...], src: str, dst: str, dtype: str
) -> None:
    ours = offer_of("copying", in_turn(n_srcs, dims, src, dst, dtype))
    if ours is None:
        pytest.skip("needs a compiler at installation")
    feeds = {f"src_{index}": (100 * random(*dims, seed=index)).astype(to_numpy(dtype)) for index in range(n_srcs)}
    np.testing.assert_array_equal(execute(ours.spec, feeds)["dst"], np.concatenate([*feeds.values()], 2))


def test_of_concatenations_it_takes_no_others() -> None:
    dims, blocked = (1, 16, 1, 4), MemoryDesc((1, 16, 1, 4), "f32", "aBcd8b")
    strange = [
        in_turn(2, dims, "abcd", "abcd"),
        in_turn(9, dims, "adbc", "adbc"),
        dnnl.concat([blocked, blocked], MemoryDesc((1, 16, 2, 4), "f32", "aBcd8b"), axis=2, n_threads=2),
        dnnl.concat([MemoryDesc((1, 2), "f32")] * 2, MemoryDesc((1, 4), "f32"), axis=1, n_threads=2),
    ]
    assert [offer_of("copying", spec) for spec in strange] == [None] * len(strange)
