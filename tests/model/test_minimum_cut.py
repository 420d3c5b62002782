from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import combinations, permutations

from hypothesis import given
from hypothesis import strategies as st

from blocklayout.model.passes.push_transposes import UNCUT, sinks_side

INNER = "abcd"
EDGES = [edge for edge in permutations(f"s{INNER}t", 2) if edge != ("s", "t")]


def price(prices: Mapping[tuple[Hashable, Hashable], int], side: set[str]) -> int:
    return sum(amount for (tail, head), amount in prices.items() if tail not in side and head in side)


@given(st.dictionaries(st.sampled_from(EDGES), st.integers(0, 9)))
def test_no_cut_is_cheaper_and_no_equal_one_smaller(prices: Mapping[tuple[Hashable, Hashable], int]) -> None:
    found = {str(node) for node in sinks_side(prices, "s", "t")}
    sides = [{"t", *inner} for size in range(len(INNER) + 1) for inner in combinations(INNER, size)]
    cheapest = min(price(prices, side) for side in sides)
    assert price(prices, found) == cheapest
    assert all(found <= side for side in sides if price(prices, side) == cheapest)


def test_what_must_not_be_cut_stays_together() -> None:
    assert sinks_side({("s", "a"): 5, ("a", "b"): UNCUT, ("b", "t"): UNCUT}, "s", "t") == {"a", "b", "t"}
    assert sinks_side({("s", "a"): UNCUT, ("a", "b"): UNCUT, ("b", "t"): 5}, "s", "t") == {"t"}
