"""New tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import blocklayout as bl
from blocklayout.dtypes import to_numpy
from tests.tensor.tensors import DTYPES, FORMATS, numbered, tensors

SHAPE = (2, 17, 5, 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_new_tensors_are_filled_and_their_padding_is_zero(memory_format: str, dtype: str) -> None:
    made = {0: bl.zeros(SHAPE, dtype, memory_format), 1: bl.ones(SHAPE, dtype, memory_format)}
    made[3] = bl.full(SHAPE, 3, dtype, memory_format)
    for value, tensor in made.items():
        assert (tensor.shape, tensor.dtype, tensor.desc.tag) == (SHAPE, dtype, memory_format)
        assert (tensor.numpy() == np.asarray(value).astype(to_numpy(dtype))).all()
        assert tensor.padding_is_zero()
        assert tensor.buffer.ctypes.data % 64 == 0
        assert tensor.buffer.flags.writeable


@given(tensors())
def test_what_is_like_a_tensor_has_its_format(tensor: bl.Tensor) -> None:
    for made in (bl.empty_like(tensor), bl.zeros_like(tensor), bl.ones_like(tensor), bl.full_like(tensor, 3)):
        assert (made.shape, made.dtype) == (tensor.shape, tensor.dtype)
        assert made.desc.format_tag == tensor.desc.format_tag
        assert made.is_dense
        assert made.padding_is_zero()
    assert bl.empty_like(tensor, "s8", bl.contiguous_format).memory_format == "contiguous_format"
    assert bl.empty_like(tensor, "s8").dtype == "s8"


def test_empty_does_not_fill_but_pads(monkeypatch: pytest.MonkeyPatch) -> None:
    def dirty(nbytes: int) -> np.ndarray:
        return np.full(nbytes, 0x41, np.uint8)

    monkeypatch.setattr(bl.dnnl, "aligned_empty", dirty)
    tensor = bl.empty(SHAPE, "f32", "nChw8c")
    assert (tensor.numpy() != 0).all()
    assert tensor.padding_is_zero()


def test_types_go_by_either_name() -> None:
    names = ("f32", "float32", np.float32, "u8", np.uint8, "int64")
    assert [bl.empty((2,), name).dtype for name in names] == ["f32", "f32", "f32", "u8", "u8", "s64"]


def test_shapes_and_values_that_are_none_are_refused() -> None:
    assert bl.zeros(3).shape == (3,)
    assert bl.zeros([2, 3]).shape == (2, 3)
    with pytest.raises(bl.LayoutError, match="1 to 12"):
        bl.zeros(())
    with pytest.raises(bl.LayoutError, match="negative"):
        bl.zeros((2, -3))
    with pytest.raises(bl.LayoutError, match="integers"):
        bl.zeros(2.5)  # type: ignore[arg-type]
    with pytest.raises(bl.LayoutError, match="no data type 'f99'"):
        bl.zeros((2,), "f99")
    with pytest.raises(bl.InputError, match="one number"):
        bl.full((2,), [1, 2])  # type: ignore[arg-type]
    with pytest.raises(bl.InputError, match="filled with"):
        bl.full((2,), "x")  # type: ignore[arg-type]
    assert bl.full((2,), 300, "u8").numpy().tolist() == [255, 255]


ARRAY = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
ARRAYS: dict[str, tuple[np.ndarray, str]] = {
    "row-major": (ARRAY, "contiguous_format"),
    "channels-last": (ARRAY.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), "channels_last"),
    "one channel": (np.zeros((2, 5, 4, 1)).transpose(0, 3, 1, 2), "contiguous_format"),
    "a new axis": (ARRAY[0].transpose(1, 2, 0).copy().transpose(2, 0, 1)[None], "channels_last"),
    "another order": (ARRAY.transpose(1, 2, 3, 0).copy().transpose(3, 0, 1, 2), "bcda"),
    "with holes": (ARRAY[:, ::2, 1:], "contiguous_format"),
    "backwards": (ARRAY.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)[:, ::-1, ::-1], "channels_last"),
    "repeated": (np.broadcast_to(ARRAY[:1, :, :1], (2, 3, 4, 5)), "contiguous_format"),
    "big-endian": (ARRAY.astype(">f4"), "contiguous_format"),
    "no elements": (ARRAY[:0], "contiguous_format"),
    "a matrix turned": (np.zeros((3, 2)).T, "ba"),
    "a scalar": (np.array(5), "contiguous_format"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_format_of_an_array_is_read_from_its_strides(name: str) -> None:
    array, memory_format = ARRAYS[name]
    tensor = bl.from_array(array)
    assert tensor.memory_format == memory_format
    assert tensor.is_dense
    np.testing.assert_array_equal(tensor.numpy(), array.reshape(array.shape or (1,)))
    assert not np.may_share_memory(tensor.buffer, array)
    other = bl.from_array(array, bl.contiguous_format)
    assert other.memory_format == "contiguous_format"
    if array.ndim == 4:
        blocked = bl.from_array(array, "nChw8c", "bf16")
        assert (blocked.memory_format, blocked.dtype) == ("nChw8c", "bf16")
        np.testing.assert_array_equal(blocked.numpy().astype(np.float32), array)


def test_lists_and_tensors_are_tensors() -> None:
    assert bl.from_array([[1.0, 2.0]]).dtype == "f64"  # as numpy has it
    assert bl.from_array([[1.5, 2.0]], dtype="f32").numpy().tolist() == [[1.5, 2.0]]
    given_tensor = numbered((1, 1, 1, 1), "channels_last")
    assert bl.from_array(given_tensor).memory_format == "channels_last"
    assert bl.from_array(given_tensor, dtype="bf16").memory_format == "channels_last"
    assert bl.from_array(given_tensor, bl.contiguous_format, "bf16").memory_format == "contiguous_format"


@pytest.mark.parametrize("source", ["text", [None], 1j, np.array(["2020"], "datetime64[Y]")])
def test_what_is_no_tensor_is_refused(source: Any) -> None:
    for function in (bl.from_array, bl.as_tensor, bl.zeros_like):
        with pytest.raises(bl.InputError):
            function(source)


def test_a_tensor_of_a_view_may_end_with_its_last_element() -> None:
    desc = bl.MemoryDesc((2, 2), strides=(4, 1))
    assert desc.nbytes == 32
    tensor = bl.Tensor(desc, np.arange(6, dtype=np.float32))
    assert tensor.numpy().tolist() == [[0, 1], [4, 5]]
    for n in (5, 9):
        with pytest.raises(bl.LayoutError, match="takes 32 contiguous bytes"):
            bl.Tensor(desc, np.zeros(n, np.float32))


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("like", [bl.rand_like, bl.randn_like])
def test_random_numbers_are_those_of_the_seed_in_every_format(like: Any, dtype: str) -> None:
    expected = like(bl.zeros((8, 17, 16, 16)), dtype, rng=5)
    for memory_format in FORMATS:
        x = like(bl.zeros((8, 17, 16, 16), memory_format=memory_format), dtype, rng=5)
        assert (x.dtype, x.memory_format) == (dtype, bl.zeros(x.shape, memory_format=memory_format).memory_format)
        assert x.padding_is_zero()
        np.testing.assert_array_equal(x.numpy(), expected.numpy())
    numbers = expected.numpy().astype(np.float64)
    if like is bl.rand_like:
        assert 0 <= numbers.min() < 0.01
        assert 0.99 < numbers.max() < 1
        assert abs(numbers.mean() - 0.5) < 0.01
    else:
        assert abs(numbers.mean()) < 0.03
        assert abs(numbers.std() - 1) < 0.03


def test_random_numbers_come_from_a_generator_or_are_new_each_time() -> None:
    x = bl.zeros((2, 3, 4, 5), memory_format="channels_last")
    rng = np.random.default_rng(1)
    draws = [bl.rand_like(x, rng=rng), bl.rand_like(x, rng=rng), bl.rand_like(x), bl.rand_like(x)]
    assert len({each.numpy().tobytes() for each in draws}) == 4
    np.testing.assert_array_equal(bl.rand_like(x, rng=np.random.default_rng(1)).numpy(), draws[0].numpy())
    assert bl.rand_like(x.numpy(), memory_format="nChw8c").memory_format == "nChw8c"


@pytest.mark.parametrize("like", [bl.rand_like, bl.randn_like])
def test_random_numbers_of_other_types_are_refused(like: Any) -> None:
    with pytest.raises(bl.InputError, match=rf"{like.__name__}: s8 has no fractions; give a dtype of f32"):
        like(bl.zeros((2,), "s8"))
    with pytest.raises(bl.InputError, match=rf"{like.__name__}: rng is 'x'; give a seed"):
        like(bl.zeros((2,)), rng="x")
