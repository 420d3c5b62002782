"""Descriptors survive the way to C and back, and mean there what they mean here."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout import dnnl
from blocklayout.dnnl import AnyDesc, c_desc, enums, library, live_handles, primitive_desc
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.handles import create
from blocklayout.errors import UnsupportedError
from blocklayout.layout import FormatTag, Layout, MemoryDesc
from tests.dnnl.caches import clear_descs

EXTENTS = st.sampled_from((1, 2, 3, 5, 8, 16, 17, 32))


def from_c(c_descriptor: Any) -> AnyDesc | MemoryDesc | None:
    return c_desc.of_record(c_desc.record_of(c_descriptor))


def there_and_back(desc: MemoryDesc) -> MemoryDesc:
    found = from_c(c_desc.to_c(desc).c)
    assert isinstance(found, MemoryDesc)
    return found


@st.composite
def tagged(draw: st.DrawFn, *, blocked: bool = False) -> MemoryDesc:
    names = [name for name in library.fmt_tag_names()[2:] if not (blocked and name.islower())]
    tag = FormatTag.parse(draw(st.sampled_from(names)))
    dims = draw(st.tuples(*[EXTENTS if tag.ndims <= 6 else st.sampled_from((1, 2, 3))] * tag.ndims))
    return MemoryDesc(dims, draw(st.sampled_from(("f32", "bf16", "s8"))), tag)


@st.composite
def parts(draw: st.DrawFn) -> MemoryDesc:
    """Boxes that start at block borders and end at one, at the far end, or inside their only block."""
    whole = draw(tagged(blocked=True))
    dims, offsets = [], []
    for extent, block in zip(whole.dims, whole.layout.blocks, strict=True):
        offset = draw(st.integers(0, (extent - 1) // block)) * block
        n_blocks = draw(st.integers(1, -(-(extent - offset) // block)))
        inside_one_block = draw(st.integers(1, block))
        length = draw(st.sampled_from((n_blocks * block, inside_one_block)))
        dims.append(min(length, extent - offset))
        offsets.append(offset)
    return whole.submemory(dims, offsets)


@given(tagged())
@settings(deadline=None, max_examples=200)
def test_a_tag_means_the_same_on_both_sides(desc: MemoryDesc) -> None:
    found = there_and_back(desc)
    assert found.physically_equal(desc)
    assert found.dtype == desc.dtype
    assert library.load().dnnl_memory_desc_get_size(c_desc.to_c(desc).c) == desc.nbytes


def test_every_tag_of_the_library_has_our_strides() -> None:
    c_library = library.load()
    for number, name in enumerate(library.fmt_tag_names()):
        if number < 2:
            continue
        tag = FormatTag.parse(name)
        dims = tuple(17 + dim if tag.ndims < 7 else 2 for dim in range(tag.ndims))
        assert there_and_back(MemoryDesc(dims, "f32", tag)) == MemoryDesc(dims, "f32", tag), name
        c_dims = c_desc.c_dims(dims)
        handle = create("memory_desc", "dnnl_memory_desc_create_with_tag", len(dims), c_dims, 3, number)
        assert from_c(handle.c) == MemoryDesc(dims, "f32", tag), name
        same = c_desc.to_c(MemoryDesc(dims, "f32", tag))
        assert c_library.dnnl_memory_desc_equal(handle.c, same.c), name


@given(parts())
@settings(deadline=None, max_examples=200)
def test_a_part_of_a_blocked_tensor_keeps_its_strides(desc: MemoryDesc) -> None:
    try:
        found = there_and_back(desc)
    except UnsupportedError:
        assert any(extent % block for extent, block in zip(desc.dims, desc.layout.blocks, strict=True))
        return
    assert (found.dims, found.padded_dims) == (desc.dims, desc.padded_dims)
    assert (found.inner_blks, found.inner_idxs) == (desc.inner_blks, desc.inner_idxs)
    for dim in range(desc.ndims):
        if desc.dims[dim] > desc.layout.blocks[dim]:
            assert found.strides[dim] == desc.strides[dim]


@pytest.mark.parametrize("strides", [(24, 8, 2), (1, 2, 6), (100, 10, 1), (0, 4, 1), (0, 0, 0)])
def test_plain_strides_are_kept(strides: tuple[int, ...]) -> None:
    desc = MemoryDesc((2, 3, 4), "f32", strides=strides)
    assert there_and_back(desc).strides == strides


def test_an_offset_is_left_to_the_address() -> None:
    part = MemoryDesc((2, 32, 4, 4), "f32", "nChw16c").submemory((2, 16, 4, 4), (0, 16, 0, 0))
    assert part.offset0 == 256
    assert there_and_back(part).offset0 == 0
    assert there_and_back(part).strides == part.strides


def test_no_elements() -> None:
    desc = MemoryDesc((0, 16, 4, 4), "f32", "nChw8c")
    assert there_and_back(desc).dims == (0, 16, 4, 4)


@pytest.mark.parametrize(("dims", "axes"), [((17, 19, 3, 3), (1, 0, 2, 3)), ((2, 17, 19, 1, 1), (0, 2, 1, 3, 4))])
def test_weights_turned_around_are_made_by_way_of_their_tag(dims: tuple[int, ...], axes: tuple[int, ...]) -> None:
    tag = "ABcd8b8a" if len(dims) == 4 else "aBCde8c8b"
    turned = MemoryDesc(dims, "f32", tag).permuted(axes)
    assert from_c(c_desc.to_c(turned).c) == turned


def test_blocks_no_tag_has_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="inner blocks of"):
        c_desc.to_c(MemoryDesc((4, 7, 2, 2), "f32", Layout((28, 28, 14, 7), (7,), (1,))))


def test_steps_no_dense_parent_has_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="copy it into a dense layout"):
        c_desc.to_c(MemoryDesc((4, 8, 2, 2), "f32", Layout((100, 100, 16, 8), (8,), (1,))))


def test_any_stays_any() -> None:
    assert from_c(c_desc.to_c(AnyDesc((2, 3), "bf16")).c) == AnyDesc((2, 3), "bf16")


def test_nothing_is_none() -> None:
    assert from_c(ffi.NULL) is None


def test_chosen_layouts_keep_strides_that_take_no_step() -> None:
    descs = [MemoryDesc((1, 16, 1, 1), "f32", layout) for layout in ("nchw", "nhwc")]
    c_descs = [c_desc.to_c(desc).c for desc in descs]
    assert library.load().dnnl_memory_desc_equal(*c_descs)
    found = [c_desc.in_role(c_desc.record_of(each), "src") for each in c_descs]
    assert [desc.strides for desc in found if desc is not None] == [desc.strides for desc in descs]


def test_our_own_c_reads_descriptors_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    src, weights = MemoryDesc((1, 16, 8, 8), "f32", "nChw8c"), AnyDesc((24, 16, 3, 3), "f32")
    pd = primitive_desc.create_pd(dnnl.convolution(src, weights, AnyDesc((1, 24, 8, 8), "f32"), pads=1, n_threads=1))
    c_args = ffi.new("int[]", [enums.argument(name) for name in ("src", "weights", "bias", "dst")])
    by_c = c_desc.describe(pd.c, c_args)
    monkeypatch.setattr(c_desc, "native", lambda: None)
    assert c_desc.describe(pd.c, c_args) == by_c
    assert c_desc.of_record(by_c[0][0]) == src


def test_a_cached_descriptor_is_made_once_and_let_go() -> None:
    clear_descs()
    gc.collect()
    before = live_handles()["memory_desc"]
    desc = MemoryDesc((2, 3, 4, 5), "f32", "nhwc")
    assert c_desc.to_c(desc) is c_desc.to_c(MemoryDesc((2, 3, 4, 5), "f32", "acdb"))
    assert live_handles()["memory_desc"] == before + 1
    clear_descs()
    gc.collect()
    assert live_handles()["memory_desc"] == before
