"""Descriptors on both sides of the boundary: MemoryDesc and AnyDesc to ``dnnl_memory_desc_t`` and back.

oneDNN makes descriptors from tags, strides and sub-memory only. So inner blocks travel by the tag that
has them, and a blocked view with gaps travels as a part of the dense tensor those gaps would fill.
An offset does not travel at all: Memory adds it to the address, because most implementations refuse it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from math import prod
from struct import Struct
from typing import Any

from msgspec.structs import replace

from blocklayout.dnnl import enums, library, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.any_desc import AnyDesc, Desc
from blocklayout.dnnl.handles import Handle, create
from blocklayout.dnnl.native import native
from blocklayout.dtypes import itemsize
from blocklayout.errors import InvalidArgumentsError, UnsupportedError
from blocklayout.layout import Extra, FormatTag, Layout, MemoryDesc
from blocklayout.layout.geometry import Placement
from blocklayout.layout.tag import LETTERS
from blocklayout.layout.views import permuted

_MAX_CACHED = 2048
_TAG_ANY, _FIRST_TAG = 1, 2


def to_c(desc: Desc) -> Handle:
    """The C descriptor of ``desc`` without offset; cached, so do not destroy it. An UnsupportedError of others."""
    if isinstance(desc, AnyDesc):
        return _any_to_c(desc)
    placed = desc.placement
    return _layout_to_c(placed if placed.offset == 0 else replace(placed, offset=0), desc.dtype)


def is_expressible(desc: Desc) -> bool:
    """Whether oneDNN can make such a descriptor: inner blocks need a format tag, and rows must not reach into others.

    Example:
        >>> [is_expressible(MemoryDesc((2, 17, 1, 1), "f32", tag)) for tag in ("nChw8c", "aBcd5b")]
        [True, False]
    """
    try:
        to_c(desc)
    except (UnsupportedError, InvalidArgumentsError):
        return False
    return True


@lru_cache(maxsize=_MAX_CACHED)
def _any_to_c(desc: AnyDesc) -> Handle:
    return _from_tag(desc.dims, desc.dtype, _TAG_ANY)


@lru_cache(maxsize=_MAX_CACHED)
def _layout_to_c(placed: Placement, dtype: str) -> Handle:
    if placed.layout.extra is not None:
        return _packed_to_c(placed, dtype, placed.layout.extra)
    if not placed.layout.inner_blks:
        return _from_strides(placed.dims, dtype, placed.layout.strides)
    try:
        # some implementations want the very strides they asked for, used or not
        return _tagged_to_c(placed, dtype, is_strict=True)
    except UnsupportedError:
        return _tagged_to_c(placed, dtype, is_strict=False)


def _packed_to_c(placed: Placement, dtype: str, extra: Extra) -> Handle:
    """By way of the same layout without anything behind its elements; the API has no function for the rest."""
    bare = replace(placed, layout=replace(placed.layout, extra=None))
    if library.version() != _KNOWN_VERSION:
        raise UnsupportedError(f"{dtype} {placed.dims} with {extra}: written for oneDNN {_KNOWN_VERSION} alone")
    if unknown := {*extra.flags} - {*_EXTRA_FLAGS}:
        rule = f"no flag {min(unknown)!r}; {', '.join(_EXTRA_FLAGS)}"
        raise UnsupportedError(f"{dtype} {placed.dims} with {extra}: {rule}")
    strides = bare.layout.strides
    is_blocked = bool(bare.layout.inner_blks)
    handle = _tagged_to_c(bare, dtype, is_strict=True) if is_blocked else _from_strides(bare.dims, dtype, strides)
    flags = sum(_EXTRA_FLAGS[name] for name in {*extra.flags})
    packed = _EXTRA.pack(flags, extra.compensation_mask, extra.scale_adjust, extra.asymm_compensation_mask)
    ffi.memmove(ffi.cast("char *", handle.c) + _EXTRA_OFFSET, packed, _EXTRA.size)
    wanted = placed.n_stored() * itemsize(dtype) + extra.nbytes
    if library.load().dnnl_memory_desc_get_size(handle.c) != wanted:
        raise UnsupportedError(f"{dtype} {placed.dims} with {extra}: the library counts other bytes than {wanted}")
    return handle


def _tagged_to_c(placed: Placement, dtype: str, *, is_strict: bool) -> Handle:
    try:
        return _blocked_to_c(placed, dtype, is_strict=is_strict)
    except UnsupportedError:
        swapped = _swapped_to_c(placed, dtype, is_strict=is_strict)
        if swapped is None:
            raise
        return swapped


def _blocked_to_c(placed: Placement, dtype: str, *, is_strict: bool) -> Handle:
    dims, tag = _find_corner(placed, is_strict=is_strict)
    parent = _from_tag(dims, dtype, tag)
    return parent if dims == placed.dims else _from_parent(parent, placed.dims, dtype)


def _swapped_to_c(placed: Placement, dtype: str, *, is_strict: bool) -> Handle | None:
    """By way of a tag for two neighbours the other way round: a deconvolution's weights are a convolution's, turned."""
    ndims = len(placed.dims)
    for dim in range(ndims - 1):
        perm = (*range(dim), dim + 1, dim, *range(dim + 2, ndims))
        try:
            handle = _blocked_to_c(permuted(placed, perm), dtype, is_strict=is_strict)
        except UnsupportedError:
            continue
        return _made("permute_axes", f"{dtype} {placed.dims}", handle.c, ffi.new("int[]", perm))
    return None


def _data_type(dtype: str) -> int:
    """The library's number; that of a type as wide where it knows none, and only our own code reads the data."""
    return enums.value("data_type", "f64" if dtype == "s64" else dtype)


def _made(how: str, subject: str, *c_args: Any) -> Handle:
    return create("memory_desc", f"dnnl_memory_desc_{how}", *c_args, subject=subject)


def _from_tag(dims: tuple[int, ...], dtype: str, number: int) -> Handle:
    return _made("create_with_tag", f"{dtype} {dims}", len(dims), c_dims(dims), _data_type(dtype), number)


def _from_strides(dims: tuple[int, ...], dtype: str, strides: tuple[int, ...]) -> Handle:
    subject = f"{dtype} {dims} with strides {strides}"
    return _made("create_with_strides", subject, len(dims), c_dims(dims), _data_type(dtype), c_dims(strides))


def _from_parent(parent: Handle, dims: tuple[int, ...], dtype: str) -> Handle:
    subject = f"{dtype} {dims} as a part of a larger tensor"
    return _made("create_submemory", subject, parent.c, c_dims(dims), c_dims((0,) * len(dims)))


def _find_corner(placed: Placement, *, is_strict: bool) -> tuple[tuple[int, ...], int]:
    """The extents and tag number of the dense tensor that has, from its first element on, these strides and blocks.

    A part that ends inside a block has no padding there: the elements behind it are its neighbour's. Where it
    ``is_strict``, strides of dimensions of one outer block, which take no step, have a say.
    """
    dims, layout = placed.dims, placed.layout
    tags = _tags_with(len(dims), layout.inner_blks, layout.inner_idxs)
    if not tags:
        raise UnsupportedError(
            f"oneDNN has no format tag of {len(dims)} dimensions with inner blocks of {layout.inner_blks} elements "
            f"along dimensions {layout.inner_idxs}"
        )
    unpadded = zip(dims, placed.padded_dims, layout.blocks, strict=True)
    least_dims = tuple(extent if padded % block == 0 else block for extent, padded, block in unpadded)
    counting = [dim for dim in range(len(dims)) if is_strict or dims[dim] > layout.blocks[dim]]
    for order, number in tags:
        parent_dims = _parent_dims(least_dims, layout, [dim for dim in order if dim in counting], order[-1])
        if parent_dims is not None:
            return parent_dims, number
    raise UnsupportedError(
        f"oneDNN can describe {dims} with strides {layout.strides} and inner blocks {layout.inner_blks} neither by a "
        f"format tag nor as a part of a tensor that has one; copy it into a dense layout first"
    )


def _parent_dims(dims: tuple[int, ...], layout: Layout, order: Iterable[int], innermost: int) -> tuple[int, ...] | None:
    """Extents of the dense tensor with the strides of ``layout`` along ``order``; None if there is none."""
    blocks = layout.blocks
    parent = list(dims)
    step = prod(layout.inner_blks)  # of one outer block of ``last``
    last = innermost
    for dim in reversed(tuple(order)):
        n_last, rest = divmod(layout.strides[dim], step)
        least = 1 if dim == last else max(1, -(-dims[last] // blocks[last]))
        if rest or n_last < least:
            return None
        if n_last > least:
            if dim == last or dims[last] % blocks[last]:
                return None  # nothing steps inside of a block, and a part that ends inside one ends its parent
            parent[last] = n_last * blocks[last]
        step, last = layout.strides[dim], dim
    return tuple(parent)


@cache
def _tags_with(
    ndims: int, inner_blks: tuple[int, ...], inner_idxs: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], int], ...]:
    """The library's tags of a rank with these inner blocks: orders of dimensions and values."""
    blocks = "".join(f"{blk}{LETTERS[idx]}" for blk, idx in zip(inner_blks, inner_idxs, strict=True))
    named = _names_by_blocks().get((ndims, blocks), ())
    return tuple((FormatTag.parse(name).order, number) for name, number in named)


@cache
def _names_by_blocks() -> dict[tuple[int, str], list[tuple[str, int]]]:
    """Names and values of the library's blocked tags by rank and inner blocks; parsing them all takes 50 ms."""
    found: dict[tuple[int, str], list[tuple[str, int]]] = {}
    for number, name in enumerate(library.fmt_tag_names()):
        if number < _FIRST_TAG or name.islower():
            continue
        ndims = next(place for place, character in enumerate(name) if character.isdigit())
        found.setdefault((ndims, name[ndims:]), []).append((name, number))
    return found


@lru_cache(maxsize=_MAX_CACHED)
def c_dims(values: tuple[int, ...]) -> Any:
    """A ``dnnl_dims_t`` that holds ``values``; cached, so do not write to it."""
    return ffi.new("dnnl_dims_t", values)


def describe(c_pd: Any, c_args: Any) -> tuple[list[bytes], int]:
    """Records of the descriptors of arguments, by number, as :func:`of_record` reads them; bytes of scratchpad."""
    executor, n_args = native(), len(c_args)
    if executor is None:
        records, nbytes = _describe(c_pd, c_args)
    else:
        c_read = ffi.new("bl_desc_t[]", n_args)
        nbytes = executor.bl_describe(_c_library(), c_pd, n_args, c_args, c_read)
        read = bytes(ffi.buffer(c_read))
        records = [read[start : start + _RECORD] for start in range(0, n_args * _RECORD, _RECORD)]
    return [_with_extra(record, c_pd, number) for record, number in zip(records, c_args, strict=True)], nbytes


def _with_extra(record: bytes, c_pd: Any, number: int) -> bytes:
    """A record followed by the data behind 8-bit elements, which the API does not tell: read where 3.2.0 has it.

    Source: ``struct dnnl_memory_desc`` in ``src/common/memory_desc.hpp``, oneDNN v3.2.
    """
    if record[_DTYPE_OFFSET] != _S8 or library.version() != _KNOWN_VERSION:
        return record
    c_desc = library.load().dnnl_primitive_desc_query_md(c_pd, _QUERIES["exec_arg_md"], number)
    return record + bytes(ffi.buffer(ffi.cast("char *", c_desc) + _EXTRA_OFFSET, _EXTRA.size))


@lru_cache(maxsize=_MAX_CACHED)
def in_role(record: bytes, role: str) -> MemoryDesc | None:
    """The layout that the library chose for an argument, called by its role; ``None`` where it has none."""
    found = of_record(record)
    if not isinstance(found, MemoryDesc):
        return None
    to_c(found)  # refuses layouts that no Memory can be made of, and caches the others
    return found.in_role(role)


@lru_cache(maxsize=_MAX_CACHED)
def of_record(record: bytes) -> Desc | None:
    """The descriptor that a ``bl_desc_t`` describes; ``None`` where there is none.

    An UnsupportedError where only the library knows how its bytes are arranged.
    """
    read: Any = ffi.from_buffer("bl_desc_t *", record)
    kind = enums.name("format_kind", read.format_kind)
    if read.ndims == 0 or kind == "format_kind_undef":
        return None
    dims, dtype = _first(read.dims, read.ndims), enums.name("data_type", read.data_type)
    if kind == "format_kind_any":
        return AnyDesc(dims, dtype)
    if kind != "blocked":
        raise UnsupportedError(f"{dtype} {dims} has a layout that only the library knows ({kind}); choose one by a tag")
    return _blocked_from_c(read, dims, dtype, record[_RECORD:])


def _blocked_from_c(read: Any, dims: tuple[int, ...], dtype: str, extra: bytes) -> MemoryDesc:
    layout = Layout(
        strides=_first(read.strides, read.ndims),
        inner_blks=_first(read.inner_blks, read.n_blks),
        inner_idxs=_first(read.inner_idxs, read.n_blks),
    )
    desc = _place(dims, _first(read.padded_dims, read.ndims), dtype, layout, read.offset)
    if read.offset != 0 or read.nbytes <= desc.nbytes:  # of one element seen many times the library counts none
        return desc
    if not extra:
        raise UnsupportedError(
            f"{desc} carries more than its elements ({read.nbytes} bytes instead of {desc.nbytes}): the library keeps "
            f"compensation for 8-bit arithmetic there, which is known of oneDNN {_KNOWN_VERSION} alone"
        )
    bits, mask, scale, asymm_mask = _EXTRA.unpack(extra)
    flags = tuple(name for name, bit in _EXTRA_FLAGS.items() if bits & bit)
    if bits != sum(_EXTRA_FLAGS[name] for name in flags):
        raise UnsupportedError(f"{desc} carries something behind its elements that has no name here (flags {bits:#x})")
    behind = Extra(flags, mask, scale, asymm_mask, read.nbytes - desc.nbytes)
    return MemoryDesc(dims, dtype, replace(layout, extra=behind))


def _place(dims: tuple[int, ...], padded_dims: tuple[int, ...], dtype: str, layout: Layout, offset: int) -> MemoryDesc:
    """A part that ends inside a block has no padding there, so it is cut out of whole blocks."""
    ends = zip(dims, padded_dims, layout.blocks, strict=True)
    whole_dims = tuple(block if padded % block else extent for extent, padded, block in ends)
    whole = MemoryDesc(whole_dims, dtype, layout, offset=offset)
    return whole if whole_dims == dims else whole.submemory(dims, (0,) * len(dims))


def _first(c_values: Any, n: int) -> tuple[int, ...]:
    return tuple(ffi.unpack(c_values, n)) if n else ()


@cache
def _c_library() -> Any:
    """The library's functions that answer, as our own C takes them."""
    c_library = library.load()
    names = ("dnnl_primitive_desc_query_md", "dnnl_memory_desc_query", "dnnl_memory_desc_get_size")
    types = ("bl_query_md_t", "bl_query_desc_t", "bl_desc_size_t")
    functions = (ffi.cast(type_, getattr(c_library, name)) for type_, name in zip(types, names, strict=True))
    return ffi.new("bl_library_t *", tuple(functions))


def _describe(c_pd: Any, c_args: Any) -> tuple[list[bytes], int]:
    """As ``bl_describe``, where no compiler built that."""
    c_library: Any = library.load()
    c_descs = [c_library.dnnl_primitive_desc_query_md(c_pd, _QUERIES["exec_arg_md"], number) for number in c_args]
    c_scratchpad = c_library.dnnl_primitive_desc_query_md(c_pd, _QUERIES["scratchpad_md"], 0)
    nbytes = c_library.dnnl_memory_desc_get_size(c_scratchpad) if c_scratchpad else 0
    return [record_of(c_desc) for c_desc in c_descs], int(nbytes)


def record_of(c_desc: Any) -> bytes:
    """The record of a C descriptor, owned or borrowed; all zeros for none."""
    c_read = ffi.new("bl_desc_t *")
    if c_desc:
        for name, what in (("format_kind", "format_kind"), ("data_type", "data_type"), ("ndims", "ndims_s32")):
            setattr(c_read, name, _query(c_desc, what, "int *"))
        c_read.dims = _query_dims(c_desc, "dims", c_read.ndims)
    if c_read.format_kind == _BLOCKED:
        c_read.n_blks = _query(c_desc, "inner_nblks_s32", "int *")
        c_read.offset = _query(c_desc, "submemory_offset_s64", "dnnl_dim_t *")
        c_read.nbytes = library.load().dnnl_memory_desc_get_size(c_desc)
        for name in ("padded_dims", "strides", "inner_blks", "inner_idxs"):
            n = c_read.n_blks if name.startswith("inner") else c_read.ndims
            setattr(c_read, name, _query_dims(c_desc, name, n))
    return bytes(ffi.buffer(c_read))


def _query(c_desc: Any, what: str, c_type: str) -> Any:
    c_result = ffi.new(c_type)
    status.call("dnnl_memory_desc_query", c_desc, _QUERIES[what], c_result)
    return c_result[0]


def _query_dims(c_desc: Any, what: str, n: int) -> tuple[int, ...]:
    return _first(_query(c_desc, what, "dnnl_dims_t **")[0], n) if n else ()


_KNOWN_VERSION = (3, 2, 0)
_EXTRA, _EXTRA_OFFSET = Struct("<Qifi"), 616
"""Flags, compensation mask, scale, and mask for a zero point, and where they lie in the library's own descriptor."""

_EXTRA_FLAGS = {"conv_s8s8": 1, "scale_adjust": 2, "rnn_u8s8": 4, "conv_asymmetric_src": 8, "rnn_s8s8": 16}
_DTYPE_OFFSET = ffi.offsetof("bl_desc_t", "data_type")
_S8 = enums.value("data_type", "s8")
_QUERIES = enums.values("query")
_BLOCKED = enums.value("format_kind", "blocked")
_RECORD = ffi.sizeof("bl_desc_t")
