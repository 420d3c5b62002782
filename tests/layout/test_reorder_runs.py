"""Runs of reorders."""

from __future__ import annotations

from hypothesis import given, settings

from blocklayout.layout import MemoryDesc
from blocklayout.layout.layout_map import follow_reorder
from tests.layout import strategies

GUIDE = MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")


@settings(deadline=None, max_examples=100)
@given(strategies.pairs())
def test_runs_hold_every_element_once(pair: tuple[MemoryDesc, MemoryDesc]) -> None:
    found = follow_reorder(*pair)
    for runs in (found.reads, found.writes, found.copies):
        assert runs.shortest <= runs.longest <= found.n_followed == pair[0].n_elements
        assert sum(length * n for length, n in runs.lengths) <= found.n_followed
        assert len(runs.lengths) == 8 or sum(n for _, n in runs.lengths) == runs.n


def test_a_copy_moves_everything_at_once_where_layouts_agree() -> None:
    found = follow_reorder(GUIDE, GUIDE)
    assert (found.copies.longest, found.read_nbytes, found.written_nbytes) == (321, 3840, 3840)
    plain = MemoryDesc((2, 3, 4, 5))
    assert follow_reorder(plain, plain).copies.lengths == ((120, 1),)


def test_a_large_reorder_is_followed_over_its_first_elements() -> None:
    found = follow_reorder(MemoryDesc((64, 512, 56, 56)), MemoryDesc((64, 512, 56, 56), "f32", "nhwc"))
    assert found.n_followed == 258048 == found.writes.longest
    assert found.reads.lengths[0] == (1, 258048)
