"""Views of a tensor are called by their strides, and by the whole's name where these leave it open."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from operator import methodcaller
from typing import Any

import numpy as np
import pytest

import blocklayout as bl

VIEWS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    *((f"unsqueeze({axis})", methodcaller("unsqueeze", axis)) for axis in range(4)),
    ("squeeze()", lambda t: t.squeeze()),
    ("[:, 1:]", lambda t: t[:, 1:]),
    ("[:, :, :2]", lambda t: t[:, :, :2]),
    ("[..., ::2]", lambda t: t[..., ::2]),
    ("[0]", lambda t: t[0]),
    ("[:, 0]", lambda t: t[:, 0]),
    ("[:, :, 0]", lambda t: t[:, :, 0]),
    ("[..., 0]", lambda t: t[..., 0]),
    ("[0].unsqueeze(0)", lambda t: t[0].unsqueeze(0)),
    ("[:, :, 0].unsqueeze(2)", lambda t: t[:, :, 0].unsqueeze(2)),
    ("[..., 0].unsqueeze(-1)", lambda t: t[..., 0].unsqueeze(-1)),
    ("[:, :2].unsqueeze(2)", lambda t: t[:, :2].unsqueeze(2)),
    ("reshape of all behind channels", lambda t: t.reshape((*t.shape[:2], -1))),
    ("permute to channels last", lambda t: t.permute(0, *range(2, len(t.shape)), 1)),
    ("permute reversed", lambda t: t.permute(*reversed(range(len(t.shape))))),
)
SHAPES = ((2, 3, 4, 5), (2, 3, 1, 5), (2, 3, 5, 1), (2, 3, 1, 1), (1, 3, 4, 5), (2, 3, 5), (2, 3, 1), (2, 3, 2, 4, 5))
FORMATS = (bl.contiguous_format, bl.channels_last)

pytestmark = pytest.mark.filterwarnings("ignore::blocklayout.errors.LayoutLossWarning")  # of CPUs without AVX2


def tensor(shape: tuple[int, ...], memory_format: str) -> bl.Tensor:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return bl.from_array(values).to(memory_format=memory_format)


@pytest.mark.parametrize("axis", [2, 3])
def test_channels_last_survives_another_spatial_dimension(axis: int) -> None:
    image = tensor((2, 3, 5), bl.channels_last).unsqueeze(axis)
    assert image.memory_format == bl.channels_last
    assert bl.relu(image).memory_format == bl.channels_last
    assert bl.conv(image, np.ones((8, 3, 1, 1), np.float32)).memory_format == bl.channels_last


@pytest.mark.parametrize("shape", [(2, 3, 1, 5), (2, 3, 5, 1), (2, 3, 1, 1)])
def test_and_one_less(shape: tuple[int, ...]) -> None:
    image = tensor(shape, bl.channels_last)
    assert image.squeeze(2 if shape[2] == 1 else 3).memory_format == bl.channels_last


def test_a_picked_image_made_a_batch_again_is_what_it_was() -> None:
    image = tensor((2, 3, 4, 5), bl.channels_last)[1]
    assert image.memory_format == "bca"
    assert image.unsqueeze(0).memory_format == bl.channels_last
    assert image.unsqueeze(0).stride() == (60, 1, 15, 3)


def test_where_strides_allow_both_formats_the_name_before_decides() -> None:
    for memory_format in FORMATS:
        assert tensor((2, 3, 1, 1), memory_format).squeeze(3).memory_format == memory_format
        assert tensor((2, 1, 4, 5), memory_format).reshape((2, 1, 20)).memory_format == memory_format


def test_blocks_stay_under_a_spatial_dimension() -> None:
    blocked = tensor((2, 32, 4, 5), "nChw8c").unsqueeze(2)
    assert blocked.desc == bl.MemoryDesc((2, 32, 1, 4, 5), "f32", "nCdhw8c")


@pytest.mark.filterwarnings("error::blocklayout.errors.LayoutLossWarning")
def test_tensors_that_lie_alike_are_one_format_for_every_operator() -> None:
    image = tensor((2, 8, 5, 1), bl.channels_last)
    same = bl.Tensor(bl.MemoryDesc(image.shape, "f32", "acbd"), image.buffer)  # named by strides alone
    with bl.watch("raise", only="loss"):
        for result in (bl.concat([image, same]), bl.concat([image, same[:, :4]]), image + same, bl.max(image, same)):
            assert result.memory_format == bl.channels_last


@pytest.mark.parametrize("memory_format", [*FORMATS, "nChw8c"])
def test_rows_of_every_other_element_are_computed_with(memory_format: str) -> None:
    image = tensor((2, 16, 3, 5), memory_format)
    with bl.watch("record", only="loss") as seen:
        result = bl.relu(image[..., ::2])  # three elements reach over six
    assert result.memory_format == image.memory_format
    assert not len(seen)
    np.testing.assert_array_equal(result.numpy(), image.numpy()[..., ::2])


@pytest.mark.filterwarnings("error::blocklayout.errors.LayoutLossWarning")
def test_what_was_unsqueezed_stands_beside_channels_last() -> None:
    image, row = tensor((2, 8, 5, 1), bl.channels_last), tensor((2, 8, 5), bl.channels_last)
    assert bl.concat([image, row.unsqueeze(3)]).memory_format == bl.channels_last
    assert bl.concat([row.unsqueeze(3), image]).memory_format == bl.channels_last


def test_another_order_still_gives_way_with_a_warning() -> None:
    image, other = tensor((2, 8, 5, 4), bl.channels_last), tensor((2, 8, 5, 4), "acbd")
    with pytest.warns(bl.LayoutLossWarning, match="acbd gives way to nhwc"):
        bl.concat([image, other])


def is_channels_last(theirs: Any) -> bool:
    return bool(theirs.permute(0, *range(2, theirs.ndim), 1).is_contiguous())  # PyTorch has no name for it in rank 3


@pytest.mark.parametrize(("shape", "memory_format"), list(product(SHAPES, FORMATS)), ids=str)
def test_views_are_those_of_pytorch(shape: tuple[int, ...], memory_format: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="compares with PyTorch")
    ours = tensor(shape, memory_format)
    theirs = torch.arange(np.prod(shape), dtype=torch.float32).reshape(shape)
    if memory_format == bl.channels_last:
        order = (0, *range(2, len(shape)), 1)
        back = (0, len(shape) - 1, *range(1, len(shape) - 1))
        theirs = theirs.permute(order).contiguous().permute(back)
    for what, view in VIEWS:
        ranks = len(shape) + what.count("unsqueeze") - (what.startswith("[") and "0]" in what)
        if ranks > 5 or ("unsqueeze" in what and what.startswith("unsqueeze") and int(what[-2]) > len(shape)):
            continue
        got, right = view(ours), view(theirs)
        assert got.shape == tuple(right.shape), what
        taken = [dim for dim, extent in enumerate(got.shape) if extent > 1]
        assert [got.stride(dim) for dim in taken] == [right.stride(dim) for dim in taken], what
        assert got.is_contiguous() == right.is_contiguous(), what
        result, expected = bl.relu(got), torch.relu(right)
        is_last = got.ndim >= 3 and is_channels_last(expected)
        assert got.ndim < 3 or got.is_contiguous(bl.channels_last) == is_channels_last(right), what
        if is_last != expected.is_contiguous() and not ("permute" in what and 1 in shape):  # else strides do not tell
            assert result.memory_format == (bl.channels_last if is_last else bl.contiguous_format), what
        assert [result.stride(dim) for dim in taken] == [expected.stride(dim) for dim in taken], what
