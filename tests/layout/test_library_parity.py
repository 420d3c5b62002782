"""The library judges: names, padding, strides, blocks, sizes and bytes, for every tag it has."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.dtypes import ITEMSIZES
from blocklayout.errors import DnnlError, LayoutError
from blocklayout.layout import FormatTag, MemoryDesc
from tests.layout import reference, strategies

if TYPE_CHECKING:
    from blocklayout.dnnl.handles import Handle

TAGS = reference.known_tags()

pytestmark = pytest.mark.usefixtures("library")


@pytest.fixture(scope="module")
def library() -> None:
    reference.need_library()


def dims_for(tag: FormatTag) -> tuple[int, ...]:
    """Extents that leave padding in every blocked dimension, small so that hundreds of tags take seconds."""
    blocks = [1] * tag.ndims
    for blk, idx in zip(tag.inner_blks, tag.inner_idxs, strict=True):
        blocks[idx] *= blk
    return tuple(block + 3 if block > 1 else (2, 3, 1)[dim % 3] for dim, block in enumerate(blocks))


def test_the_library_has_hundreds_of_tags() -> None:
    assert len(TAGS) > 700


@pytest.mark.parametrize("first", "abcdABCD")
def test_every_name_of_the_library_is_its_own_canonical_name(first: str) -> None:
    names = [name for name in TAGS if name.startswith(first)]
    assert [FormatTag.parse(name).canonical for name in names] == names


@pytest.mark.parametrize("dtype", ITEMSIZES)
def test_descriptors_of_every_tag_answer_as_the_library_does(dtype: str) -> None:
    for name in TAGS:
        tag = FormatTag.parse(name)
        for dims in (dims_for(tag), (1,) * tag.ndims, (0,) + (2,) * (tag.ndims - 1)):
            desc = MemoryDesc(dims, dtype, name)
            assert reference.own_facts(desc) == reference.facts(reference.from_tag(dims, dtype, name)), (name, dims)


@pytest.mark.parametrize("part", range(8))
def test_pack_writes_the_bytes_that_a_reorder_to_every_tag_writes(part: int) -> None:
    for name in TAGS[part::8]:
        tag = FormatTag.parse(name)
        dims = dims_for(tag)
        desc = MemoryDesc(dims, "f32", name)
        array = np.arange(1, prod(dims) + 1, dtype=np.float32).reshape(dims)
        plain = reference.from_strides(dims, "f32", MemoryDesc(dims).strides)
        theirs = reference.reordered(plain, array, reference.from_tag(dims, "f32", name), array.dtype)
        ours = desc.pack(array)
        assert ours.tobytes() == theirs.tobytes(), name
        np.testing.assert_array_equal(desc.unpack(theirs), array)


@pytest.mark.parametrize("dtype", ["u8", "s8", "s32", "bf16"])
def test_pack_writes_the_bytes_of_a_reorder_in_other_data_types(dtype: str) -> None:
    desc = MemoryDesc((2, 17, 3, 2), dtype, "nChw16c")
    array = strategies.numbered(desc)
    plain = reference.from_strides(desc.dims, dtype, MemoryDesc(desc.dims).strides)
    target = reference.from_tag(desc.dims, dtype, "aBcd16b")
    theirs = reference.reordered(plain, array, target, array.dtype)
    assert desc.pack(array).tobytes() == theirs.tobytes()


@settings(deadline=None)
@given(strategies.strided_descs())
def test_strided_descriptors_answer_as_the_library_does(desc: MemoryDesc) -> None:
    if not desc.is_plain:
        return
    desc = MemoryDesc(desc.dims, desc.dtype, strides=desc.strides)
    assert reference.own_facts(desc) == reference.facts(reference.from_strides(desc.dims, "f32", desc.strides))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_strides_that_the_library_refuses_are_refused(data: st.DataObject) -> None:
    ndims = data.draw(st.integers(1, 4))
    dims = tuple(data.draw(st.lists(st.integers(0, 4), min_size=ndims, max_size=ndims)))
    strides = tuple(data.draw(st.lists(st.integers(0, 12), min_size=ndims, max_size=ndims)))
    try:
        theirs: Handle | None = reference.from_strides(dims, "f32", strides)
    except DnnlError:
        theirs = None
    try:
        ours: MemoryDesc | None = MemoryDesc(dims, strides=strides)
    except ValueError:
        ours = None
    assert (ours is None) == (theirs is None)
    if ours and theirs and not ours.repeats:
        assert reference.own_facts(ours) == reference.facts(theirs)


BLOCKED = ["nChw16c", "nchw", "nhwc", "aBcd8b", "ABcd16b16a", "OIhw4i16o4i", "Acdb16a", "gOIhw8i8o", "tnc", "BA16a16b"]


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(BLOCKED), st.data())
def test_sub_memory_is_the_librarys(name: str, data: st.DataObject) -> None:
    tag = FormatTag.parse(name)
    dims = data.draw(st.tuples(*[st.sampled_from([1, 2, 5, 16, 33]) for _ in range(tag.ndims)]))
    offsets = tuple(data.draw(st.sampled_from([0, 0, 8, 16])) for _ in dims)
    part = tuple(data.draw(st.integers(0, n)) for n in dims)
    whole = MemoryDesc(dims, "f32", name)
    try:
        theirs = reference.submemory(reference.from_tag(dims, "f32", tag.canonical), part, offsets)
    except DnnlError:
        with pytest.raises(ValueError, match="slice"):
            whole.submemory(part, offsets)
        return
    if 0 in part:
        assert whole.submemory(part, offsets).nbytes == 0
        return
    ours = reference.own_facts(whole.submemory(part, offsets))
    their_facts = reference.facts(theirs)
    assert (ours.padded_dims, ours.strides, ours.offset) == (
        their_facts.padded_dims,
        their_facts.strides,
        their_facts.offset,
    )


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(BLOCKED), st.data())
def test_whatever_the_library_reshapes_is_reshaped_to_the_same_addresses(name: str, data: st.DataObject) -> None:
    tag = FormatTag.parse(name)
    dims = data.draw(st.tuples(*[st.sampled_from([1, 1, 2, 3, 16]) for _ in range(tag.ndims)]))
    target = data.draw(st.sampled_from(_regroupings(dims)))
    try:
        theirs = reference.facts(reference.reshaped(reference.from_tag(dims, "f32", tag.canonical), target))
    except DnnlError:
        return
    if not _can_exist(theirs):
        with pytest.raises(LayoutError, match="is blocked"):
            MemoryDesc(dims, "f32", name).reshaped(target)
        return
    ours = MemoryDesc(dims, "f32", name).reshaped(target)
    assert (ours.inner_blks, ours.inner_idxs) == (theirs.inner_blks, theirs.inner_idxs)
    assert (ours.padded_dims, ours.nbytes) == (theirs.padded_dims, theirs.nbytes)
    assert all(a == b for a, b, n in zip(ours.strides, theirs.strides, ours.placement.outer_dims, strict=True) if n > 1)


def test_a_block_is_not_forgotten_between_dimensions_that_join() -> None:
    theirs = reference.facts(reference.reshaped(reference.from_tag((2, 1, 1, 2), "f32", "aBcd16b"), (4,)))
    assert not _can_exist(theirs)
    with pytest.raises(LayoutError, match="is blocked"):
        MemoryDesc((2, 1, 1, 2), "f32", "aBcd16b").reshaped((4,))


def _can_exist(facts: reference.Facts) -> bool:
    """Whether every block lies along a dimension; 3.2 loses one that it merges with its neighbours."""
    blocks = zip(facts.inner_idxs, facts.inner_blks, strict=True)
    return all(dim < len(facts.padded_dims) and facts.padded_dims[dim] % block == 0 for dim, block in blocks)


def _regroupings(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    joined = [(*dims[:i], dims[i] * dims[i + 1], *dims[i + 2 :]) for i in range(len(dims) - 1)]
    without_ones = tuple(n for n in dims if n > 1) or (1,)
    return [(*dims, 1), (1, *dims), without_ones, (prod(dims),), *joined]


@settings(deadline=None)
@given(st.sampled_from(BLOCKED), st.data())
def test_permuted_is_the_librarys_with_the_inverse_permutation(name: str, data: st.DataObject) -> None:
    tag = FormatTag.parse(name)
    dims = (2, 17, 3, 5, 4)[: tag.ndims]
    perm = data.draw(st.permutations(range(tag.ndims)))
    inverse = tuple(int(axis) for axis in np.argsort(perm))
    theirs = reference.permuted(reference.from_tag(dims, "f32", tag.canonical), inverse)
    assert reference.own_facts(MemoryDesc(dims, "f32", name).permuted(perm)) == reference.facts(theirs)
