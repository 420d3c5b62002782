"""Statements of PyTorch's channels-last tutorial and of its memory-format RFC about tensors alone, one test each.

Source: "Channels Last Memory Format in PyTorch", pytorch.org tutorials; "Memory format (aka layout aka NHWC)
support", pytorch/pytorch issue 19092, and "Tensor Memory Format" in PyTorch's documentation.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from tests.tensor.tensors import numbered

FORMATS = (bl.contiguous_format, bl.channels_last, "nChw8c", "nChw16c", "chwn")
NCHW = (10, 3, 32, 32)


@pytest.mark.parametrize("memory_format", FORMATS)
def test_size_1_is_channels_whatever_the_format(memory_format: str) -> None:
    x = bl.empty(NCHW).to(memory_format=memory_format)
    assert x.size(1) == x.shape[1] == x.size()[1] == 3
    assert x.size(-3) == 3
    assert x.ndim == 4


@pytest.mark.parametrize("memory_format", FORMATS)
def test_shape_is_unchanged_by_to(memory_format: str) -> None:
    x = bl.empty(NCHW)
    assert x.to(memory_format=memory_format).shape == x.shape == NCHW


def test_strides_of_the_classic_contiguous_tensor() -> None:
    assert bl.empty(NCHW).stride() == (3072, 1024, 32, 1)


def test_strides_of_the_channels_last_tensor() -> None:
    x = bl.empty(NCHW).to(memory_format=bl.channels_last)
    assert x.stride() == (3072, 1, 96, 3)
    assert [x.stride(dim) for dim in range(4)] == [3072, 1, 96, 3]


def test_to_channels_last_and_back_to_contiguous() -> None:
    x = numbered(NCHW)
    y = x.to(memory_format=bl.channels_last)
    z = y.to(memory_format=bl.contiguous_format)
    assert z.stride() == (3072, 1024, 32, 1)
    np.testing.assert_array_equal(z.numpy(), x.numpy())


@pytest.mark.parametrize("memory_format", FORMATS)
def test_elements_are_where_they_were_by_index(memory_format: str) -> None:
    x = numbered(NCHW)
    y = x.to(memory_format=memory_format)
    assert y[9, 2, 31, 30] == x[9, 2, 31, 30]
    np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_is_contiguous_tells_by_format() -> None:
    x = bl.empty(NCHW)
    y = x.to(memory_format=bl.channels_last)
    assert x.is_contiguous()
    assert not x.is_contiguous(memory_format=bl.channels_last)
    assert y.is_contiguous(memory_format=bl.channels_last)
    assert not y.is_contiguous()
    assert not y.to("nChw8c").is_contiguous()
    assert y.to("nChw8c").is_contiguous(memory_format="nChw8c")


def test_channels_first_is_contiguous_format_by_another_name() -> None:
    x = bl.empty(NCHW)
    assert x.to(memory_format=bl.channels_first) is x
    assert x.is_contiguous(memory_format=bl.channels_first)


def test_there_is_little_difference_between_to_and_contiguous() -> None:
    x = numbered(NCHW)
    for memory_format in FORMATS:
        one, other = x.to(memory_format=memory_format), x.contiguous(memory_format=memory_format)
        assert one.desc == other.desc
        assert one.memory_format == other.memory_format
        np.testing.assert_array_equal(one.numpy(), other.numpy())


# Where both formats are the same order of bytes: one channel (N1HW), and one pixel (NC11).


@pytest.mark.parametrize("shape", [(4, 1, 6, 6), (4, 8, 1, 1), (1, 1, 1, 1)], ids=["N1HW", "NC11", "1111"])
def test_one_channel_or_one_pixel_is_contiguous_in_both_formats(shape: tuple[int, ...]) -> None:
    for memory_format in (bl.contiguous_format, bl.channels_last):
        x = bl.empty(shape, memory_format=memory_format)
        assert x.is_contiguous(memory_format=bl.contiguous_format)
        assert x.is_contiguous(memory_format=bl.channels_last)


@pytest.mark.parametrize("shape", [(4, 1, 6, 6), (4, 8, 1, 1), (1, 1, 1, 1)], ids=["N1HW", "NC11", "1111"])
def test_contiguous_is_a_no_op_there_and_leaves_format_and_strides(shape: tuple[int, ...]) -> None:
    x = bl.empty(shape)
    y = x.contiguous(memory_format=bl.channels_last)
    assert y is x
    assert y.memory_format == "contiguous_format"


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 1, 6, 6), (36, 1, 6, 1)), ((4, 8, 1, 1), (8, 1, 8, 8)), ((1, 1, 1, 1), (1, 1, 1, 1))],
    ids=["N1HW", "NC11", "1111"],
)
def test_to_restrides_there_without_moving_a_byte(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = numbered(shape)
    with bl.watch("raise"):
        y = x.to(memory_format=bl.channels_last)
    assert y.stride() == strides
    assert y.memory_format == "channels_last"
    assert x.memory_format == "contiguous_format"
    assert np.shares_memory(y.buffer, x.buffer)
    with bl.watch("raise"):
        z = y.to(memory_format=bl.contiguous_format)
    assert z.stride() == x.stride()
    assert z.memory_format == "contiguous_format"


def test_to_the_format_it_has_is_itself() -> None:
    for memory_format in FORMATS:
        x = bl.empty((1, 1, 1, 1), memory_format=memory_format)
        assert x.to(memory_format=memory_format) is x
        assert x.to(memory_format=bl.preserve_format) is x
        assert x.to() is x


# What preserves.

AMBIGUOUS = ((2, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (1, 3, 1, 1), (2, 1, 1, 1), (1, 1, 1, 1))


@pytest.mark.parametrize("shape", AMBIGUOUS)
@pytest.mark.parametrize("memory_format", FORMATS)
class TestPreserves:
    def test_clone(self, memory_format: str, shape: tuple[int, ...]) -> None:
        x = bl.empty(shape, memory_format=memory_format)
        assert x.memory_format == memory_format
        assert x.clone().memory_format == memory_format
        assert x.clone().stride() == x.stride()

    def test_empty_like(self, memory_format: str, shape: tuple[int, ...]) -> None:
        x = bl.empty(shape, memory_format=memory_format)
        for like in (bl.empty_like, bl.zeros_like, bl.ones_like):
            assert like(x).memory_format == memory_format
            assert like(x).stride() == x.stride()

    def test_cast(self, memory_format: str, shape: tuple[int, ...]) -> None:
        x = bl.zeros(shape, memory_format=memory_format)
        for dtype in ("bf16", "f64", "s32", "bool"):
            assert x.astype(dtype).memory_format == memory_format
            assert x.to(dtype=dtype).stride() == x.stride()

    def test_pointwise_on_raw_elements(self, memory_format: str, shape: tuple[int, ...]) -> None:
        assert bl.zeros(shape, memory_format=memory_format).map(np.cos).memory_format == memory_format

    def test_batches(self, memory_format: str, shape: tuple[int, ...]) -> None:
        x = bl.zeros(shape, memory_format=memory_format)
        assert x[:1].memory_format == memory_format
        assert x[-1:].clone().memory_format == memory_format

    def test_copies_and_files(self, memory_format: str, shape: tuple[int, ...], tmp_path: Path) -> None:
        x = numbered(shape, memory_format)
        x.save(tmp_path / "x.tensor")
        for again in (
            copy.copy(x),
            copy.deepcopy(x),
            pickle.loads(pickle.dumps(x)),
            bl.Tensor.load(tmp_path / "x.tensor"),
        ):
            assert again.memory_format == memory_format
            assert again.stride() == x.stride()
            np.testing.assert_array_equal(again.numpy(), x.numpy())

    def test_there_and_back_by_permutations(self, memory_format: str, shape: tuple[int, ...]) -> None:
        x = bl.zeros(shape, memory_format=memory_format)
        again = x.permute(0, 2, 3, 1).permute(0, 3, 1, 2)
        assert again.desc == x.desc
        assert again.desc.format_tag == x.desc.format_tag


def test_clone_and_empty_like_take_another_format() -> None:
    x = bl.zeros((2, 3, 4, 5))
    assert x.clone(memory_format=bl.channels_last).memory_format == "channels_last"
    assert bl.empty_like(x, memory_format=bl.channels_last).stride() == (60, 1, 15, 3)


def test_a_tensor_can_be_created_channels_last_by_permuting_nhwc_memory() -> None:
    nhwc = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)
    x = bl.from_array(nhwc).permute(0, 3, 1, 2)
    assert x.shape == (2, 3, 4, 5)
    assert x.memory_format == "channels_last"
    assert bl.from_array(nhwc.transpose(0, 3, 1, 2)).memory_format == "channels_last"


def test_channels_last_permuted_to_nhwc_is_contiguous() -> None:
    x = bl.empty(NCHW, memory_format=bl.channels_last).permute(0, 2, 3, 1)
    assert x.is_contiguous()
    assert x.memory_format == "contiguous_format"


def test_permute_keeps_the_bytes_and_reorder_the_values() -> None:
    x = numbered((2, 3, 4, 5))
    np.testing.assert_array_equal(x.permute(0, 2, 3, 1).physical(), x.physical())
    np.testing.assert_array_equal(x.reorder(bl.channels_last).numpy(), x.numpy())
    assert (x.reorder(bl.channels_last).physical() != x.physical()).any()


def test_is_dense_is_non_overlapping_and_dense() -> None:
    x = bl.empty((4, 16, 8, 8))
    for memory_format in FORMATS:
        assert x.to(memory_format=memory_format).is_dense
    assert x[1:].is_dense
    assert x.permute(3, 1, 0, 2).is_dense
    assert not x[:, ::2].is_dense
    assert not x[:, :8].is_dense
    assert x[:1, :8].is_dense
    assert bl.empty((1, 16, 8, 8), memory_format="nChw8c")[:, 8:].is_dense
    assert not bl.empty((4, 16, 8, 8), memory_format="nChw8c")[:, 8:].is_dense


def test_a_tensor_with_holes_becomes_dense_in_its_order() -> None:
    x = numbered((4, 16, 8, 8), bl.channels_last)[:, ::2, 1:]
    assert x.memory_format == "channels_last"
    assert not x.is_contiguous(memory_format=bl.channels_last)
    assert x.contiguous(memory_format=bl.preserve_format).is_contiguous(memory_format=bl.channels_last)
    assert x.clone().is_contiguous(memory_format=bl.channels_last)
    assert x.to(memory_format=bl.channels_last).is_dense


@pytest.mark.parametrize(
    ("shape", "strides"), [((2, 3, 5), (15, 1, 3)), (NCHW, (3072, 1, 96, 3)), ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3))]
)
def test_channels_last_is_of_ranks_3_to_5(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    x = bl.empty(shape, memory_format=bl.channels_last)
    assert x.stride() == strides
    assert x.memory_format == "channels_last"
    for other in ((2, 3), (2, 3, 4, 5, 6, 7)):
        with pytest.raises(bl.LayoutError, match=r"channels_last exists for 3 to 5 dimensions"):
            bl.empty(other, memory_format=bl.channels_last)


def test_formats_are_values_that_print_as_they_are_called() -> None:
    assert [bl.contiguous_format, bl.channels_first, bl.channels_last, bl.preserve_format] == [
        "contiguous_format",
        "channels_first",
        "channels_last",
        "preserve_format",
    ]


def test_a_slice_of_the_batch_is_a_view_and_writing_to_it_is_writing_to_the_whole() -> None:
    for memory_format in FORMATS:
        x = bl.zeros((4, 8, 2, 2), memory_format=memory_format)
        x[1:3][0, 5] = 1
        assert x.numpy().sum() == 4
        assert x[1, 5, 0, 0] == 1


@pytest.mark.parametrize("shape", [*AMBIGUOUS, (4, 8, 1, 1), (1, 3, 4, 5), (2, 3, 1, 5), (2, 3, 4, 1)])
def test_pytorch_says_the_same(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    formats = {bl.contiguous_format: torch.contiguous_format, bl.channels_last: torch.channels_last}
    for start, their_start in formats.items():
        ours, theirs = bl.zeros(shape, memory_format=start), torch.zeros(shape).to(memory_format=their_start)
        assert ours.stride() == theirs.stride()
        for name, their_format in formats.items():
            one, other = ours.contiguous(name), theirs.contiguous(memory_format=their_format)
            assert ours.is_contiguous(name) == theirs.is_contiguous(memory_format=their_format)
            assert (one is ours) == (other.data_ptr() == theirs.data_ptr())
            assert one.stride() == other.stride()
            assert ours.to(name).stride() == theirs.to(memory_format=their_format).stride()
            assert ours.clone(name).stride() == theirs.clone(memory_format=their_format).stride()
