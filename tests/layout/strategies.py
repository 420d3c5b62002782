"""Descriptors and arrays for the laws of layouts to hold for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from blocklayout.dtypes import ITEMSIZES, to_numpy
from blocklayout.layout import FormatTag, Layout, MemoryDesc

if TYPE_CHECKING:
    from numpy.typing import NDArray

DTYPES = st.sampled_from(sorted(ITEMSIZES))


@st.composite
def tags(draw: st.DrawFn, ndims: int | None = None) -> FormatTag:
    """Any order of up to six dimensions with up to four blocks, repeated dimensions included."""
    n = draw(st.integers(1, 6)) if ndims is None else ndims
    order = tuple(draw(st.permutations(range(n))))
    idxs = draw(st.lists(st.integers(0, n - 1), max_size=4))
    blks = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=len(idxs), max_size=len(idxs)))
    return FormatTag(order, tuple(blks), tuple(idxs))


def extents(ndims: int, least: int = 1) -> st.SearchStrategy[tuple[int, ...]]:
    """Small extents; many of them 1, where layouts coincide."""
    return st.tuples(*[st.sampled_from([least, 1, 1, 2, 3, 5]) for _ in range(ndims)])


@st.composite
def dense_descs(draw: st.DrawFn, dtype: str = "f32", least: int = 1) -> MemoryDesc:
    """Descriptors made from tags."""
    tag = draw(tags())
    return MemoryDesc(draw(extents(tag.ndims, least)), dtype, tag)


@st.composite
def strided_descs(draw: st.DrawFn, dtype: str = "f32") -> MemoryDesc:
    """Descriptors with gaps between elements or blocks, and with offsets."""
    tag = draw(tags())
    dims = draw(extents(tag.ndims))
    blocks = Layout((0,) * tag.ndims, tag.inner_blks, tag.inner_idxs).blocks
    strides = [0] * tag.ndims
    step = int(np.prod(tag.inner_blks, dtype=int))
    for dim in reversed(tag.order):
        step *= draw(st.sampled_from([1, 1, 1, 2]))
        step += draw(st.sampled_from([0, 0, 0, 1]))
        strides[dim] = step
        step *= -(-dims[dim] // blocks[dim])
    layout = Layout(tuple(strides), tag.inner_blks, tag.inner_idxs)
    return MemoryDesc(dims, dtype, layout, offset=draw(st.sampled_from([0, 0, 1, 7])))


@st.composite
def parts(draw: st.DrawFn) -> MemoryDesc:
    """Sub-memories of dense descriptors, those that end inside a block included."""
    whole = draw(dense_descs())
    dims: list[int] = []
    offsets: list[int] = []
    for extent, block in zip(whole.dims, whole.layout.blocks, strict=True):
        start = draw(st.sampled_from(range(0, extent, block)))
        ends = [end for end in range(start + 1, extent + 1) if _may_end(end, start, extent, block)]
        offsets.append(start)
        dims.append(draw(st.sampled_from(ends)) - start)
    return whole.submemory(dims, offsets)


def _may_end(end: int, start: int, extent: int, block: int) -> bool:
    return end == extent or (end - start) % block == 0 or end - start < block


def descs() -> st.SearchStrategy[MemoryDesc]:
    """Descriptors of every kind in which no two elements share an address."""
    return st.one_of(dense_descs(), strided_descs(), parts())


def pairs() -> st.SearchStrategy[tuple[MemoryDesc, MemoryDesc]]:
    """Two descriptors of the same extents, often alike."""
    return descs().flatmap(lambda desc: st.tuples(st.just(desc), _with_dims(desc)))


def _with_dims(desc: MemoryDesc) -> st.SearchStrategy[MemoryDesc]:
    dense = tags(desc.ndims).map(lambda tag: MemoryDesc(desc.dims, desc.dtype, tag))
    plain = st.just(MemoryDesc(desc.dims, desc.dtype))
    same_strides = st.just(MemoryDesc(desc.dims, desc.dtype, desc.layout, offset=desc.offset0))
    loose = st.just(_unblocked(desc))
    return st.one_of(dense, plain, same_strides, loose)


def _unblocked(desc: MemoryDesc) -> MemoryDesc:
    """The same steps without the blocks, where that is a descriptor; the holes are the same size."""
    strides = tuple(
        stride if extent > block else 1
        for stride, extent, block in zip(desc.strides, desc.dims, desc.layout.blocks, strict=True)
    )
    try:
        return MemoryDesc(desc.dims, desc.dtype, strides=strides, offset=desc.offset0)
    except ValueError:
        return MemoryDesc(desc.dims, desc.dtype)


def numbered(desc: MemoryDesc) -> NDArray[Any]:
    """An array of the descriptor's shape in which every element differs from zero and from its neighbours."""
    values = np.arange(1, desc.n_elements + 1).reshape(desc.dims) % 97 + 1
    return values.astype(to_numpy(desc.dtype))


def numbered_buffer(desc: MemoryDesc) -> NDArray[Any]:
    """A buffer of the descriptor's length that holds its own offsets."""
    return np.arange(desc.nbytes // desc.itemsize).astype(to_numpy(desc.dtype))
