"""Elimination against brute force on small random problems."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blocklayout.plan.solving.min_sum import MinSum, MinSumSolution

SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=6)
SEEDS = st.integers(0, 1000)


def _problem(sizes: list[int], scopes: Sequence[tuple[int, ...]], seed: int) -> MinSum:
    rng = np.random.default_rng(seed)
    problem = MinSum(sizes)
    for scope in [*((variable,) for variable in range(len(sizes))), *scopes]:
        costs = rng.integers(0, 100, [sizes[variable] for variable in scope]).astype(float)
        forbidden = rng.random(costs.shape) < 0.2
        forbidden[(0,) * len(scope)] = False  # so that one assignment is always allowed
        problem.add(scope, np.where(forbidden, np.inf, costs))
    return problem


def _all(problem: MinSum) -> dict[tuple[int, ...], float]:
    return {choice: problem.cost(choice) for choice in itertools.product(*map(range, problem.sizes))}


def _check_exact(problem: MinSum, solution: MinSumSolution) -> None:
    best = min(_all(problem).values())
    assert solution.is_exact
    assert solution.cost == best == solution.bound == problem.cost(solution.choice)


@given(SIZES, SEEDS)
def test_chains_are_solved_exactly(sizes: list[int], seed: int) -> None:
    problem = _problem(sizes, [(n + 1, n) for n in range(len(sizes) - 1)], seed)
    _check_exact(problem, problem.solve())


@given(st.lists(st.integers(1, 3), min_size=4, max_size=7), SEEDS)
def test_residual_blocks_never_need_more_than_two_neighbours(sizes: list[int], seed: int) -> None:
    chain = [(n, n + 1) for n in range(len(sizes) - 1)]
    skips = [(n, n + 3) for n in range(0, len(sizes) - 3, 3)]
    problem = _problem(sizes, chain + skips, seed)
    _check_exact(problem, problem.solve(max_entries=3**3))


@given(SIZES, SEEDS)
def test_dense_graphs_are_solved_exactly_while_their_tables_fit(sizes: list[int], seed: int) -> None:
    problem = _problem(sizes, list(itertools.combinations(range(len(sizes)), 2)), seed)
    _check_exact(problem, problem.solve())


@given(SIZES, SEEDS, st.integers(1, 30))
def test_where_tables_do_not_fit_the_bound_holds(sizes: list[int], seed: int, max_entries: int) -> None:
    problem = _problem(sizes, list(itertools.combinations(range(len(sizes)), 2)), seed)
    solution = problem.solve(max_entries)
    best = min(_all(problem).values())
    assert solution.bound <= best <= solution.cost == problem.cost(solution.choice)
    if solution.is_exact:
        assert solution.cost == best


@given(SIZES, SEEDS)
def test_the_best_with_any_value_forced_is_known(sizes: list[int], seed: int) -> None:
    scopes = [(n, n + 1) for n in range(len(sizes) - 1)] + [(0, n) for n in range(2, len(sizes))]
    problem = _problem(sizes, scopes, seed)
    costs = _all(problem)
    asked = [*((variable,) for variable in range(len(sizes))), *scopes]
    for scope, best in problem.solve().best_given(asked).items():
        for values in itertools.product(*(range(sizes[variable]) for variable in scope)):
            alike = (c for choice, c in costs.items() if tuple(choice[v] for v in scope) == values)
            assert best[values] == pytest.approx(min(alike))


def test_tables_of_the_same_variables_add_up() -> None:
    problem = MinSum([2, 2])
    problem.add((0,), np.array([0.0, 1.0]))
    problem.add((0, 1), np.array([[2.0, 2.0], [0.0, 5.0]]))
    problem.add((1, 0), np.array([[2.0, 0.0], [2.0, 0.0]]))
    assert problem.solve().choice == (1, 0)


def test_what_an_inexact_solution_did_not_choose_is_not_known() -> None:
    problem = _problem([3, 3, 3], [(0, 1), (1, 2), (0, 2)], 0)
    solution = problem.solve(max_entries=9)
    assert not solution.is_exact
    with pytest.raises(ValueError, match="exact"):
        solution.best_given([(0,)])


def test_parts_that_nothing_joins_are_solved_each_for_itself() -> None:
    problem = _problem([2, 3, 2], [(0, 1)], 3)
    _check_exact(problem, problem.solve())
    best = problem.solve().best_given([(2,)])[(2,)]
    assert best.min() == pytest.approx(problem.solve().cost)


def test_more_variables_of_one_value_than_an_array_has_axes() -> None:
    n = 100
    problem = MinSum([2, *[1] * n])
    problem.add((0,), np.array([3.0, 1.0]))
    for variable in range(1, n + 1):
        problem.add((0, variable), np.array([[0.0], [0.01]]))
    solution = problem.solve()
    assert solution.choice[0] == 1
    assert solution.cost == pytest.approx(2.0)
    assert solution.bound <= solution.cost + 1e-9
