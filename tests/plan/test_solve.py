"""The solve against brute force: exact where it says so, bounded where not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.solving import made_up
from blocklayout.plan.network import Choice, Network
from blocklayout.plan.solving.solve import LayoutProblem, improve, solve_layouts


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Up to five groups, each reading up to three values that were computed before it."""
    n_groups = draw(st.integers(1, 5))
    reads = [draw(st.lists(st.integers(0, index), min_size=1, max_size=3)) for index in range(n_groups)]
    outputs = draw(st.sets(st.integers(1, n_groups), min_size=1, max_size=2))
    return made_up(reads, np.random.default_rng(draw(st.integers(0, 10_000))), outputs=sorted(outputs))


def _choices(network: Network) -> Iterator[Choice]:
    return itertools.product(*(range(len(offered)) for offered in network.candidates))


@settings(max_examples=50)
@given(networks())
def test_an_optimal_choice_is_the_cheapest_of_all(network: Network) -> None:
    solution = solve_layouts(network)
    best = min(map(network.total_ns, _choices(network)))
    assert solution.is_optimal
    assert solution.cost_ns == network.total_ns(solution.choice) == pytest.approx(best)


@settings(max_examples=50)
@given(networks(), st.integers(1, 200))
def test_where_tables_are_kept_small_the_bound_holds(network: Network, max_entries: int) -> None:
    solution = solve_layouts(network, max_entries)
    best = min(map(network.total_ns, _choices(network)))
    assert solution.bound_ns <= best + 1e-6
    assert solution.cost_ns >= best - 1e-6
    if solution.is_optimal:
        assert solution.cost_ns == pytest.approx(best)


@settings(max_examples=50)
@given(networks())
def test_the_cost_of_every_other_candidate_is_that_of_the_best_choice_with_it(network: Network) -> None:
    problem = LayoutProblem(network)
    costs = {choice: network.total_ns(choice) for choice in _choices(network)}
    found = problem.costs_of_candidates()
    for group, by_candidate in enumerate(found):
        for taken, cost in enumerate(by_candidate):
            assert cost == pytest.approx(min(c for choice, c in costs.items() if choice[group] == taken))


@settings(max_examples=50)
@given(networks())
def test_the_cost_without_a_copy_is_that_of_the_best_choice_that_makes_none(network: Network) -> None:
    problem = LayoutProblem(network)
    copies = [(value, desc) for value in network.readers for desc in network.copies(value, problem.choice)]
    for (value, desc), cost in zip(copies, problem.costs_without(copies), strict=True):
        without = [network.total_ns(c) for c in _choices(network) if desc not in network.copies(value, c)]
        assert cost == pytest.approx(min(without, default=float("inf")))


@settings(max_examples=50)
@given(networks(), st.integers(0, 1000))
def test_local_search_never_makes_it_worse(network: Network, seed: int) -> None:
    start = tuple((seed + index) % len(offered) for index, offered in enumerate(network.candidates))
    assert network.total_ns(improve(network, start)) <= network.total_ns(start) + 1e-6


def test_a_reorder_is_charged_once_however_many_read_it() -> None:
    network = made_up([[0], [1], [1], [2, 3]], np.random.default_rng(5))
    for choice in _choices(network):
        for value in network.readers:
            copies = network.copies(value, choice)
            assert len(copies) == len(set(copies))
            demands = set(network.demands(value, choice)) - {network.desc_of(value, choice)}
            assert len(copies) <= len(demands)
