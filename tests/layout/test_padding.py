"""Clearing padding: zeros where packing puts them, and nowhere else."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import given

from blocklayout.layout import MemoryDesc
from blocklayout.layout.padding import clear_padding
from tests.layout.strategies import dense_descs


def cleared(desc: MemoryDesc) -> np.ndarray:
    elements = np.ones(desc.nbytes // 4, np.float32)
    clear_padding(elements, desc)
    return elements


@given(dense_descs())
def test_ones_become_what_packing_makes_of_ones(desc: MemoryDesc) -> None:
    np.testing.assert_array_equal(cleared(desc), desc.pack(np.ones(desc.dims, np.float32)))


def test_blocks_of_one_dimension_in_two_levels() -> None:
    desc = MemoryDesc((17, 3, 3, 3), "f32", "OIhw4i16o4i")
    np.testing.assert_array_equal(cleared(desc), desc.pack(np.ones(desc.dims, np.float32)))


def test_what_lies_around_a_part_of_a_tensor_stays() -> None:
    whole = MemoryDesc((2, 17, 2, 2), "f32", "nChw8c")
    part = whole.submemory((1, 17, 2, 2), (1, 0, 0, 0))
    elements = np.ones(whole.nbytes // 4, np.float32)
    clear_padding(elements, part)
    assert elements.sum() == elements.size - part.n_padding


def test_a_part_that_ends_inside_a_block_keeps_its_elements() -> None:
    part = MemoryDesc((2, 17, 2, 2), "f32", "nChw8c").submemory((2, 9, 2, 2), (0, 8, 0, 0))
    elements = np.ones(part.nbytes // 4, np.float32)
    clear_padding(elements, part)
    assert elements[part.offsets()].all()
    assert elements.size - np.count_nonzero(elements) == part.n_padding


def test_packing_with_padding_makes_no_second_array() -> None:
    desc = MemoryDesc((500, 700), "f32", "AB16b24a")
    array, into = np.ones(desc.dims, np.float32), np.empty(desc.nbytes, np.uint8)
    tracemalloc.start()
    desc.pack(array, into)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert desc.n_padding
    assert peak < desc.nbytes / 8
