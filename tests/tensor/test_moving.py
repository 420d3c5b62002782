"""The same values in other layouts and types."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocklayout as bl
from blocklayout.dtypes import to_numpy
from blocklayout.tensor.conversion import convert
from tests.layout import strategies
from tests.tensor.tensors import DTYPES, FORMATS, dense, numbered, tensors


@given(tensors(), st.data())
def test_to_gives_the_same_values_under_the_name_that_is_asked_for(tensor: bl.Tensor, data: st.DataObject) -> None:
    tag = data.draw(strategies.tags(tensor.ndim))
    there = tensor.to(tag)
    assert there.desc.format_tag == tag
    assert there.is_dense
    assert there.padding_is_zero()
    np.testing.assert_array_equal(there.numpy(), tensor.numpy())
    back = there.to(tensor.desc)
    assert back.desc.format_tag == tensor.desc.format_tag
    np.testing.assert_array_equal(back.numpy(), tensor.numpy())


@given(tensors(), st.data())
def test_who_shares_bytes_may_write_to_them(tensor: bl.Tensor, data: st.DataObject) -> None:
    there = tensor.to(data.draw(strategies.tags(tensor.ndim)))
    if not np.may_share_memory(there.buffer, tensor.buffer) or not tensor.desc.n_elements:
        return
    there[...] = -3
    assert (tensor.numpy() == -3).all()
    assert tensor.padding_is_zero()
    there.physical()[there.desc.offsets()] = -4  # all that it has but padding
    there.zero_padding()
    assert (tensor.numpy() == -4).all()
    assert tensor.padding_is_zero()
    tensor[...] = -5
    assert (there.numpy() == -5).all()
    assert there.padding_is_zero()


@given(tensors(), st.data())
def test_contiguous_is_itself_or_what_to_gives(tensor: bl.Tensor, data: st.DataObject) -> None:
    tag = data.draw(strategies.tags(tensor.ndim))
    there = tensor.contiguous(tag)
    assert (there is tensor) == tensor.is_contiguous(tag)
    assert there.is_contiguous(tag)
    np.testing.assert_array_equal(there.numpy(), tensor.numpy())


@given(tensors(), st.data())
def test_permute_is_numpys_transpose_and_moves_nothing(tensor: bl.Tensor, data: st.DataObject) -> None:
    perm = data.draw(st.permutations(range(tensor.ndim)))
    turned = tensor.permute(*perm)
    assert turned.buffer.ctypes.data == tensor.buffer.ctypes.data
    np.testing.assert_array_equal(turned.numpy(), tensor.numpy().transpose(perm))
    back = turned.permute([perm.index(axis) for axis in range(tensor.ndim)])
    assert back.desc == tensor.desc
    assert back.desc.format_tag == tensor.desc.format_tag


def test_a_permuted_layout_is_called_what_it_is_now() -> None:
    assert numbered((2, 3, 4, 5), "nhwc").permute(0, 2, 3, 1).memory_format == "contiguous_format"
    assert numbered((1, 1, 1, 1), "nhwc").permute(0, 2, 3, 1).memory_format == "contiguous_format"
    assert numbered((1, 1, 1, 1), "nchw").permute(0, 3, 1, 2).memory_format == "channels_last"
    assert numbered((2, 17, 4, 5), "nChw8c").permute(0, 2, 3, 1).memory_format == "aDbc8d"
    assert numbered((2, 17), "nc").permute(-1, -2).memory_format == "ba"
    with pytest.raises(bl.LayoutError, match="must name each"):
        numbered((2, 3)).permute(0, 0)
    with pytest.raises(bl.PositionError, match="no dimension 2"):
        numbered((2, 3)).permute(0, 2)
    with pytest.raises(bl.InputError, match="a dimension is an integer"):
        numbered((2, 3)).permute(0, 0.5)


@given(tensors())
def test_a_clone_is_alike_and_apart(tensor: bl.Tensor) -> None:
    for made in (tensor.clone(), copy.deepcopy(tensor), bl.from_array(tensor)):
        assert not np.may_share_memory(made.buffer, tensor.buffer)
        assert made.is_dense
        assert made.desc.format_tag == tensor.desc.format_tag
        np.testing.assert_array_equal(made.numpy(), tensor.numpy())
    shallow = copy.copy(tensor)
    assert shallow.desc is tensor.desc
    assert shallow.buffer.ctypes.data == tensor.buffer.ctypes.data


@given(tensors(), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_pickle_keeps_values_and_format(tensor: bl.Tensor, protocol: int) -> None:
    again = pickle.loads(pickle.dumps(tensor, protocol))
    assert (again.shape, again.dtype, again.memory_format) == (tensor.shape, tensor.dtype, tensor.clone().memory_format)
    assert again.desc.format_tag == tensor.desc.format_tag
    np.testing.assert_array_equal(again.numpy(), tensor.numpy())
    assert again.buffer.flags.writeable
    assert not again.nbytes or again.buffer.ctypes.data % 64 == 0


def test_a_pickled_view_has_its_own_bytes_only() -> None:
    tensor = numbered((64, 16, 8, 8), "nChw8c")
    for part in (tensor[3:4], tensor[3:4, :8], tensor[3:4, :, ::2]):
        assert len(pickle.dumps(part)) < part.clone().nbytes + 1000


@given(dense(), st.sampled_from(DTYPES))
def test_astype_keeps_the_format_and_small_numbers(tensor: bl.Tensor, dtype: str) -> None:
    made = tensor.astype(dtype)
    assert made.dtype == dtype
    assert made.desc.format_tag == tensor.desc.format_tag
    assert made.padding_is_zero()
    np.testing.assert_array_equal(made.numpy(), tensor.numpy().astype(to_numpy(dtype)))
    assert made.astype(made.dtype) is made


EDGES = (-3e9, -300.0, -129.0, -2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 127.5, 128.0, 254.5, 300.0, 70000.0)


@pytest.mark.parametrize("given_dtype", ["f32", "bf16", "f16", "s32", "s8", "u8"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "s32", "s8", "u8"])
def test_numpys_conversion_is_onednns(given_dtype: str, dtype: str) -> None:
    values = convert(np.array(EDGES), given_dtype)
    tensor = bl.from_array(values).astype(dtype)
    np.testing.assert_array_equal(tensor.numpy(), convert(values, dtype))


def test_integers_round_to_even_and_saturate_whoever_converts() -> None:
    values = np.array([-1e30, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30])
    expected = [-2, 0, 0, 2, 2]
    for given_dtype in ("f32", "f64"):
        for dtype in ("s8", "s16", "s32", "s64"):
            made = bl.from_array(values).astype(given_dtype).astype(dtype).numpy()
            info = np.iinfo(made.dtype)
            assert made[1:-1].tolist() == expected
            assert made[0] == info.min
            largest = 2147483520 if (given_dtype, dtype) == ("f32", "s32") else info.max
            assert made[-1] in (largest, info.max)
    assert bl.from_array(np.array([300, -1])).astype("u8").numpy().tolist() == [255, 0]
    assert bl.from_array(np.array([2**63], np.uint64)).astype("s64").numpy().tolist() == [2**63 - 1]
    assert bl.from_array(np.array([0.0, 0.25, np.nan])).astype("bool").numpy().tolist() == [False, True, True]
    assert bl.from_array(np.array([1e39, np.nan])).astype("f32").numpy().tolist()[0] == np.inf


def test_to_changes_type_and_format_at_once() -> None:
    tensor = numbered((2, 17, 4, 4)).to("nChw16c", "bf16")
    assert (tensor.dtype, tensor.memory_format) == ("bf16", "nChw16c")
    np.testing.assert_array_equal(tensor.numpy().astype(np.float32), numbered((2, 17, 4, 4)).numpy())
    assert numbered((2, 3)).to(dtype=np.int8).dtype == "s8"
    with pytest.raises(bl.LayoutError, match="no data type 'f99'"):
        tensor.to(dtype="f99")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_every_type_goes_to_every_format(memory_format: str, dtype: str) -> None:
    tensor = numbered((17, 5, 3, 3), dtype=dtype)
    there = tensor.to(memory_format)
    np.testing.assert_array_equal(there.numpy(), tensor.numpy())
    assert there.padding_is_zero()
    assert there is tensor or there.buffer.ctypes.data % 64 == 0


def test_formats_that_do_not_exist_are_refused() -> None:
    tensor = numbered((2, 3, 4, 5))
    with pytest.raises(bl.LayoutError, match="is spelled 'nChw16c'"):
        tensor.to("nchw16c")
    with pytest.raises(bl.LayoutError, match="3 dimensions"):
        tensor.to("nCw8c")
    with pytest.raises(bl.LayoutError, match="a memory format is"):
        tensor.to(3)  # type: ignore[arg-type]
    for memory_format in (bl.channels_last, bl.channels_first):
        with pytest.raises(bl.LayoutError, match="3 to 5 dimensions, not for 2"):
            numbered((2, 3)).to(memory_format)
        with pytest.raises(bl.LayoutError, match="3 to 5 dimensions, not for 6"):
            numbered((1,) * 6).is_contiguous(memory_format)


def test_a_blocked_tensor_lends_its_elements_to_a_plain_one_but_not_the_other_way_round() -> None:
    blocked = numbered((1, 17, 1, 1), "nChw16c")
    plain = blocked.to(bl.contiguous_format)
    assert np.shares_memory(plain.buffer, blocked.buffer)
    assert (plain.nbytes, blocked.nbytes) == (68, 128)
    again = plain.to("nChw16c")
    assert not np.shares_memory(again.buffer, plain.buffer)
    whole = numbered((1, 16, 1, 1))
    assert np.shares_memory(whole.to("nChw16c").buffer, whole.buffer)
