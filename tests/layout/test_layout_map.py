"""Maps of layouts: what is listed, and what lies between."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given, settings

from blocklayout.layout import FormatTag, MemoryDesc
from blocklayout.layout.layout_map import HOLE, LEFT_OUT, MAX_PLACES, listed_extents, map_layout, place_at
from blocklayout.layout.tag import _usual_tags
from tests.layout import strategies

LARGE = MemoryDesc((64, 512, 56, 56), "f32", "nChw16c")


@settings(deadline=None, max_examples=100)
@given(strategies.descs())
def test_what_lies_between_places_is_told(desc: MemoryDesc) -> None:
    found = map_layout(desc)
    gaps = [offset for start, n, kind in found.gaps for offset in range(start, start + n) if kind == HOLE]
    assert not [offset for offset in gaps if place_at(desc, offset) is not None]
    if found.n_left_out == 0:
        listed = [offset for offset in found.offsets if offset is not None]
        assert sorted(gaps + listed) == list(range(desc.nbytes // desc.itemsize))


def test_a_large_tensor_is_listed_by_its_first_blocks() -> None:
    found = map_layout(LARGE)
    assert found.extents == (4, 64, 4, 4)
    assert prod(found.extents) <= MAX_PLACES
    assert found.n_left_out == LARGE.n_elements - prod(found.extents)
    assert {kind for *_, kind in found.gaps} == {LEFT_OUT}
    assert prod(listed_extents(MemoryDesc((256, 256), "f32", "AB128a128b"))) <= MAX_PLACES


def test_a_hole_of_a_large_tensor_is_no_place_left_out() -> None:
    found = map_layout(MemoryDesc((64, 3, 100), strides=(400000, 100000, 65)))
    assert found.gaps[0] == (1, 64, HOLE)
    assert found.gaps[-1][2] == LEFT_OUT


def test_every_usual_tag_has_a_map_of_its_first_blocks() -> None:
    for name in _usual_tags():
        tag = FormatTag.parse(name)
        blocks = MemoryDesc((1,) * tag.ndims, "s8", tag).layout.blocks
        desc = MemoryDesc([block + 1 if block > 1 else 2 for block in blocks], "s8", tag)
        found = map_layout(desc)
        listed = tuple(map(slice, map(min, found.extents, desc.dims)))
        assert np.array_equal(np.array(found.offsets).reshape(found.extents)[listed], desc.offsets()[listed]), name
