"""The elimination against brute force on small random problems."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blocklayout.plan.solve import PairwiseProblem

Matrices = dict[tuple[int, int], np.ndarray]

SIZES = st.lists(st.integers(1, 3), min_size=1, max_size=7)


def _random(sizes: list[int], edges: list[tuple[int, int]], seed: int) -> tuple[list[np.ndarray], Matrices]:
    rng = np.random.default_rng(seed)
    costs = [rng.integers(0, 100, size).astype(float) for size in sizes]
    matrices = {(u, v): rng.integers(0, 100, (sizes[u], sizes[v])).astype(float) for u, v in edges}
    return costs, matrices


def _total(choice: tuple[int, ...], costs: list[np.ndarray], matrices: Matrices) -> float:
    own = sum(cost[taken] for cost, taken in zip(costs, choice, strict=True))
    return float(own) + sum(float(matrix[choice[u], choice[v]]) for (u, v), matrix in matrices.items())


def _solved(costs: list[np.ndarray], matrices: Matrices) -> tuple[int, ...]:
    problem = PairwiseProblem([cost.copy() for cost in costs])
    for (u, v), matrix in matrices.items():
        problem.add_edge(u, v, matrix)
    return problem.solve()


def _best(costs: list[np.ndarray], matrices: Matrices) -> float:
    choices = itertools.product(*(range(len(cost)) for cost in costs))
    return min(_total(choice, costs, matrices) for choice in choices)


@given(SIZES, st.integers(0, 1000))
def test_chains_are_solved_exactly(sizes: list[int], seed: int) -> None:
    costs, matrices = _random(sizes, [(n, n + 1) for n in range(len(sizes) - 1)], seed)
    assert _total(_solved(costs, matrices), costs, matrices) == _best(costs, matrices)


@given(st.lists(st.integers(1, 3), min_size=4, max_size=8), st.integers(0, 1000))
def test_residual_blocks_are_solved_exactly(sizes: list[int], seed: int) -> None:
    chain = [(n, n + 1) for n in range(len(sizes) - 1)]
    skips = [(n, n + 3) for n in range(0, len(sizes) - 3, 3)]
    costs, matrices = _random(sizes, chain + skips, seed)
    assert _total(_solved(costs, matrices), costs, matrices) == _best(costs, matrices)


@given(SIZES, st.integers(0, 1000))
def test_dense_graphs_are_never_below_the_optimum(sizes: list[int], seed: int) -> None:
    costs, matrices = _random(sizes, list(itertools.combinations(range(len(sizes)), 2)), seed)
    assert _total(_solved(costs, matrices), costs, matrices) >= _best(costs, matrices)


def test_parallel_edges_add_up() -> None:
    problem = PairwiseProblem([np.array([0.0, 1.0]), np.array([0.0, 0.0])])
    problem.add_edge(0, 1, np.array([[2.0, 2.0], [0.0, 5.0]]))
    problem.add_edge(1, 0, np.array([[2.0, 0.0], [2.0, 0.0]]))
    assert problem.solve() == (1, 0)
