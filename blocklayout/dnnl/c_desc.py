"""Descriptors on both sides of the boundary: MemoryDesc and AnyDesc to ``dnnl_memory_desc_t`` and back.

oneDNN makes descriptors from tags, strides and sub-memory only. So inner blocks travel by the tag that
has them, and a blocked view with gaps travels as a part of the dense tensor those gaps would fill.
An offset does not travel at all: Memory adds it to the address, because most implementations refuse it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from blocklayout.dnnl import enums, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.handles import Handle, create
from blocklayout.dnnl.tag_search import find_corner
from blocklayout.errors import UnsupportedError
from blocklayout.layout import Layout, MemoryDesc

_MAX_CACHED = 2048
_TAG_ANY = 1


def to_c(desc: Desc) -> Handle:
    """The C descriptor of ``desc``, its offset left out; cached, so do not destroy it.

    Raises:
        UnsupportedError: oneDNN can make no such descriptor.
        DnnlError: The library refused it.
    """
    if isinstance(desc, AnyDesc):
        return _any_to_c(desc)
    return _layout_to_c(desc.dims, desc.padded_dims, desc.dtype, desc.layout)


def is_expressible(desc: Desc) -> bool:
    """Whether oneDNN can make such a descriptor: inner blocks need a format tag that has them.

    Example:
        >>> [is_expressible(MemoryDesc((2, 17, 1, 1), "f32", tag)) for tag in ("nChw8c", "aBcd5b")]
        [True, False]
    """
    try:
        to_c(desc)
    except UnsupportedError:
        return False
    return True


def clear_cache() -> None:
    """Lets go of every cached C descriptor; those still in use live on."""
    _any_to_c.cache_clear()
    _layout_to_c.cache_clear()
    _met.cache_clear()


@lru_cache(maxsize=_MAX_CACHED)
def _any_to_c(desc: AnyDesc) -> Handle:
    return _from_tag(desc.dims, desc.dtype, _TAG_ANY)


@lru_cache(maxsize=_MAX_CACHED)
def _layout_to_c(dims: tuple[int, ...], padded_dims: tuple[int, ...], dtype: str, layout: Layout) -> Handle:
    if not layout.inner_blks:
        return _from_strides(dims, dtype, layout.strides)
    try:
        # some implementations want the very strides they asked for, used or not
        return _tagged_to_c(dims, padded_dims, dtype, layout, is_strict=True)
    except UnsupportedError:
        return _tagged_to_c(dims, padded_dims, dtype, layout, is_strict=False)


def _tagged_to_c(
    dims: tuple[int, ...], padded_dims: tuple[int, ...], dtype: str, layout: Layout, *, is_strict: bool
) -> Handle:
    """By way of a format tag."""
    try:
        return _blocked_to_c(dims, padded_dims, dtype, layout, is_strict=is_strict)
    except UnsupportedError:
        swapped = _swapped_to_c(dims, padded_dims, dtype, layout, is_strict=is_strict)
        if swapped is None:
            raise
        return swapped


def _blocked_to_c(
    dims: tuple[int, ...], padded_dims: tuple[int, ...], dtype: str, layout: Layout, *, is_strict: bool
) -> Handle:
    corner = find_corner(dims, padded_dims, layout, is_strict=is_strict)
    parent = _from_tag(corner.dims, dtype, corner.tag)
    return parent if corner.dims == dims else _from_parent(parent, dims, dtype)


def _swapped_to_c(
    dims: tuple[int, ...], padded_dims: tuple[int, ...], dtype: str, layout: Layout, *, is_strict: bool
) -> Handle | None:
    """By way of a tag for two neighbours the other way round: a deconvolution's weights are a convolution's, turned."""
    for dim in range(len(dims) - 1):
        perm = (*range(dim), dim + 1, dim, *range(dim + 2, len(dims)))
        turned_dims, turned_padded, strides = (
            tuple(values[axis] for axis in perm) for values in (dims, padded_dims, layout.strides)
        )
        turned = Layout(strides, layout.inner_blks, tuple(perm[axis] for axis in layout.inner_idxs))
        try:
            handle = _blocked_to_c(turned_dims, turned_padded, dtype, turned, is_strict=is_strict)
        except UnsupportedError:
            continue
        c_perm = ffi.new("int[]", perm)
        subject = f"{dtype} {dims}"
        return create("memory_desc", "dnnl_memory_desc_permute_axes", handle.c, c_perm, subject=subject)
    return None


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


def _from_parent(parent: Handle, dims: tuple[int, ...], dtype: str) -> Handle:
    c_offsets = c_dims((0,) * len(dims))
    subject = f"{dtype} {dims} as a part of a larger tensor"
    function = "dnnl_memory_desc_create_submemory"
    return create("memory_desc", function, parent.c, c_dims(dims), c_offsets, subject=subject)


def c_dims(values: tuple[int, ...]) -> Any:
    """A ``dnnl_dims_t`` that holds ``values``."""
    return ffi.new("dnnl_dims_t", values)


def chosen(c_desc: Any, left_open: AnyDesc, role: str) -> MemoryDesc | None:
    """The layout that the library chose for what was left to it, called by its role.

    One that was met before is recognised, since that takes a tenth of reading it.

    Raises:
        UnsupportedError: As :func:`from_c`.
    """
    met = _met(left_open, role)
    n = len(left_open.dims)
    for c_known, strides, known in met:
        # The library compares no strides that take no step, and some implementations want the very ones they chose.
        if is_same(c_desc, c_known) and _query_dims(c_desc, "strides", n) == strides:
            return known
    found = from_c(c_desc)
    if not isinstance(found, MemoryDesc):
        return None
    named = found.in_role(role)
    met.append((to_c(named), _query_dims(c_desc, "strides", n), named))
    return named


@lru_cache(maxsize=_MAX_CACHED)
def _met(left_open: AnyDesc, role: str) -> list[tuple[Handle, tuple[int, ...], MemoryDesc]]:
    """What the library chose for it so far; grows."""
    del left_open, role
    return []


def is_same(c_desc: Any, other: Handle) -> bool:
    """Whether the library takes two descriptors for the same."""
    return bool(library.load().dnnl_memory_desc_equal(c_desc, other.c))


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
    padded_dims = _query_dims(c_desc, "padded_dims", len(dims))
    desc = _place(dims, padded_dims, dtype, layout, offset)
    c_nbytes = library.load().dnnl_memory_desc_get_size(c_desc)
    if offset == 0 and c_nbytes != desc.nbytes:
        raise UnsupportedError(
            f"{desc} carries more than its elements ({c_nbytes} bytes instead of {desc.nbytes}): the library keeps "
            f"compensation for 8-bit arithmetic there, which a descriptor cannot express"
        )
    return desc


def _place(dims: tuple[int, ...], padded_dims: tuple[int, ...], dtype: str, layout: Layout, offset: int) -> MemoryDesc:
    """A part that ends inside a block has no padding there, so it is cut out of whole blocks."""
    ends = zip(dims, padded_dims, layout.blocks, strict=True)
    whole_dims = tuple(block if padded % block else extent for extent, padded, block in ends)
    whole = MemoryDesc(whole_dims, dtype, layout, offset=offset)
    return whole if whole_dims == dims else whole.submemory(dims, (0,) * len(dims))


_QUERIES = enums.values("query")


def _query(c_desc: Any, what: str, c_result: Any) -> None:
    c_status = library.load().dnnl_memory_desc_query(c_desc, _QUERIES[what], c_result)
    if c_status:
        status.check(c_status, "dnnl_memory_desc_query")


def _query_int(c_desc: Any, what: str, c_type: str) -> int:
    c_result = ffi.new(c_type)
    _query(c_desc, what, c_result)
    return int(ffi.cast("int64_t", c_result[0]))


def _query_dims(c_desc: Any, what: str, n: int) -> tuple[int, ...]:
    """The first ``n`` of the numbers the library keeps under ``what``."""
    if n == 0:
        return ()
    c_result = ffi.new("dnnl_dims_t **")
    _query(c_desc, what, c_result)
    return tuple(ffi.unpack(c_result[0][0], n))
