"""Copies in steps of any sign against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.errors import InvalidArgumentsError, UnimplementedError
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute, random

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
