"""Descriptors on both sides of the boundary: MemoryDesc and AnyDesc to ``dnnl_memory_desc_t`` and back.

oneDNN makes descriptors from tags, strides and sub-memory only. So inner blocks travel by the tag that
has them, and a blocked view with gaps travels as a part of the dense tensor those gaps would fill.
An offset does not travel at all: Memory adds it to the address, because most implementations refuse it.
"""

from __future__ import annotations

from functools import cache, lru_cache
from math import prod
from typing import Any

from blocklayout.dnnl import enums, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.handles import Handle, create
from blocklayout.errors import UnsupportedError
from blocklayout.layout import FormatTag, Layout, MemoryDesc

_MAX_CACHED = 4096
_TAG_ANY = 1


def to_c(desc: Desc) -> Handle:
    """The C descriptor of ``desc``, its offset left out; cached, so do not destroy it.

    Raises:
        UnsupportedError: oneDNN can make no such descriptor.
        DnnlError: The library refused it.
    """
    if isinstance(desc, AnyDesc):
        return _any_to_c(desc)
    return _layout_to_c(desc.dims, desc.dtype, desc.layout, desc.padded_dims)


def clear_cache() -> None:
    """Lets go of every cached C descriptor; those still in use live on."""
    _any_to_c.cache_clear()
    _layout_to_c.cache_clear()


@lru_cache(maxsize=_MAX_CACHED)
def _any_to_c(desc: AnyDesc) -> Handle:
    return _from_tag(desc.dims, desc.dtype, _TAG_ANY)


@lru_cache(maxsize=_MAX_CACHED)
def _layout_to_c(dims: tuple[int, ...], dtype: str, layout: Layout, padded_dims: tuple[int, ...]) -> Handle:
    if not layout.inner_blks:
        return _from_strides(dims, dtype, layout.strides)
    candidates = _tags_by_blocks().get((len(dims), layout.inner_blks, layout.inner_idxs), ())
    if not candidates:
        raise UnsupportedError(
            f"oneDNN has no format tag of {len(dims)} dimensions with inner blocks of {layout.inner_blks} elements "
            f"along dimensions {layout.inner_idxs}"
        )
    if padded_dims == _padded(dims, layout.blocks):
        for tag, number in candidates:
            if _same_steps(dims, layout, MemoryDesc(dims, dtype, tag).strides):
                return _from_tag(dims, dtype, number)
    return _from_parent(dims, dtype, layout, candidates)


def _from_tag(dims: tuple[int, ...], dtype: str, number: int) -> Handle:
    c_dtype = enums.value("data_type", dtype)
    subject = f"{dtype} {dims}"
    function = "dnnl_memory_desc_create_with_tag"
    return create("memory_desc", function, len(dims), c_dims(dims), c_dtype, number, subject=subject)


def _from_strides(dims: tuple[int, ...], dtype: str, strides: tuple[int, ...]) -> Handle:
    c_dtype = enums.value("data_type", dtype)
    subject = f"{dtype} {dims} with strides {strides}"
    function = "dnnl_memory_desc_create_with_strides"
    return create("memory_desc", function, len(dims), c_dims(dims), c_dtype, c_dims(strides), subject=subject)


def _from_parent(
    dims: tuple[int, ...], dtype: str, layout: Layout, candidates: tuple[tuple[FormatTag, int], ...]
) -> Handle:
    for tag, number in candidates:
        parent_dims = _parent_dims(dims, layout, tag)
        if parent_dims is None:
            continue
        parent = _from_tag(parent_dims, dtype, number)
        c_offsets = c_dims((0,) * len(dims))
        subject = f"{dtype} {dims} as a part of {parent_dims} {tag}"
        function = "dnnl_memory_desc_create_submemory"
        return create("memory_desc", function, parent.c, c_dims(dims), c_offsets, subject=subject)
    raise UnsupportedError(
        f"oneDNN can describe {dtype} {dims} with strides {layout.strides} and inner blocks {layout.inner_blks} "
        f"neither by a format tag nor as a part of a tensor that has one; copy it into a dense layout first"
    )


def _parent_dims(dims: tuple[int, ...], layout: Layout, tag: FormatTag) -> tuple[int, ...] | None:
    """Extents of the dense tensor of which ``layout`` is the corner at 0; None if there is none."""
    blocks = layout.blocks
    n_outer = [-(-extent // block) for extent, block in zip(dims, blocks, strict=True)]
    parent = list(dims)
    step = prod(layout.inner_blks)  # what the dimensions seen so far span, the last one counted as one block
    last = tag.order[-1]
    for dim in reversed(tag.order):
        if n_outer[dim] == 1:
            continue
        n_last, rest = divmod(layout.strides[dim], step)
        least = 1 if dim == last else n_outer[last]
        if rest or n_last < least:
            return None
        if n_last > least:
            if dim == last or dims[last] % blocks[last]:
                return None  # nothing steps inside of a block, and a part that ends inside one ends its parent
            parent[last] = n_last * blocks[last]
        step = layout.strides[dim]
        last = dim
    return tuple(parent)


def _same_steps(dims: tuple[int, ...], layout: Layout, strides: tuple[int, ...]) -> bool:
    """Whether ``strides`` lead everywhere ``layout`` does: where there is one outer block, none is taken."""
    steps = zip(dims, layout.blocks, layout.strides, strides, strict=True)
    return 0 in dims or all(extent <= block or mine == other for extent, block, mine, other in steps)


def _padded(dims: tuple[int, ...], blocks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-(-extent // block) * block for extent, block in zip(dims, blocks, strict=True))


_Blocks = tuple[int, tuple[int, ...], tuple[int, ...]]


@cache
def _tags_by_blocks() -> dict[_Blocks, tuple[tuple[FormatTag, int], ...]]:
    """The library's blocked tags with their values, by rank and inner blocks."""
    found: dict[_Blocks, list[tuple[FormatTag, int]]] = {}
    for number, name in enumerate(library.fmt_tag_names()):
        if number <= _TAG_ANY or name.islower():
            continue
        tag = FormatTag.parse(name)
        found.setdefault((tag.ndims, tag.inner_blks, tag.inner_idxs), []).append((tag, number))
    return {blocks: tuple(tags) for blocks, tags in found.items()}


def c_dims(values: tuple[int, ...]) -> Any:
    """A ``dnnl_dims_t`` that holds ``values``."""
    return ffi.new("dnnl_dims_t", values)


def from_c(c_desc: Any) -> Desc | None:
    """The descriptor that a C descriptor, owned or borrowed, stands for; None if it stands for nothing.

    Raises:
        UnsupportedError: Its bytes are arranged as only the library knows.
    """
    if not c_desc:
        return None
    kind = enums.name("format_kind", _query_int(c_desc, "format_kind", "dnnl_format_kind_t *"))
    ndims = _query_int(c_desc, "ndims_s32", "int *")
    if ndims == 0 or kind == "format_kind_undef":
        return None
    dims = _query_dims(c_desc, "dims", ndims)
    dtype = enums.name("data_type", _query_int(c_desc, "data_type", "dnnl_data_type_t *"))
    if kind == "format_kind_any":
        return AnyDesc(dims, dtype)
    if kind != "blocked":
        raise UnsupportedError(f"{dtype} {dims} has a layout that only the library knows ({kind}); choose one by a tag")
    return _blocked_from_c(c_desc, dims, dtype)


def _blocked_from_c(c_desc: Any, dims: tuple[int, ...], dtype: str) -> MemoryDesc:
    n_blks = _query_int(c_desc, "inner_nblks_s32", "int *")
    layout = Layout(
        strides=_query_dims(c_desc, "strides", len(dims)),
        inner_blks=_query_dims(c_desc, "inner_blks", n_blks),
        inner_idxs=_query_dims(c_desc, "inner_idxs", n_blks),
    )
    offset = _query_int(c_desc, "submemory_offset_s64", "dnnl_dim_t *")
    desc = MemoryDesc(dims, dtype, layout, offset=offset)
    c_nbytes = library.load().dnnl_memory_desc_get_size(c_desc)
    if offset == 0 and c_nbytes != desc.nbytes:
        raise UnsupportedError(
            f"{desc} carries more than its elements ({c_nbytes} bytes instead of {desc.nbytes}): the library keeps "
            f"compensation for 8-bit arithmetic there, which a descriptor cannot express"
        )
    return desc


def _query_int(c_desc: Any, what: str, c_type: str) -> int:
    c_result = ffi.new(c_type)
    status.call("dnnl_memory_desc_query", c_desc, enums.value("query", what), c_result)
    return int(ffi.cast("int64_t", c_result[0]))


def _query_dims(c_desc: Any, what: str, n: int) -> tuple[int, ...]:
    """The first ``n`` of the numbers the library keeps under ``what``."""
    if n == 0:
        return ()
    c_result = ffi.new("dnnl_dims_t **")
    status.call("dnnl_memory_desc_query", c_desc, enums.value("query", what), c_result)
    return tuple(ffi.unpack(c_result[0][0], n))
