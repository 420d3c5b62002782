"""Format tags in both alphabets."""

from __future__ import annotations

import pickle

import pytest

from blocklayout.errors import LayoutError
from blocklayout.layout import FormatTag, MemoryDesc

# Aliases of dnnl_format_tag_t, one of every kind. Source: oneapi/dnnl/dnnl_types.h, oneDNN v3.2.
ALIASES = {
    "x": "a",
    "nc": "ab",
    "cn": "ba",
    "tn": "ab",
    "nt": "ba",
    "nwc": "acb",
    "nchw": "abcd",
    "nhwc": "acdb",
    "chwn": "bcda",
    "ncdhw": "abcde",
    "ndhwc": "acdeb",
    "oi": "ab",
    "io": "ba",
    "wio": "cba",
    "hwio": "cdba",
    "ohwi": "acdb",
    "ihwo": "bcda",
    "iohw": "bacd",
    "odhwi": "acdeb",
    "goiw": "abcd",
    "wigo": "dcab",
    "gohwi": "abdec",
    "giohw": "acbde",
    "dhwigo": "defcab",
    "tnc": "abc",
    "ntc": "bac",
    "ldnc": "abcd",
    "ldigo": "abcde",
    "ldgoi": "abdec",
    "ldio": "abcd",
    "ldoi": "abdc",
    "ldgo": "abcd",
    "ldOi16o": "abDc16d",
    "ldgOI32o4i": "abdEC32e4c",
    "ldgIO32i2o": "abdCE32c2e",
    "nCdhw32c": "aBcde32b",
    "nChw8c": "aBcd8b",
    "nCw16c": "aBc16b",
    "NChw32n16c": "ABcd32a16b",
    "NCw2c32n8c": "ABc2b32a8b",
    "OI8i8o2i": "AB8b8a2b",
    "Owi16o": "Acb16a",
    "OIhw16i16o": "ABcd16b16a",
    "OIhw4i16o4i": "ABcd4b16a4b",
    "IOdhw4i8o8i4o": "BAcde4b8a8b4a",
    "Goihw16g": "Abcde16a",
    "gOIhw8i8o": "aBCde8c8b",
    "gIdhwO16o64i4o": "aCdefB16b64c4b",
    "hwioG16g": "decbA16a",
}

IRREGULAR = {
    "OhwI24o": "Acdb24a",
    "OhwI32o": "Acdb32a",
    "gOhwI24o": "aBdec24b",
    "gOhwI32o": "aBdec32b",
    "gIOhw2i8o16i2o": "aBCde2c8b16c2b",
    "gIOdhw2i8o16i2o": "aBCdef2c8b16c2b",
}


@pytest.mark.parametrize(("alias", "letters"), (ALIASES | IRREGULAR).items())
def test_an_alias_means_what_the_header_says(alias: str, letters: str) -> None:
    tag = FormatTag.parse(alias)
    assert tag.canonical == letters
    assert tag.text == str(tag) == alias
    assert tag == FormatTag.parse(letters)


@pytest.mark.parametrize("alias", ALIASES)
def test_a_regular_alias_is_spelled_from_its_parts(alias: str) -> None:
    tag = FormatTag.parse(alias)
    assert FormatTag(tag.order, tag.inner_blks, tag.inner_idxs).spelled(tag.alphabet) == alias


def test_a_tag_is_named_by_role() -> None:
    tag = FormatTag.parse("aBcd16b")
    assert [tag.named(role) for role in ("src", "dst", "src_1", "weights")] == ["nChw16c"] * 3 + ["oIhw16i"]
    assert FormatTag.parse("aBCde8c8b").named("grouped_weights") == "gOIhw8i8o"
    assert FormatTag.parse("abcdefg").named("src") == "abcdefg"
    assert FormatTag.parse("a").named("bias") == "x"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("nchw16c", "spelled 'nChw16c'"),
        ("NCHW", "spelled 'nchw'"),
        ("nChw", "spelled 'nchw'"),
        ("nChw16", "did you mean nChw16c"),
        ("nhcw16x", "did you mean"),
        ("nChw16o", "a block names a dimension that the tag lacks"),
        ("nchhw", "did you mean n"),
        ("oihww", "did you mean oi"),
        ("acd", "no format tag"),
        ("bcd", "no format tag"),
        ("", "tags look like"),
        ("!", "tags look like"),
        ("any", "no format tag"),
        ("nChw016c", "did you mean nChw16c"),
        ("nChw1c", "blocks have 2 or more"),
        ("abcdefghijklm", "no format tag"),
    ],
)
def test_an_unknown_tag_is_refused_with_the_closest_ones(text: str, hint: str) -> None:
    with pytest.raises(LayoutError, match=hint):
        FormatTag.parse(text)


@pytest.mark.parametrize(
    ("order", "blks", "idxs"),
    [
        ((), (), ()),
        ((0, 0), (), ()),
        ((1, 2), (), ()),
        (tuple(range(13)), (), ()),
        ((0, 1), (8,), ()),
        ((0, 1), (8,), (2,)),
        ((0, 1), (8,), (-1,)),
        ((0, 1), (0,), (1,)),
        ((0,), (2,) * 13, (0,) * 13),
    ],
)
def test_a_tag_that_cannot_exist_is_refused(
    order: tuple[int, ...], blks: tuple[int, ...], idxs: tuple[int, ...]
) -> None:
    with pytest.raises(LayoutError):
        FormatTag(order, blks, idxs)


def test_a_descriptor_prints_in_the_alphabet_it_was_given() -> None:
    dims = (64, 64, 3, 3)
    assert [MemoryDesc(dims, "f32", name).tag for name in ("ABcd16b16a", "OIhw16i16o")] == ["ABcd16b16a", "OIhw16i16o"]
    assert [MemoryDesc(dims, "f32", FormatTag.parse(name)).tag for name in ("abcd", "nchw", "oihw")] == [
        "abcd",
        "nchw",
        "oihw",
    ]
    assert str(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")) == "f32 2x17x5x4 nChw8c"


def test_what_came_without_a_spelling_prints_by_its_role_or_in_letters() -> None:
    queried = MemoryDesc((64, 64, 3, 3), "f32", MemoryDesc((64, 64, 3, 3), "f32", "OIhw16i16o").layout)
    assert queried.tag == "ABcd16b16a"
    assert queried.in_role("weights").tag == "OIhw16i16o"
    assert queried.in_role("weights") == queried
    assert queried.in_role("weights").with_dtype("bf16").tag == "OIhw16i16o"
    assert queried.in_role("weights").resized((16, 16, 1, 1)).tag == "OIhw16i16o"


def test_equal_descriptors_keep_their_own_names() -> None:
    one, other = MemoryDesc((2, 3, 4, 5), "f32", "nchw"), MemoryDesc((2, 3, 4, 5), "f32", "oihw")
    assert one == other
    assert hash(one) == hash(other)
    assert {one, other} == {one}
    assert [desc.with_dtype("u8").tag for desc in (one, other)] == ["nchw", "oihw"]
    assert [desc.resized((1, 3, 4, 5)).tag for desc in (one, other)] == ["nchw", "oihw"]


@pytest.mark.parametrize(("ndims", "first", "last"), [(3, "ncw", "nwc"), (4, "nchw", "nhwc"), (5, "ncdhw", "ndhwc")])
def test_channels_first_and_last_by_rank(ndims: int, first: str, last: str) -> None:
    dims = (2, 3, 4, 5, 6)[:ndims]
    assert MemoryDesc(dims, "f32", "channels_first").tag == first
    assert MemoryDesc(dims, "f32", "channels_last").tag == last


def test_a_matrix_has_no_channels() -> None:
    for name in ("channels_first", "channels_last"):
        with pytest.raises(LayoutError, match="3 to 5 dimensions"):
            MemoryDesc((2, 3), "f32", name)
    assert MemoryDesc((2, 3), "f32", "contiguous_format").is_contiguous()


def test_a_descriptor_says_what_it_is_called_where_strides_cannot() -> None:
    one, other = (MemoryDesc((1, 1, 1, 1), "f32", tag) for tag in ("nchw", "nhwc"))
    assert one == other
    assert [desc.memory_format for desc in (one, other)] == ["contiguous_format", "channels_last"]
    assert [desc.permuted((0, 2, 3, 1)).memory_format for desc in (one, other)] == ["adbc", "contiguous_format"]
    assert [desc.with_dtype("u8").memory_format for desc in (one, other)] == ["contiguous_format", "channels_last"]
    assert [desc.permuted((0, 1, 2, 3)).tag for desc in (one, other)] == ["nchw", "nhwc"]


def test_a_part_is_called_after_its_whole() -> None:
    whole = MemoryDesc((4, 1, 1, 1), "f32", "nhwc")
    part = whole.submemory((2, 1, 1, 1), (1, 0, 0, 0))
    assert (part.tag, part.canonical_tag, part.memory_format, part.offset0) == ("nhwc", "acdb", "channels_last", 1)
    assert part.with_dtype("u8").memory_format == "channels_last"
    holed = MemoryDesc((2, 8, 4, 4), "f32", "nhwc").submemory((2, 3, 4, 4), (0, 0, 0, 0))
    assert (holed.canonical_tag, holed.tag) == (None, "strided(128,1,32,8)")
    assert (holed.memory_format, holed.format_tag.text) == ("channels_last", "nhwc")
    assert holed.resized((2, 3, 4, 4)).tag == "nhwc"
    for desc in (part, holed, holed.permuted((1, 0, 2, 3))):
        for again in (MemoryDesc.from_dict(desc.to_dict()), pickle.loads(pickle.dumps(desc))):
            assert again == desc
            assert again.format_tag == desc.format_tag
    assert MemoryDesc((2, 3), strides=(7, 1)).memory_format == "strided(7,1)"


def test_a_format_of_other_blocks_is_no_name() -> None:
    data = MemoryDesc((2, 3), strides=(7, 1)).to_dict()
    for name in ("aB8b", "abc", 3):
        with pytest.raises(LayoutError, match="must name the dimensions and blocks"):
            MemoryDesc.from_dict({**data, "format": name})
    assert MemoryDesc.from_dict({**data, "format": "ba"}).memory_format == "ba"
