"""Our own reorder of the bytes of three planes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from blocklayout import dnnl
from blocklayout.dnnl import own
from blocklayout.dtypes import to_numpy
from blocklayout.ir.host_spec import mover
from blocklayout.layout import MemoryDesc
from tests.dnnl.running import execute, offer_of

pytestmark = pytest.mark.skipif(not dnnl.has_native_executor(), reason="needs a compiler at installation")


def reorder(dims: tuple[int, ...], src: str, dst: str, dtypes: tuple[str, str] = ("u8", "u8")) -> dnnl.Spec:
    return dnnl.reorder(MemoryDesc(dims, dtypes[0], src), MemoryDesc(dims, dtypes[1], dst), n_threads=2)


offer = partial(offer_of, "interleaving")


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("dims", [(2, 3, 37), (1, 3, 5, 7), (3, 3, 64, 65), (1, 3, 3, 17, 19)])
def test_each_byte_comes_to_its_place(dims: tuple[int, ...], dtype: str) -> None:
    letters = "abcde"[: len(dims)]
    ours = offer(reorder(dims, letters, f"a{letters[2:]}b", (dtype, dtype)))
    assert ours is not None
    x = np.random.default_rng(0).integers(0, 256, dims).astype(np.uint8).view(to_numpy(dtype))
    np.testing.assert_array_equal(execute(ours.spec, {"src": x})["dst"], x)


def test_plans_take_it() -> None:
    dims = (1, 3, 32, 32)
    spec, _ = mover(MemoryDesc(dims, "u8", "nchw"), MemoryDesc(dims, "u8", "nhwc"), 2)
    assert isinstance(spec, dnnl.Spec)
    assert own.name_of(spec.impl) == "interleaving"


def test_what_it_does_not_move_is_not_offered() -> None:
    dims = (1, 3, 8, 8)
    strange = [
        reorder((1, 4, 8, 8), "nchw", "nhwc"),
        reorder(dims, "nhwc", "nchw"),
        reorder(dims, "nchw", "nChw16c"),
        reorder(dims, "nchw", "nhwc", ("f32", "f32")),
        reorder(dims, "nchw", "nhwc", ("u8", "s8")),
    ]
    assert [offer(spec) for spec in strange] == [None] * len(strange)
