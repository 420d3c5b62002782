"""The loaded library as the judge of descriptors: it makes them from tags, and is asked what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from blocklayout.dnnl import enums, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.handles import Handle, cpu_engine, cpu_stream, create
from blocklayout.dnnl.library import fmt_tag_names, load
from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from blocklayout.layout import MemoryDesc


@dataclass(frozen=True)
class Facts:
    """What the library says of a descriptor."""

    padded_dims: tuple[int, ...]
    strides: tuple[int, ...]
    inner_blks: tuple[int, ...]
    inner_idxs: tuple[int, ...]
    offset: int
    nbytes: int


def known_tags() -> list[str]:
    """The library's names for its tags, from the first real one on; none where it cannot be loaded."""
    try:
        return list(fmt_tag_names()[2:])
    except UnsupportedError:
        return []


def need_library() -> None:
    """Skip the test where the library cannot be loaded."""
    try:
        load()
    except UnsupportedError as error:
        pytest.skip(str(error))


def from_tag(dims: tuple[int, ...], dtype: str, name: str) -> Handle:
    number = fmt_tag_names().index(name)
    function = "dnnl_memory_desc_create_with_tag"
    return create("memory_desc", function, len(dims), c_dims(dims), enums.value("data_type", dtype), number)


def from_strides(dims: tuple[int, ...], dtype: str, strides: tuple[int, ...]) -> Handle:
    c_dtype = enums.value("data_type", dtype)
    function = "dnnl_memory_desc_create_with_strides"
    return create("memory_desc", function, len(dims), c_dims(dims), c_dtype, c_dims(strides))


def submemory(whole: Handle, dims: tuple[int, ...], offsets: tuple[int, ...]) -> Handle:
    return create("memory_desc", "dnnl_memory_desc_create_submemory", whole.c, c_dims(dims), c_dims(offsets))


def reshaped(whole: Handle, dims: tuple[int, ...]) -> Handle:
    return create("memory_desc", "dnnl_memory_desc_reshape", whole.c, len(dims), c_dims(dims))


def permuted(whole: Handle, new_axes: tuple[int, ...]) -> Handle:
    return create("memory_desc", "dnnl_memory_desc_permute_axes", whole.c, ffi.new("int[]", new_axes))


def c_dims(values: tuple[int, ...]) -> Any:
    return ffi.new("dnnl_dims_t", values)


def facts(desc: Handle) -> Facts:
    ndims = _number(desc, "ndims_s32", "int *")
    n_blks = _number(desc, "inner_nblks_s32", "int *")
    return Facts(
        padded_dims=_numbers(desc, "padded_dims", ndims),
        strides=_numbers(desc, "strides", ndims),
        inner_blks=_numbers(desc, "inner_blks", n_blks),
        inner_idxs=_numbers(desc, "inner_idxs", n_blks),
        offset=_number(desc, "submemory_offset_s64", "dnnl_dim_t *"),
        nbytes=load().dnnl_memory_desc_get_size(desc.c),
    )


def own_facts(desc: MemoryDesc) -> Facts:
    """What our descriptor says of itself; the library counts no bytes where there is an offset."""
    nbytes = 0 if desc.offset0 else desc.nbytes
    return Facts(desc.padded_dims, desc.strides, desc.inner_blks, desc.inner_idxs, desc.offset0, nbytes)


def reordered(source: Handle, array: NDArray[Any], target: Handle, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The bytes of ``array``, laid out as ``source``, after the library moved them to ``target``."""
    engine = cpu_engine()
    result = np.full(load().dnnl_memory_desc_get_size(target.c) // dtype.itemsize, 99, dtype)
    function = "dnnl_reorder_primitive_desc_create"
    primitive_desc = create("primitive_desc", function, source.c, engine.c, target.c, engine.c, ffi.NULL)
    primitive = create("primitive", "dnnl_primitive_create", primitive_desc.c)
    memories = [_memory(source, array), _memory(target, result)]
    c_args = ffi.new("dnnl_exec_arg_t[2]")
    for c_arg, memory, name in zip(c_args, memories, ("from", "to"), strict=True):
        c_arg.arg = ffi.integer_const(f"DNNL_ARG_{name.upper()}")
        c_arg.memory = memory.c
    status.call("dnnl_primitive_execute", primitive.c, cpu_stream().c, 2, c_args)
    status.call("dnnl_stream_wait", cpu_stream().c)
    return result


def _memory(desc: Handle, array: NDArray[Any]) -> Handle:
    pointer = ffi.cast("void *", array.__array_interface__["data"][0])
    return create("memory", "dnnl_memory_create", desc.c, cpu_engine().c, pointer, keep=array)


def _number(desc: Handle, what: str, c_type: str) -> int:
    c_result = ffi.new(c_type)
    status.call("dnnl_memory_desc_query", desc.c, enums.value("query", what), c_result)
    return int(c_result[0])


def _numbers(desc: Handle, what: str, n: int) -> tuple[int, ...]:
    if n == 0:
        return ()
    c_result = ffi.new("dnnl_dims_t **")
    status.call("dnnl_memory_desc_query", desc.c, enums.value("query", what), c_result)
    return tuple(ffi.unpack(c_result[0][0], n))
