"""What holds for every descriptor."""

from __future__ import annotations

import json
import pickle
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.dtypes import to_numpy
from blocklayout.layout import FormatTag, MemoryDesc
from tests.layout import strategies

if TYPE_CHECKING:
    from blocklayout.layout import Layout

unhurried = settings(deadline=None)  # what else the machine does is no property of layouts


@unhurried
@given(strategies.tags())
def test_a_tag_survives_its_spelling(tag: FormatTag) -> None:
    for text in (tag.canonical, tag.named("src"), tag.named("weights"), tag.named("grouped_weights")):
        again = FormatTag.parse(text)
        assert again == tag
        assert again.text == text


@unhurried
@given(strategies.descs())
def test_offset_is_one_to_one_and_index_undoes_it(desc: MemoryDesc) -> None:
    offsets = desc.offsets()
    assert len(np.unique(offsets)) == desc.n_elements
    found = {index: desc.offset(*index) for index in product(*map(range, desc.dims))}
    assert all(offsets[index] == offset for index, offset in found.items())
    by_offset = {offset: index for index, offset in found.items()}
    for offset in range(desc.nbytes // desc.itemsize):
        assert desc.index(offset) == by_offset.get(offset)


@unhurried
@given(strategies.descs())
def test_every_element_and_its_padding_lie_within_nbytes(desc: MemoryDesc) -> None:
    assert desc.offset0 <= desc.offsets().min()
    assert desc.placement.last_address() < desc.nbytes // desc.itemsize


@unhurried
@given(strategies.descs(), strategies.DTYPES)
def test_unpack_undoes_pack_and_the_rest_is_zero(desc: MemoryDesc, dtype: str) -> None:
    desc = desc.with_dtype(dtype)
    array = strategies.numbered(desc)
    buffer = desc.pack(array)
    assert buffer.dtype == to_numpy(dtype)
    assert buffer.shape == (desc.nbytes // desc.itemsize,)
    np.testing.assert_array_equal(desc.unpack(buffer), array)
    np.testing.assert_array_equal(desc.unpack(buffer.view(np.uint8)), array)
    np.testing.assert_array_equal(buffer[desc.offsets()], array)
    buffer[desc.offsets()] = 0
    assert not buffer.view(np.uint8).any()


@unhurried
@given(strategies.descs(), st.randoms(use_true_random=False))
def test_permuted_reads_the_same_bytes_as_numpys_transpose(desc: MemoryDesc, random: object) -> None:
    perm = list(range(desc.ndims))
    random.shuffle(perm)  # type: ignore[attr-defined]
    buffer = strategies.numbered_buffer(desc)
    view = desc.permuted(perm)
    assert view.nbytes == desc.nbytes
    np.testing.assert_array_equal(view.unpack(buffer), desc.unpack(buffer).transpose(perm))
    assert view.permuted(np.argsort(perm)) == desc


@unhurried
@given(strategies.descs(), st.data())
def test_submemory_reads_the_same_bytes_as_a_slice(desc: MemoryDesc, data: st.DataObject) -> None:
    starts = [data.draw(st.sampled_from(range(0, n, b))) for n, b in zip(desc.dims, desc.layout.blocks, strict=True)]
    dims = [n - start for n, start in zip(desc.dims, starts, strict=True)]
    part = desc.submemory(dims, starts)
    assert part.nbytes <= desc.nbytes
    buffer = strategies.numbered_buffer(desc)
    box = tuple(slice(start, None) for start in starts)
    np.testing.assert_array_equal(part.unpack(buffer), desc.unpack(buffer)[box])


@unhurried
@given(strategies.descs(), st.data())
def test_reshaped_reads_the_same_bytes_as_numpys_reshape(desc: MemoryDesc, data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from(_regroupings(desc.dims)))
    try:
        view = desc.reshaped(dims)
    except ValueError:
        return
    assert view.dims == dims
    assert view.nbytes == desc.nbytes or 0 in dims or not desc.is_dense
    buffer = strategies.numbered_buffer(desc)
    np.testing.assert_array_equal(view.unpack(buffer), desc.unpack(buffer).reshape(dims))


@unhurried
@given(strategies.strided_descs(), st.data())
def test_a_plain_layout_reshapes_wherever_numpy_needs_no_copy(desc: MemoryDesc, data: st.DataObject) -> None:
    dims = data.draw(st.sampled_from(_regroupings(desc.dims)))
    if not desc.is_plain:
        return
    whole = np.zeros(desc.nbytes // desc.itemsize, np.float32)[desc.offset0 :]
    array = np.lib.stride_tricks.as_strided(whole, desc.dims, [4 * stride for stride in desc.strides])
    needs_copy = not np.shares_memory(array.reshape(dims), array)
    try:
        desc.reshaped(dims)
    except ValueError:
        assert needs_copy
    else:
        assert not needs_copy


def _regroupings(dims: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Some shapes with as many elements: neighbours joined, ones dropped and added."""
    found = {dims, tuple(n for n in dims if n != 1) or (1,), (int(np.prod(dims)),), (1, *dims), (*dims, 1)}
    found |= {(*dims[:i], dims[i] * dims[i + 1], *dims[i + 2 :]) for i in range(len(dims) - 1)}
    found |= {(*dims[:i], 1, *dims[i:]) for i in range(len(dims))}
    return sorted(found)


@unhurried
@given(strategies.descs())
def test_a_descriptor_survives_json_and_pickle(desc: MemoryDesc) -> None:
    again = MemoryDesc.from_dict(json.loads(json.dumps(desc.to_dict())))
    assert again == desc
    assert hash(again) == hash(desc)
    assert again.tag == desc.tag
    assert pickle.loads(pickle.dumps(desc)) == desc


@unhurried
@given(strategies.descs())
def test_a_canonical_tag_gives_the_same_addresses(desc: MemoryDesc) -> None:
    if desc.canonical_tag is None:
        return
    again = MemoryDesc(desc.dims, desc.dtype, desc.canonical_tag, offset=desc.offset0)
    assert again.physically_equal(desc)


@unhurried
@given(strategies.dense_descs())
def test_strides_alone_tell_the_tag(desc: MemoryDesc) -> None:
    unnamed = MemoryDesc(desc.dims, desc.dtype, desc.layout)
    assert unnamed == desc
    assert unnamed.canonical_tag is not None
    assert MemoryDesc(desc.dims, desc.dtype, unnamed.canonical_tag).physically_equal(desc)


@unhurried
@given(strategies.dense_descs(), st.data())
def test_resized_keeps_the_order_and_the_blocks(desc: MemoryDesc, data: st.DataObject) -> None:
    dims = data.draw(strategies.extents(desc.ndims, least=0))
    other = desc.resized(dims, "u8")
    assert (other.dims, other.dtype, other.dim_order) == (dims, "u8", desc.dim_order)
    assert other.is_dense
    dropped = {i for i in desc.inner_idxs if dims[i] == 1 and desc.dims[i] != 1}
    assert set(other.inner_idxs) == set(desc.inner_idxs) - dropped


def padding_addresses(desc: MemoryDesc) -> set[int]:
    box = np.ones(desc.padded_dims, dtype=bool)
    box[tuple(slice(n) for n in desc.dims)] = False
    return {_address(desc.layout, index) + desc.offset0 for index in zip(*map(list, np.nonzero(box)), strict=True)}


def _address(layout: Layout, index: tuple[int, ...]) -> int:
    """The definition, digit by digit, with none of the code under test."""
    rest = [int(position) for position in index]
    total, step = 0, 1
    for blk, idx in reversed(list(zip(layout.inner_blks, layout.inner_idxs, strict=True))):
        total += rest[idx] % blk * step
        rest[idx] //= blk
        step *= blk
    return total + sum(position * stride for position, stride in zip(rest, layout.strides, strict=True))


@unhurried
@given(strategies.pairs())
def test_physically_equal_is_the_same_addresses_and_the_same_size(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    one, other = pair
    alike = bool((one.offsets() == other.offsets()).all())
    assert one.physically_equal(other) == (alike and one.nbytes == other.nbytes)
    assert one.physically_equal(other) == other.physically_equal(one)


@unhurried
@given(strategies.pairs())
def test_readable_as_wants_the_same_addresses_and_zeros_wherever_they_are_expected(
    pair: tuple[MemoryDesc, MemoryDesc],
) -> None:
    one, other = pair
    alike = bool((one.offsets() == other.offsets()).all())
    zeros_where_expected = padding_addresses(other) <= padding_addresses(one)
    allowed = alike and one.nbytes >= other.nbytes and zeros_where_expected
    if one.is_dense or not other.n_padding:
        assert one.readable_as(other) == allowed
    elif one.readable_as(other):
        assert allowed


@unhurried
@given(strategies.pairs())
def test_what_is_readable_reads_the_same_values_and_zero_padding(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    one, other = pair
    if not one.readable_as(other):
        return
    array = strategies.numbered(one)
    buffer = one.pack(array)[: other.nbytes // other.itemsize]
    np.testing.assert_array_equal(other.unpack(buffer), array)
    assert all(buffer[address] == 0 for address in padding_addresses(other))


@unhurried
@given(strategies.pairs())
def test_equal_descriptors_hash_alike_and_are_physically_equal(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    one, other = pair
    if one == other:
        assert hash(one) == hash(other)
        assert one.physically_equal(other)
        assert one.readable_as(other)


@unhurried
@given(strategies.descs())
def test_dense_means_that_elements_and_padding_fill_the_bytes(desc: MemoryDesc) -> None:
    n_used = desc.n_elements + len(padding_addresses(desc))
    assert desc.is_dense == (n_used == desc.nbytes // desc.itemsize - desc.offset0)
