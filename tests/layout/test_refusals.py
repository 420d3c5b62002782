"""A descriptor that cannot exist ends in a LayoutError that says what would be right."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from blocklayout.errors import BlockLayoutError, LayoutError, LimitError
from blocklayout.layout import FormatTag, Layout, MemoryDesc
from blocklayout.resource_limits import limits

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "negative extent": ({"dims": (2, -1)}, "negative extent"),
    "no dimension": ({"dims": ()}, "1 to 12"),
    "thirteen dimensions": ({"dims": (1,) * 13}, "1 to 12"),
    "fractions": ({"dims": (2.0, 3)}, "must be integers"),
    "no sequence": ({"dims": 7}, "must be integers"),
    "text": ({"dims": "nchw"}, "must be integers"),
    "data type": ({"dims": (2,), "dtype": "fp33"}, "no data type 'fp33'; there are f32"),
    "data type that is code": ({"dims": (2,), "dtype": "08"}, "no data type '08'"),
    "rank of the tag": ({"dims": (2, 3), "layout": "nchw"}, "lays out 4 dimensions"),
    "rank of a computed tag": ({"dims": (2, 3), "layout": FormatTag((0,))}, "lays out 1 dimensions"),
    "rank of the strides": ({"dims": (2, 3), "strides": (1,)}, "has 1 dimensions"),
    "both": ({"dims": (2,), "layout": "a", "strides": (1,)}, "not both"),
    "no layout": ({"dims": (2,), "layout": 5}, "a layout is a format tag"),
    "unknown tag": ({"dims": (2, 3, 4, 5), "layout": "nChw16"}, "did you mean nChw16c"),
    "block of a missing dimension": ({"dims": (2, 3), "layout": Layout((3, 1), (8,), (2,))}, "missing dimension 2"),
    "block of one": ({"dims": (2, 3), "layout": Layout((3, 1), (1,), (1,))}, "2 or more"),
    "uneven blocks": ({"dims": (2, 3), "layout": Layout((3, 1), (8,), ())}, "one length"),
    "overlap": ({"dims": (2, 3), "strides": (2, 1)}, "dimension 0 steps by 2, which must be at least 3"),
    "overlap of blocks": ({"dims": (2, 17), "layout": Layout((16, 8), (8,), (1,))}, "must be at least 24"),
    "two strides of one": ({"dims": (2, 3), "strides": (1, 1)}, "must be at least"),
    "negative stride": ({"dims": (2, 3), "strides": (-3, 1)}, "negative step"),
    "negative offset": ({"dims": (2, 3), "offset": -1}, "negative"),
    "fractional offset": ({"dims": (2, 3), "offset": 0.5}, "must be integers"),
    "too large": ({"dims": (2**31, 2**31)}, "2\\^63"),
    "too large in bytes only": ({"dims": (2**61,)}, "2\\^63"),
    "too far apart": ({"dims": (2, 2), "strides": (2**62, 1)}, "2\\^63"),
    "too far away": ({"dims": (2, 2), "offset": 2**62}, "2\\^63"),
    "an unused number too large": ({"dims": (0, 2**64)}, "2\\^63"),
}


@pytest.mark.parametrize(("arguments", "message"), CASES.values(), ids=CASES.keys())
def test_a_descriptor_that_cannot_exist_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        MemoryDesc(**arguments)


def test_the_largest_sizes_exist() -> None:
    assert MemoryDesc((2**63 - 1,), "u8").nbytes == 2**63 - 1


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 4), np.float32)[::-1], "negative step"),
        (np.zeros((3, 4), np.complex64), "no data type"),
        (np.zeros((3, 4), ">f4"), "other order"),
        (np.zeros((), np.float32), "1 to 12"),
        (np.zeros(4, [("a", "u1"), ("b", "<f4")])["b"], "no multiples of 4"),
        (np.lib.stride_tricks.sliding_window_view(np.zeros(5, np.float32), 3), "overlap"),
    ],
)
def test_an_array_that_no_descriptor_fits_is_refused(array: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        MemoryDesc.from_array(array)


def test_an_extent_of_one_may_have_any_stride() -> None:
    array = np.zeros((3, 4), np.float32)[::-1][:1]
    assert MemoryDesc.from_array(array).is_dense


DESC = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")


@pytest.mark.parametrize("index", [(2, 0, 0, 0), (0, 17, 0, 0), (0, 0, 0, -1), (0, 0, 0), (0, 0, 0, 0.5)])
def test_an_index_outside_of_the_tensor_is_refused(index: tuple[Any, ...]) -> None:
    with pytest.raises(LayoutError, match="index"):
        DESC.offset(*index)


@pytest.mark.parametrize("offset", [-1, 960, 0.5])
def test_an_offset_outside_of_the_bytes_is_refused(offset: Any) -> None:
    with pytest.raises(LayoutError, match="offset"):
        DESC.index(offset)


@pytest.mark.parametrize("perm", [(0, 1, 2), (0, 0, 1, 2), (0, 1, 2, 4), (-1, 0, 1, 2)])
def test_what_is_no_permutation_is_refused(perm: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match="perm"):
        DESC.permuted(perm)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((2, 17 * 5 * 4), "blocked"),
        ((34, 5, 4), "blocked"),
        ((2, 17, 21), "number of elements"),
        ((2, 17, -5, -4), "negative"),
    ],
)
def test_a_reshape_that_would_move_bytes_is_refused(dims: tuple[int, ...], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        DESC.reshaped(dims)


def test_flattening_channels_last_images_would_move_bytes() -> None:
    with pytest.raises(LayoutError, match="reorder to a plain layout first"):
        MemoryDesc((2, 3, 4, 5), "f32", "nhwc").reshaped((2, 60))
    with pytest.raises(LayoutError, match="extent of 1 in a block"):
        MemoryDesc((2, 1, 4, 5), "f32", "nChw8c").reshaped((2, 4, 5))


@pytest.mark.parametrize(
    ("dims", "offsets", "message"),
    [
        ((2, 8, 5, 4), (0, 4, 0, 0), "starts inside a block"),
        ((2, 9, 5, 4), (0, 0, 0, 0), "ends inside a block"),
        ((2, 17, 5, 4), (1, 0, 0, 0), "leaves dimension 0"),
        ((2, 17, 5, 4), (0, -8, 0, 0), "leaves dimension 1"),
        ((2, 17, 5), (0, 0, 0), "rank"),
    ],
)
def test_a_box_that_is_no_sub_memory_is_refused(dims: tuple[int, ...], offsets: tuple[int, ...], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        DESC.submemory(dims, offsets)


def test_resizing_to_another_rank_is_refused() -> None:
    with pytest.raises(LayoutError, match="has 3 dimensions"):
        DESC.resized((1, 17, 5))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 17, 4, 5), np.float32), "does not fill"),
        (np.zeros((2, 17, 5, 4), np.float64), "convert with .astype"),
    ],
)
def test_an_array_that_does_not_fit_is_not_packed(array: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        DESC.pack(array)


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (np.zeros(959, np.float32), "too short"),
        (np.zeros(3839, np.uint8), "too short"),
        (np.zeros(960, np.int32), "does not hold"),
        (np.zeros(1920, np.float32)[::2], "contiguous"),
    ],
)
def test_a_buffer_that_does_not_fit_is_not_unpacked(buffer: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        DESC.unpack(buffer)


def test_a_source_that_repeats_elements_cannot_be_filled() -> None:
    with pytest.raises(LayoutError, match="it can be read, not filled"):
        MemoryDesc((2, 3), strides=(0, 1)).pack(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"dims": [2], "dtype": "f32"},
        {"dims": [2], "dtype": "f32", "tag": "a", "strides": [1]},
        {"dims": [2], "dtype": "f32", "tag": "a", "colour": "red"},
        {"dims": [2], "dtype": "f32", "tag": "b"},
        {"dims": [2], "dtype": ["f32"], "tag": "a"},
        {"dims": [2], "dtype": "f32", "tag": ["a"]},
        {"dims": None, "dtype": "f32", "tag": "a"},
        {"dims": [2], "dtype": "f32", "strides": [1], "inner_blks": [2]},
        {"dims": [5], "dtype": "f32", "strides": [4], "inner_blks": [4], "inner_idxs": [0], "padded_dims": [4]},
        {"dims": [5], "dtype": "f32", "strides": [4], "inner_blks": [4], "inner_idxs": [0], "padded_dims": [99]},
        5,
        None,
        ["dims", "dtype", "tag"],
    ],
)
def test_values_that_are_no_descriptor_are_refused(data: Any) -> None:
    with pytest.raises(BlockLayoutError):
        MemoryDesc.from_dict(data)


@pytest.mark.parametrize("desc", [MemoryDesc((7, 2**32 + 1, 4, 2)), MemoryDesc((0, 2**30, 2**30))])
def test_offsets_that_memory_cannot_hold_are_refused(desc: MemoryDesc) -> None:
    with pytest.raises(LimitError, match=r"an array of offsets .* extents .*(GiB of memory are left|2\^63 bytes)"):
        desc.offsets()


def test_extents_beside_one_of_0_take_no_memory() -> None:
    with limits(nbytes=1 << 20):
        assert MemoryDesc((0, 2**31 - 1)).offsets().shape == (0, 2**31 - 1)


def test_bytes_that_memory_cannot_hold_are_refused() -> None:
    with pytest.raises(LimitError, match="GiB of memory are left here"):
        MemoryDesc((7, 2), strides=(2**55, 1)).pack(np.zeros((7, 2), np.float32))


def test_a_descriptor_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        DESC.dtype = "u8"
    with pytest.raises(AttributeError, match="cannot be changed"):
        del DESC.dims


def test_a_notebook_shows_a_table() -> None:
    html = DESC._repr_html_()
    assert re.search(r"padded dims</th><td>\(2, 24, 5, 4\)", html)
    assert "3840, 1120 of them padding" in html
