"""Memory uses numpy's bytes in place, keeps them alive, and refuses buffers that are too small."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from blocklayout.dnnl import Memory, aligned_empty, c_desc, enums, handles, live_handles, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.handles import create
from blocklayout.errors import InvalidArgumentsError
from blocklayout.layout import MemoryDesc


def copy(source: Memory, destination: Memory) -> None:
    """A reorder by hand."""
    c_engine = handles.cpu_engine().c
    c_src, c_dst = c_desc.to_c(source.desc).c, c_desc.to_c(destination.desc).c
    reorder = "dnnl_reorder_primitive_desc_create"
    pd = create("primitive_desc", reorder, c_src, c_engine, c_dst, c_engine, ffi.NULL)
    primitive = create("primitive", "dnnl_primitive_create", pd.c)
    c_args = ffi.new("dnnl_exec_arg_t[]", [(enums.argument("from"), source.c), (enums.argument("to"), destination.c)])
    status.call("dnnl_primitive_execute", primitive.c, handles.cpu_stream().c, 2, c_args)
    for handle in (primitive, pd):
        handle.destroy()


@pytest.mark.parametrize("nbytes", [1, 100])
def test_aligned_empty(nbytes: int) -> None:
    buffer = aligned_empty(nbytes)
    assert buffer.nbytes == nbytes
    assert buffer.__array_interface__["data"][0] % 64 == 0


def test_aligned_empty_refuses_negative_numbers() -> None:
    with pytest.raises(InvalidArgumentsError):
        aligned_empty(-1)


def test_bytes_are_used_in_place() -> None:
    array = np.arange(2 * 17 * 5 * 4, dtype=np.float32).reshape(2, 17, 5, 4)
    blocked = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
    packed = aligned_empty(blocked.nbytes).view(np.float32)
    packed[:] = np.nan
    copy(Memory(MemoryDesc.from_array(array), array), Memory(blocked, packed))
    np.testing.assert_array_equal(packed, blocked.pack(array))


def test_strided_arrays_are_read_in_place() -> None:
    array = np.arange(6 * 8, dtype=np.float32).reshape(6, 8).T[::2]
    result = np.empty(array.shape, np.float32)
    copy(Memory(MemoryDesc.from_array(array), array), Memory(MemoryDesc.from_array(result), result))
    np.testing.assert_array_equal(result, array)


def test_an_offset_moves_the_address() -> None:
    whole = MemoryDesc((2, 32, 3, 3), "f32", "nChw8c")
    part = whole.submemory((2, 16, 3, 3), (0, 8, 0, 0))
    array = np.arange(prod_of(part.dims), dtype=np.float32).reshape(part.dims)
    buffer = np.zeros(whole.nbytes // 4, np.float32)
    target = Memory(part, buffer)
    assert target.address == buffer.__array_interface__["data"][0] + part.offset0 * 4
    copy(Memory(MemoryDesc.from_array(array), array), target)
    expected = np.zeros(whole.dims, np.float32)
    expected[:, 8:24] = array
    np.testing.assert_array_equal(whole.unpack(buffer), expected)


def test_writing_a_part_inside_a_block_spares_its_neighbours() -> None:
    whole = MemoryDesc((2, 16, 3, 3), "f32", "nChw8c")
    part = whole.submemory((2, 5, 3, 3), (0, 8, 0, 0))
    buffer = np.ones(whole.nbytes // 4, np.float32)
    array = np.full(part.dims, 7, np.float32)
    copy(Memory(MemoryDesc.from_array(array), array), Memory(part, buffer))
    expected = np.ones(whole.dims, np.float32)
    expected[:, 8:13] = 7
    np.testing.assert_array_equal(whole.unpack(buffer), expected)


def prod_of(dims: tuple[int, ...]) -> int:
    return int(np.prod(dims))


@pytest.mark.parametrize(
    "buffer",
    [np.zeros(5, np.float32), np.zeros(0, np.float32), np.zeros((2, 6), np.uint8), np.zeros(100, np.float32)[::-1]],
)
def test_a_small_buffer_is_refused(buffer: np.ndarray) -> None:
    with pytest.raises(InvalidArgumentsError, match="needs 24"):
        Memory(MemoryDesc((2, 3), "f32"), buffer)


def test_a_memory_keeps_its_buffer() -> None:
    class Tracked(np.ndarray):
        pass

    buffer = np.zeros(6, np.float32).view(Tracked)
    watch = weakref.ref(buffer)
    memory = Memory(MemoryDesc((2, 3), "f32"), buffer)
    del buffer
    gc.collect()
    assert watch() is not None
    memory.rebind(np.zeros(6, np.float32))
    gc.collect()
    assert watch() is None


def test_rebinding_moves_the_address() -> None:
    memory = Memory(MemoryDesc((2, 3), "f32"))
    assert memory.address == 0
    first, second = np.zeros(6, np.float32), np.zeros(8, np.float32)
    memory.rebind(first)
    assert memory.address == first.ctypes.data
    memory.rebind(second)
    assert memory.address == second.ctypes.data
    memory.rebind_pointer(second.ctypes.data + 8, second)
    assert memory.address == second.ctypes.data + 8


def test_no_elements_need_no_bytes() -> None:
    assert aligned_empty(0).nbytes == 0
    desc = MemoryDesc((0, 3), "f32")
    assert Memory(desc, np.empty((0, 3), np.float32)).nbytes == 0
    assert Memory.empty(desc).nbytes == 0


def test_nothing_leaks() -> None:
    desc = MemoryDesc((2, 3), "f32")
    c_desc.to_c(desc)
    gc.collect()
    before = live_handles()
    memories = [Memory.empty(desc) for _ in range(10)]
    assert live_handles()["memory"] == before["memory"] + 10
    memories[0].destroy()
    memories[0].destroy()
    assert live_handles()["memory"] == before["memory"] + 9
    memories.clear()
    gc.collect()
    assert live_handles() == before
