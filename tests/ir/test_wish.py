"""What the layouts that somebody wishes for mean at each rank."""

from __future__ import annotations

import pytest

from blocklayout.dnnl import AnyDesc
from blocklayout.errors import LayoutError
from blocklayout.ir import LAYOUT_NAMES, TensorInfo, Wish, wished_desc
from blocklayout.layout import MemoryDesc

IMAGE = TensorInfo((2, 17, 5, 4), "f32")


@pytest.mark.parametrize(
    ("layout", "tag"),
    [("plain", "abcd"), ("channels_last", "acdb"), ("blocked8", "aBcd8b"), ("blocked16", "aBcd16b")],
)
def test_names_mean_formats_of_images(layout: str, tag: str) -> None:
    assert wished_desc(layout, IMAGE) == MemoryDesc(IMAGE.dims, "f32", tag)


@pytest.mark.parametrize(
    ("ndims", "tags"),
    [(3, ("abc", "acb", "aBc8b", "aBc16b")), (5, ("abcde", "acdeb", "aBcde8b", "aBcde16b"))],
)
def test_names_follow_the_rank(ndims: int, tags: tuple[str, ...]) -> None:
    info = TensorInfo((2, 17, 5, 4, 3)[:ndims], "f32")
    descs = [wished_desc(layout, info) for layout in LAYOUT_NAMES if layout != "any"]
    assert descs == [MemoryDesc(info.dims, "f32", tag) for tag in tags]


@pytest.mark.parametrize("dims", [(7,), (3, 4), (2, 3, 4, 5, 6, 7)])
@pytest.mark.parametrize("layout", [name for name in LAYOUT_NAMES if name != "any"])
def test_a_format_that_does_not_exist_at_a_rank_means_plain(layout: str, dims: tuple[int, ...]) -> None:
    assert wished_desc(layout, TensorInfo(dims, "f32")) == MemoryDesc(dims, "f32")


def test_any_leaves_the_layout_open() -> None:
    assert wished_desc("any", IMAGE) == AnyDesc(IMAGE.dims, "f32")


def test_a_tag_is_taken_as_it_is() -> None:
    assert wished_desc("nChw4c", IMAGE) == MemoryDesc(IMAGE.dims, "f32", "nChw4c")


def test_a_tag_of_another_rank_is_refused() -> None:
    with pytest.raises(LayoutError):
        wished_desc("nchw", TensorInfo((3, 4), "f32"))


def test_a_descriptor_of_these_extents_is_taken_as_it_is() -> None:
    desc = MemoryDesc(IMAGE.dims, "f32", "nhwc")
    assert wished_desc(desc, IMAGE) is desc


def test_a_descriptor_of_other_extents_lends_its_order_and_blocks() -> None:
    lent = wished_desc(MemoryDesc((2, 33, 9, 9), "f32", "nChw8c"), IMAGE)
    assert lent == MemoryDesc(IMAGE.dims, "f32", "nChw8c")


def test_a_descriptor_of_another_data_type_lends_its_layout() -> None:
    lent = wished_desc(MemoryDesc(IMAGE.dims, "bf16", "nhwc"), IMAGE)
    assert lent == MemoryDesc(IMAGE.dims, "f32", "nhwc")


def test_source_and_destination_have_their_own_wishes() -> None:
    wish = Wish("plain", "blocked8")
    assert wish.src_desc(IMAGE) == MemoryDesc(IMAGE.dims, "f32", "nchw")
    assert wish.dst_desc(IMAGE) == MemoryDesc(IMAGE.dims, "f32", "nChw8c")
