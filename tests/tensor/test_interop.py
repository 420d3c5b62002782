"""Tensors for numpy and for other libraries."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

import blocklayout as bl
from blocklayout.tensor import as_memory
from tests.tensor.tensors import numbered, tensors


@given(tensors())
def test_numpy_gets_a_view_of_what_has_no_blocks(tensor: bl.Tensor) -> None:
    array = np.asarray(tensor)
    np.testing.assert_array_equal(array, tensor.numpy())
    assert array.shape == tensor.shape
    if tensor.desc.n_elements:
        assert np.may_share_memory(array, tensor.buffer) == tensor.desc.is_plain
    assert not np.may_share_memory(np.array(tensor), tensor.buffer)


def test_a_view_may_be_written_to() -> None:
    tensor = numbered((2, 3, 4, 5), "nhwc")
    np.asarray(tensor)[1, 2, 3, 4] = -1
    assert tensor[1, 2, 3, 4] == -1


def test_blocks_and_types_take_a_copy_and_say_so() -> None:
    blocked, plain = numbered((2, 3, 4, 5), "nChw8c"), numbered((2, 3, 4, 5))
    assert np.asarray(plain, np.float64).dtype == np.float64
    assert np.asarray(blocked, np.float64).dtype == np.float64
    for tensor, dtype in ((blocked, None), (plain, np.float64)):
        with pytest.raises(ValueError, match="without a copy"):
            np.array(tensor, dtype, copy=False)
    assert np.shares_memory(np.array(plain, copy=False), plain.buffer)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "s32", "s8", "u8", "s64", "u64", "u32", "s16", "u16", "bool"])
@pytest.mark.parametrize("memory_format", ["nchw", "nhwc", "chwn"])
def test_dlpack_shares_memory(memory_format: str, dtype: str) -> None:
    tensor = numbered((2, 3, 4, 5), memory_format, dtype)
    for source in (tensor, tensor[:, 1:, ::2]):
        array = np.from_dlpack(source)
        assert np.shares_memory(array, tensor.buffer)
        np.testing.assert_array_equal(array, source.numpy())


def test_dlpack_says_how_to_get_there() -> None:
    with pytest.raises(BufferError, match=r"no blocks.*nChw8c: \.to\(memory_format=bl\.contiguous_format\) or \.numpy"):
        np.from_dlpack(numbered((2, 3, 4, 5), "nChw8c"))
    with pytest.raises(bl.LayoutError, match=r"numpy exports no bf16.*astype\('f32'\)"):
        np.from_dlpack(numbered((2, 3), dtype="bf16"))
    assert numbered((2, 3)).__dlpack_device__() == (1, 0)


def test_numpy_has_bf16_by_another_package() -> None:
    assert np.asarray(numbered((2, 3), dtype="bf16")).dtype == ml_dtypes.bfloat16


def test_arrays_that_hold_a_tensor_are_read_without_a_copy() -> None:
    tensor = numbered((2, 3, 4, 5), "nhwc")
    desc, buffer = as_memory(np.from_dlpack(tensor))
    assert desc.physically_equal(tensor.desc)
    assert np.shares_memory(buffer, tensor.buffer)


def test_torch_shares_memory_both_ways() -> None:
    torch = pytest.importorskip("torch")
    tensor = numbered((2, 3, 4, 5), "channels_last")
    theirs = torch.from_dlpack(tensor)
    assert theirs.is_contiguous(memory_format=torch.channels_last)
    assert theirs.stride() == tensor.stride()
    theirs[1, 2, 3, 4] = -1
    assert tensor[1, 2, 3, 4] == -1
    assert np.shares_memory(bl.as_tensor(theirs).buffer, tensor.buffer)
    assert bl.as_tensor(theirs).memory_format == "channels_last"
    with pytest.raises(BufferError, match="no blocks"):
        torch.from_dlpack(tensor.to("nChw8c"))


def test_numpys_functions_take_a_tensor_for_an_array_whatever_methods_it_has() -> None:
    x = numbered((1, 3, 2, 2), "nChw8c")
    for result, expected in (
        (np.squeeze(x, axis=0), x.numpy()[0]),
        (np.transpose(x), x.numpy().T),
        (np.reshape(x, -1), x.numpy().ravel()),
        (np.round(x), x.numpy()),
        (np.clip(x, 1, 2), x.numpy().clip(1, 2)),
        (np.concatenate([x, x]), np.concatenate([x.numpy()] * 2)),
        (np.sum(x), x.numpy().sum()),
    ):
        assert not isinstance(result, bl.Tensor)
        np.testing.assert_array_equal(result, expected)
