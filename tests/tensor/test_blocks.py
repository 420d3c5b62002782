"""``Tensor.blocks``: the memory as an array with its block dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.layout import FormatTag, MemoryDesc
from tests.layout import reference
from tests.tensor.tensors import DTYPES, dense, filled, numbered, tensors


def place_of(desc: MemoryDesc, index: tuple[int, ...]) -> tuple[int, ...]:
    """Where an element is among the blocks, by the rule that ``blocks`` documents."""
    left = list(index)
    inner = []
    for blk, dim in zip(reversed(desc.inner_blks), reversed(desc.inner_idxs), strict=True):
        left[dim], lane = divmod(left[dim], blk)
        inner.append(lane)
    return (*(left[dim] for dim in desc.format_tag.order), *reversed(inner))


def check_every_element(tensor: bl.Tensor) -> None:
    blocks, values = tensor.blocks(), tensor.numpy()
    assert blocks.ndim == tensor.ndim + len(tensor.desc.inner_blks)
    for index in np.ndindex(*tensor.shape):
        assert blocks[place_of(tensor.desc, index)] == values[index], index


@pytest.mark.parametrize(
    ("tag", "dims", "shape"),
    [
        ("nChw16c", (2, 20, 5, 4), (2, 2, 5, 4, 16)),
        ("nchw", (2, 20, 5, 4), (2, 20, 5, 4)),
        ("nhwc", (2, 20, 5, 4), (2, 5, 4, 20)),
        ("chwn", (2, 20, 5, 4), (20, 5, 4, 2)),
        ("OIhw4i16o4i", (32, 16, 3, 3), (2, 1, 3, 3, 4, 16, 4)),
        ("Ohwi16o", (32, 5, 3, 3), (2, 3, 3, 5, 16)),
        ("NCw16n16c", (3, 40, 7), (1, 3, 7, 16, 16)),
        ("nChw8c", (0, 20, 5, 4), (0, 3, 5, 4, 8)),
    ],
)
def test_the_shape_is_that_of_memory(tag: str, dims: tuple[int, ...], shape: tuple[int, ...]) -> None:
    blocks = bl.zeros(dims, memory_format=tag).blocks()
    assert blocks.shape == shape
    assert blocks.flags.c_contiguous


@settings(max_examples=60)
@given(tag=st.sampled_from(reference.known_tags()), data=st.data())
def test_every_tag_of_the_library(tag: str, data: st.DataObject) -> None:
    format_tag = FormatTag.parse(tag)
    blocks = [1] * format_tag.ndims
    for blk, dim in zip(format_tag.inner_blks, format_tag.inner_idxs, strict=True):
        blocks[dim] *= blk
    dims = [data.draw(st.integers(1, 3)) if block == 1 else block + data.draw(st.integers(0, 1)) for block in blocks]
    tensor = filled(MemoryDesc(dims, "u8", tag))
    view, values = tensor.blocks(), tensor.numpy()
    np.testing.assert_array_equal(view.ravel(), tensor.physical())
    for _ in range(20):
        index = tuple(data.draw(st.integers(0, extent - 1)) for extent in dims)
        assert view[place_of(tensor.desc, index)] == values[index]


@settings(max_examples=60)
@given(dense())
def test_dense_memory_read_along_is_the_blocks(tensor: bl.Tensor) -> None:
    blocks = tensor.blocks()
    np.testing.assert_array_equal(blocks.ravel(), tensor.physical())
    assert np.shares_memory(blocks, tensor.buffer) or not blocks.size


@settings(max_examples=60)
@given(tensors())
def test_holes_and_offsets(tensor: bl.Tensor) -> None:
    if tensor.desc.ends_inside_a_block:
        with pytest.raises(bl.LayoutError, match=r"ends inside a block.*clone\(\)"):
            tensor.blocks()
        tensor = tensor.clone()
    check_every_element(tensor)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(dtype: str) -> None:
    check_every_element(numbered((2, 17, 3, 2), "nChw8c", dtype))


def test_a_kernel_of_the_users_own_on_blocked_memory() -> None:
    x = numbered((2, 20, 5, 4), "nChw16c")
    y = bl.empty_like(x)
    shift = bl.from_array(np.arange(1, 21, dtype=np.float32).reshape(1, 20, 1, 1), "nChw16c")
    np.add(x.blocks(), shift.blocks(), out=y.blocks())
    np.testing.assert_array_equal(y.numpy(), x.numpy() + shift.numpy())
    assert y.padding_is_zero()  # 0 + 0
    np.exp(x.blocks() / 100, out=y.blocks())
    assert not y.padding_is_zero()  # exp(0) is 1
    y.zero_padding()
    assert y.padding_is_zero()
    np.testing.assert_allclose(y.numpy(), np.exp(x.numpy() / 100), rtol=1e-6)


def test_it_can_be_written_where_the_tensor_can() -> None:
    x = numbered((1, 8, 2, 2), "nChw8c")
    x.blocks()[0, 0, 1, 1, 7] = 50
    assert x[0, 7, 1, 1] == 50
    x.buffer.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        x.blocks()[0, 0, 1, 1, 7] = 60
    repeated = bl.Tensor(MemoryDesc((3, 2), strides=(0, 1)), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        repeated.blocks()[0, 0] = 1
