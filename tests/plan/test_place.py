"""Placement: buffers alive together never overlap, and the arena stays close to its bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blocklayout.plan.place import ALIGNMENT, place_buffers

SPANS = st.tuples(st.integers(0, 20), st.integers(0, 5)).map(lambda t: (t[0], t[0] + t[1]))
BUFFERS = st.lists(st.tuples(st.integers(0, 5000), SPANS), max_size=25)


@given(BUFFERS)
def test_buffers_alive_together_never_share_bytes(buffers: list[tuple[int, tuple[int, int]]]) -> None:
    sizes = {index: nbytes for index, (nbytes, _) in enumerate(buffers)}
    spans = {index: span for index, (_, span) in enumerate(buffers)}
    placement = place_buffers(sizes, spans)
    for a in spans:
        assert placement.offsets[a] % ALIGNMENT == 0
        assert placement.offsets[a] + sizes[a] <= placement.nbytes
        for b in spans:
            together = a < b and spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]
            if together and sizes[a] and sizes[b]:
                start_a, start_b = placement.offsets[a], placement.offsets[b]
                assert start_a + sizes[a] <= start_b or start_b + sizes[b] <= start_a


@given(BUFFERS)
def test_no_arena_is_below_the_bound(buffers: list[tuple[int, tuple[int, int]]]) -> None:
    sizes = {index: nbytes for index, (nbytes, _) in enumerate(buffers)}
    spans = {index: span for index, (_, span) in enumerate(buffers)}
    placement = place_buffers(sizes, spans)
    assert placement.nbytes >= placement.lower_bound


def test_a_chain_needs_two_buffers_at_a_time() -> None:
    sizes = dict.fromkeys(range(6), 640)
    spans = {index: (index, index + 1) for index in range(6)}
    placement = place_buffers(sizes, spans)
    assert placement.nbytes == placement.lower_bound == 1280
