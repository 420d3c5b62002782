"""Numbers worked out by hand or printed in guides.

Sources: "Understanding Memory Formats", oneDNN developer guide, v3.2 (offsets in NCHW, NHWC, CHWN; 17 channels in
nChw8c); "Channels Last Memory Format in PyTorch", PyTorch tutorials (strides of 10x3x32x32).
"""

from __future__ import annotations

import numpy as np
import pytest

from blocklayout.layout import FormatTag, MemoryDesc


@pytest.mark.parametrize(
    ("tag", "offset"),
    [
        ("nchw", 1 * 3 * 4 * 4 + 1 * 4 * 4 + 2 * 4 + 3),
        ("nhwc", 1 * 4 * 4 * 3 + 2 * 4 * 3 + 3 * 3 + 1),
        ("chwn", 1 * 4 * 4 * 2 + 2 * 4 * 2 + 3 * 2 + 1),
    ],
)
def test_offsets_of_the_memory_format_guide(tag: str, offset: int) -> None:
    assert offset == {"nchw": 75, "nhwc": 82, "chwn": 55}[tag]
    assert MemoryDesc((2, 3, 4, 4), "f32", tag).offset(1, 1, 2, 3) == offset


@pytest.mark.parametrize(("size", "strides"), [(16, (768, 1, 48, 3)), (32, (3072, 1, 96, 3))])
def test_strides_of_channels_last_images(size: int, strides: tuple[int, ...]) -> None:
    dims = (10, 3, size, size)
    array = np.zeros((10, size, size, 3), np.float32).transpose(0, 3, 1, 2)
    for desc in (
        MemoryDesc(dims, "f32", "nhwc"),
        MemoryDesc(dims, "f32", "channels_last"),
        MemoryDesc.from_array(array),
    ):
        assert desc.strides == strides
        assert desc.is_contiguous("channels_last")
        assert not desc.is_contiguous("channels_first")
        assert desc.dims == dims


def test_one_extra_channel_adds_a_block() -> None:
    assert MemoryDesc((2, 16, 5, 4), "f32", "nChw8c").padded_dims == (2, 16, 5, 4)
    desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    assert desc.padded_dims == (2, 24, 5, 4)
    assert desc.strides == (480, 160, 32, 8)
    assert desc.nbytes == 3840
    assert (desc.inner_blks, desc.inner_idxs) == ((8,), (1,))
    assert (desc.n_elements, desc.n_padding) == (680, 280)


def test_the_offset_of_a_blocked_element_is_the_guides_formula() -> None:
    desc = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    for n, c, h, w in [(0, 0, 0, 0), (0, 7, 0, 0), (0, 8, 0, 0), (1, 16, 4, 3), (1, 11, 2, 1)]:
        assert desc.offset(n, c, h, w) == n * 480 + (c // 8) * 160 + h * 32 + w * 8 + c % 8


def test_the_block_of_vnni_weights_runs_input_output_input() -> None:
    desc = MemoryDesc((16, 16, 1, 1), "s8", "OIhw4i16o4i")
    assert desc.offset(0, 3, 0, 0) == 3
    assert desc.offset(1, 0, 0, 0) == 4
    assert desc.offset(0, 4, 0, 0) == 64


@pytest.mark.parametrize("tag", ["nchw", "nhwc", "chwn", "nChw8c", "nChw16c", "abcd", "acdb"])
def test_shape_1_is_channels_in_every_layout(tag: str) -> None:
    assert MemoryDesc((2, 17, 5, 4), "f32", tag).shape[1] == 17


def test_a_vector_of_17_channels_addresses_alike_in_both_and_sizes_apart() -> None:
    plain = MemoryDesc((1, 17, 1, 1), "f32", "nchw")
    blocked = MemoryDesc((1, 17, 1, 1), "f32", "nChw16c")
    assert [desc.offset(0, 16, 0, 0) for desc in (plain, blocked)] == [16, 16]
    assert (plain.nbytes, blocked.nbytes) == (68, 128)
    assert not plain.physically_equal(blocked)
    assert blocked.readable_as(plain)
    assert not plain.readable_as(blocked)


def test_16_channels_need_no_padding_so_both_directions_read() -> None:
    plain = MemoryDesc((1, 16, 1, 1), "f32", "nchw")
    blocked = MemoryDesc((1, 16, 1, 1), "f32", "nChw16c")
    assert plain.physically_equal(blocked)
    assert plain.readable_as(blocked)
    assert blocked.readable_as(plain)


def test_a_plain_writer_with_holes_where_padding_would_be_is_not_read_as_blocked() -> None:
    loose = MemoryDesc((2, 17, 1, 1), strides=(24, 1, 1, 1))
    blocked = MemoryDesc((2, 17, 1, 1), "f32", "nChw8c")
    assert loose.physically_equal(blocked)
    assert blocked.readable_as(loose)
    assert not loose.readable_as(blocked)


def test_a_block_of_8_is_read_from_a_block_of_16_and_never_the_reverse() -> None:
    by_8 = MemoryDesc((1, 5, 1, 1), "f32", "nChw8c")
    by_16 = MemoryDesc((1, 5, 1, 1), "f32", "nChw16c")
    assert by_16.readable_as(by_8)
    assert not by_8.readable_as(by_16)


@pytest.mark.parametrize("tag", ["nchw", "nhwc"])
@pytest.mark.parametrize("dims", [(2, 1, 5, 4), (2, 17, 1, 1), (1, 1, 1, 1)])
def test_images_of_one_channel_or_one_pixel_keep_the_name_they_were_given(tag: str, dims: tuple[int, ...]) -> None:
    desc = MemoryDesc(dims, "f32", tag)
    other = MemoryDesc(dims, "f32", "nhwc" if tag == "nchw" else "nchw")
    assert desc.tag == tag
    assert desc.dim_order == FormatTag.parse(tag).order
    assert desc.resized((2, 3, 4, 5)).tag == tag
    assert desc.physically_equal(other)
    assert desc.is_contiguous("channels_first")
    assert desc.is_contiguous("channels_last")


def test_bfloat16_takes_two_bytes() -> None:
    assert MemoryDesc((2, 17, 5, 4), "bf16", "nChw8c").nbytes == 1920


def test_an_empty_batch_holds_nothing() -> None:
    desc = MemoryDesc((0, 17, 5, 4), "f32", "nChw8c")
    assert (desc.nbytes, desc.n_elements, desc.n_padding) == (0, 0, 0)
    assert desc.offsets().shape == desc.unpack(desc.pack(np.zeros(desc.dims, np.float32))).shape == (0, 17, 5, 4)
    assert desc.is_dense
    assert desc.readable_as(MemoryDesc((0, 17, 5, 4), "f32", "nhwc"))


def test_twelve_dimensions() -> None:
    desc = MemoryDesc((2,) * 12, "u8", "abcdefghijlk")
    assert desc.nbytes == 4096
    assert desc.strides[-2:] == (1, 2)


def test_a_broadcast_source_repeats_its_elements() -> None:
    desc = MemoryDesc.from_array(np.broadcast_to(np.arange(3, dtype=np.float32), (2, 3)))
    assert desc.repeats
    assert not desc.is_dense
    assert desc.strides == (0, 1)
    np.testing.assert_array_equal(desc.unpack(np.arange(3, dtype=np.float32)), [[0, 1, 2], [0, 1, 2]])


def test_a_follower_of_blocked_images_gets_blocks_and_a_broadcast_operand_none() -> None:
    images = MemoryDesc((2, 17, 8, 8), "f32", "nChw16c")
    assert images.resized((2, 17, 4, 4)) == MemoryDesc((2, 17, 4, 4), "f32", "nChw16c")
    assert images.resized((1, 17, 1, 1)) == MemoryDesc((1, 17, 1, 1), "f32", "nChw16c")
    assert images.resized((2, 1, 8, 8)) == MemoryDesc((2, 1, 8, 8), "f32", "nchw")
    assert images.resized((2, 17, 8, 8), "bf16").dtype == "bf16"
    one_channel = MemoryDesc((2, 1, 8, 8), "f32", "nChw16c")
    assert one_channel.resized((2, 1, 4, 4)).inner_blks == (16,)


def test_a_batch_slice_is_the_parents_bytes_shifted() -> None:
    part = MemoryDesc((4, 17, 5, 4), "f32", "nChw8c").submemory((1, 17, 5, 4), (2, 0, 0, 0))
    assert part.offset0 == 960
    assert part.is_dense
    assert part.nbytes == (960 + 480) * 4
    assert part.padded_dims == (1, 24, 5, 4)


def test_a_slice_inside_a_block_claims_no_padding() -> None:
    part = MemoryDesc((1, 16, 2, 2), "f32", "nChw16c").submemory((1, 5, 2, 2), (0, 0, 0, 0))
    assert part.padded_dims == part.dims
    assert part.n_padding == 0
    assert not part.is_dense
    assert part.canonical_tag is None
    assert MemoryDesc.from_dict(part.to_dict()) == part


def test_flattening_pixels_of_a_blocked_tensor_moves_no_byte() -> None:
    desc = MemoryDesc((2, 32, 4, 5), "f32", "nChw16c")
    assert desc.reshaped((2, 32, 20)).tag == "aBc16b"
    assert desc.reshaped((2, 32, 4, 5, 1)).canonical_tag == "aBcde16b"
    assert MemoryDesc((2, 32, 1, 1), "f32", "nChw16c").reshaped((2, 32)).canonical_tag == "aB16b"
    assert MemoryDesc((2, 32, 1, 1), "f32", "nhwc").reshaped((2, 32)).physically_equal(MemoryDesc((2, 32)))


def test_big_endian_and_foreign_strides_pack_to_right_values() -> None:
    desc = MemoryDesc((2, 3, 2, 2), "f32", "nChw8c")
    array = np.arange(24, dtype=">f4").reshape(2, 2, 2, 3).transpose(0, 3, 1, 2)[:, :, ::-1]
    np.testing.assert_array_equal(desc.unpack(desc.pack(array)), array)
