"""Elements by logical position: as numpy's, in every layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import blocklayout as bl
from tests.tensor.tensors import FORMATS, dense, indices, numbered, poisoned, tensors


@given(tensors(), st.data())
def test_what_is_read_is_what_numpy_reads(tensor: bl.Tensor, data: st.DataObject) -> None:
    index = data.draw(indices(tensor.shape))
    expected = tensor.numpy()[index]
    got = tensor[index]
    if isinstance(got, bl.Tensor):
        assert got.shape == expected.shape
        assert got.desc.offset0 == 0
        np.testing.assert_array_equal(got.numpy(), expected)
    else:
        assert got == expected
        assert type(got) is expected.dtype.type


@given(dense(), st.data())
def test_what_is_written_is_what_numpy_writes_and_padding_is_left_alone(tensor: bl.Tensor, data: st.DataObject) -> None:
    is_padding = poisoned(tensor)
    index = data.draw(indices(tensor.shape))
    expected = tensor.numpy()
    shape = expected[index].shape
    shape = shape[data.draw(st.integers(0, len(shape))) :]
    values = -np.arange(1, int(np.prod(shape)) + 1, dtype=np.float32).reshape(shape)
    expected[index] = values
    tensor[index] = values
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert (tensor.physical()[is_padding] == 7).all()


@given(tensors(), st.data())
def test_writing_to_a_part_writes_to_the_whole_exactly_if_it_is_a_view(tensor: bl.Tensor, data: st.DataObject) -> None:
    index = data.draw(indices(tensor.shape))
    part = tensor[index]
    if not isinstance(part, bl.Tensor) or not part.desc.n_elements:
        return
    before = tensor.numpy()
    expected = before.copy()
    with bl.watch("record") as seen:
        part = tensor[index]
    part[...] = -5
    if not len(seen):
        expected[index] = -5
    else:
        assert [event.kind for event in seen] == ["copy"]
        assert part.is_dense
    np.testing.assert_array_equal(tensor.numpy(), expected)


@given(tensors(), st.data())
def test_what_keeps_the_rank_keeps_the_format(tensor: bl.Tensor, data: st.DataObject) -> None:
    index = tuple(data.draw(st.sampled_from([slice(None), slice(0, 1), slice(1, None)])) for _ in tensor.shape)
    part = tensor[index]
    if not tensor.memory_format.startswith("strided"):
        assert part.desc.format_tag == tensor.desc.format_tag
        assert part.memory_format == tensor.memory_format
        assert part.clone().memory_format == tensor.memory_format


@pytest.mark.parametrize("memory_format", FORMATS)
def test_batches_are_dense_views_under_the_same_tag(memory_format: str) -> None:
    tensor = numbered((32, 17, 5, 4), memory_format)
    part = tensor[16:]
    assert part.memory_format == tensor.memory_format
    assert part.desc.tag == tensor.desc.tag or memory_format == "chwn"
    assert part.is_dense == (memory_format != "chwn")
    assert np.shares_memory(part.buffer, tensor.buffer)


@pytest.mark.parametrize(
    ("index", "is_view"),
    [
        (np.s_[1], True),
        (np.s_[:, 8:], True),
        (np.s_[:, 16:], True),
        (np.s_[:, :8, ::2, 1:3], True),
        (np.s_[:, 8:11], True),
        (np.s_[..., -1], True),
        (np.s_[:, 3:], False),
        (np.s_[:, 8:18], False),
        (np.s_[:, ::8], False),
        (np.s_[:, 0], False),
        (np.s_[::-1], False),
    ],
)
def test_what_is_a_view_and_what_a_copy(index: Any, is_view: bool) -> None:  # noqa: FBT001 - a column of the table
    tensor = numbered((2, 20, 5, 4), "nChw8c")
    with bl.watch("record") as seen:
        part = tensor[index]
    assert np.shares_memory(part.buffer, tensor.buffer) == is_view
    assert [(event.kind, event.operator) for event in seen] == ([] if is_view else [("copy", "Tensor.__getitem__")])


def test_a_copy_has_the_same_format() -> None:
    tensor = numbered((2, 20, 5, 4), "nChw8c")
    assert tensor[:, 3:].memory_format == "nChw8c"
    assert tensor[:, :, ::-1].memory_format == "nChw8c"
    assert tensor[:, 3].memory_format == "contiguous_format"
    assert tensor[0, 3:, ::-1].desc.tag == "Abc8a"
    assert numbered((2, 3, 5, 4), "nhwc")[:, ::-1].memory_format == "channels_last"


def test_a_view_of_a_view_has_its_names_and_bytes() -> None:
    tensor = numbered((4, 1, 1, 1), "channels_last")
    assert tensor[::2].memory_format == "channels_last"
    assert tensor[::2][1:].memory_format == "channels_last"
    tensor[::2][1:][0, 0, 0, 0] = 50
    assert tensor[2, 0, 0, 0] == 50
    assert numbered((4, 1, 1, 1))[::2].memory_format == "contiguous_format"


def test_a_dropped_dimension_leaves_the_order_of_the_others() -> None:
    assert numbered((2, 3, 4, 5), "nhwc")[0].desc.tag == "bca"
    assert numbered((2, 3, 4, 5), "nhwc")[:, 0].memory_format == "contiguous_format"
    assert numbered((2, 16, 4, 5), "nChw8c")[0].desc.tag == "Abc8a"
    assert numbered((2, 16, 4, 5), "nChw8c")[:, :, 1].memory_format == "aBc8b"


def test_elements_are_numpy_scalars() -> None:
    assert type(numbered((2, 3))[1, 2]) is np.float32
    assert type(numbered((2, 3), dtype="s8")[np.int64(1), -1]) is np.int8


def test_values_convert_as_they_do_everywhere() -> None:
    tensor = bl.zeros((2, 3), "u8")
    tensor[0] = np.array([1.5, 300.0, -1.0])
    tensor[1] = bl.full((3,), 2.5, "bf16")
    assert tensor.numpy().tolist() == [[2, 255, 0], [2, 2, 2]]


@pytest.mark.parametrize("memory_format", ["nchw", "nChw8c"])
def test_values_may_be_of_the_tensor_itself(memory_format: str) -> None:
    tensor = numbered((4, 16, 2, 2), memory_format)
    expected = tensor.numpy()
    expected[1:] = expected[:-1].copy()
    tensor[1:] = tensor[:-1]
    np.testing.assert_array_equal(tensor.numpy(), expected)


def test_it_iterates_over_its_first_dimension() -> None:
    tensor = numbered((3, 2), "ba")
    assert len(tensor) == 3
    assert [row.numpy().tolist() for row in tensor] == tensor.numpy().tolist()
    assert list(numbered((3,))) == [2, 3, 4]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (2, bl.PositionError, "position 2 of dimension 0, which has 2 elements"),
        ((0, -4), bl.PositionError, "position -4 of dimension 1"),
        ((0, 0, 0), bl.PositionError, "3 positions for the 2 dimensions"),
        ((..., ...), bl.InputError, "one Ellipsis"),
        (None, bl.InputError, "integers, slices and an Ellipsis, not None"),
        (True, bl.InputError, "not True"),
        ([0, 1], bl.InputError, "not \\[0, 1\\]"),
        (1.0, bl.InputError, "not 1.0"),
        (slice(0, 2, 0), bl.InputError, "step cannot be zero"),
    ],
)
def test_other_indices_are_refused(index: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        numbered((2, 3))[index]  # type: ignore[index]
    with pytest.raises(error, match=message):
        numbered((2, 3))[index] = 0  # type: ignore[index]


def test_a_position_outside_is_an_index_error_too() -> None:
    with pytest.raises(IndexError):
        numbered((2, 3))[5]
    with pytest.raises(IndexError):
        numbered((2, 3)).size(2)


@pytest.mark.parametrize("memory_format", ["ab", "aB8b"])
def test_values_that_do_not_fit_are_refused(memory_format: str) -> None:
    tensor = numbered((2, 3), memory_format)
    with pytest.raises(bl.InputError, match="shape"):
        tensor[0] = np.zeros(2)
    with pytest.raises(bl.InputError, match="shape"):
        tensor[0:0] = np.zeros((5, 3))
    with pytest.raises(bl.InputError, match="complex"):
        tensor[0] = 1j
    tensor.buffer.flags.writeable = False
    with pytest.raises(bl.InputError, match="read-only"):
        tensor[0] = 1
    with pytest.raises(bl.InputError, match="read-only"):
        tensor[0, 0] = 1


def test_what_repeats_is_not_written() -> None:
    tensor = bl.Tensor(bl.MemoryDesc((2, 3), strides=(0, 1)), np.arange(3, dtype=np.float32))
    assert tensor[1, 2] == 2
    with pytest.raises(bl.LayoutError, match="repeats"):
        tensor[0] = 1


def test_one_element_is_a_number_and_more_are_none() -> None:
    assert bl.full((1, 1), 2.5).item() == 2.5
    assert not bl.zeros((1,), "s8")
    assert bl.ones((1, 1), memory_format="aB8b")
    with pytest.raises(bl.InputError, match="ambiguous"):
        bool(bl.ones((2,)))
    with pytest.raises(bl.InputError, match="for one"):
        bl.ones((2,)).item()
