"""Choose one candidate per group so that the whole network costs least."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from blocklayout.plan.layout_problem import LayoutProblem
from blocklayout.plan.min_sum import MAX_ENTRIES

if TYPE_CHECKING:
    from blocklayout.plan.network import Choice, Network

SWEEPS = 4

ROUNDING = 1e-9
"""Costs that differ by less, as a share, are the same: they are sums in another order."""


@dataclass(frozen=True)
class Solution:
    """A choice, and how far from the best it can be.

    Attributes:
        choice: A candidate for each group.
        cost_ns: Of the whole network.
        bound_ns: No choice costs less.
        is_optimal: Whether that is proven.
    """

    choice: Choice
    cost_ns: float
    bound_ns: float
    is_optimal: bool

    @property
    def gap(self) -> float:
        """How far above the cheapest it can be at most, as a share of the bound."""
        if self.is_optimal:
            return 0.0
        return max(0.0, self.cost_ns / self.bound_ns - 1) if self.bound_ns > 0 else inf


def solve_layouts(network: Network, max_entries: int = MAX_ENTRIES) -> Solution:
    """The cheapest choice: proven so where elimination can, else the best that local search reaches from it."""
    problem = LayoutProblem(network)
    solution = problem.min_sum.solve(max_entries)
    choice = problem.choice_of(solution)
    if not (solution.is_exact and problem.is_complete):
        choice = improve(network, choice)
    cost_ns = network.total_ns(choice)
    is_proven = problem.is_complete and cost_ns <= solution.bound * (1 + ROUNDING)
    return Solution(choice, cost_ns, solution.bound, is_proven)


def improve(network: Network, choice: Choice) -> Choice:
    """Change one group at a time while that lowers the cost."""
    current = list(choice)
    touching = _values_touching(network)
    for _ in range(SWEEPS):
        changed = False
        for index, candidates in enumerate(network.candidates):
            best = current[index]
            best_ns = _local_ns(network, touching[index], current, index)
            for taken in range(len(candidates)):
                current[index], previous = taken, current[index]
                cost = _local_ns(network, touching[index], current, index)
                if cost < best_ns - 1e-6:
                    best, best_ns, changed = taken, cost, True
                current[index] = previous
            current[index] = best
        if not changed:
            break
    return tuple(current)


def _values_touching(network: Network) -> list[tuple[str, ...]]:
    return [
        tuple(dict.fromkeys(value.name for value in (*group.sources.values(), *group.dsts.values())))
        for group in network.groups
    ]


def _local_ns(network: Network, values: tuple[str, ...], choice: list[int], index: int) -> float:
    work = network.candidates[index][choice[index]].cost_ns
    return work + sum(network.value_ns(value, choice) for value in values)
