"""Choose one candidate per group so that the whole network costs least, or so that it departs from a usual choice."""

from __future__ import annotations

from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Self

from msgspec import Struct

from blocklayout.plan.solving.layout_problem import LayoutProblem
from blocklayout.plan.solving.min_sum import MAX_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.ir import ValueLayout
    from blocklayout.plan.network import Choice, Network
    from blocklayout.plan.solving.min_sum import MinSumSolution

SWEEPS = 4

ROUNDING = 1e-9
"""Costs that differ by less, as a share, are the same: they are sums in another order."""


class Solution(Struct, frozen=True, eq=False, dict=True):
    """A choice, and how far from the best it can be.

    Attributes:
        choice: A candidate for each group.
        cost_ns: Of the whole network.
        bound_ns: No choice costs less.
        is_optimal: Whether that is proven.
        is_exact: Whether elimination proves it, so that what every other choice costs is known as well.
        network: What was chosen from.
    """

    choice: Choice
    cost_ns: float
    bound_ns: float
    is_optimal: bool
    is_exact: bool
    network: Network
    _problem: LayoutProblem | None = None
    _min_sum: MinSumSolution | None = None

    @classmethod
    def only(cls, network: Network) -> Self | None:
        """Of a network whose groups have one candidate each; ``None`` for others."""
        if any(len(offered) > 1 for offered in network.candidates):
            return None
        choice = (0,) * len(network.candidates)
        cost_ns = network.total_ns(choice)
        return cls(choice, cost_ns, cost_ns, is_optimal=True, is_exact=False, network=network)

    @property
    def gap(self) -> float:
        """How far above the cheapest it can be at most, as a share of the bound."""
        if self.is_optimal:
            return 0.0
        return max(0.0, self.cost_ns / self.bound_ns - 1) if self.bound_ns > 0 else inf

    @cached_property
    def costs_of_candidates(self) -> list[list[float]]:
        """For each group, what the whole network costs at least with each of its candidates.

        Where the solution is not exact, what it costs if nothing else is chosen anew.
        """
        if self._problem is not None and self._min_sum is not None and self.is_exact:
            return self._problem.costs_of_candidates(self._min_sum)
        return [
            [self._with(group, taken) for taken in range(len(offered))] if len(offered) > 1 else [self.cost_ns]
            for group, offered in enumerate(self.network.candidates)
        ]

    def costs_without(self, copies: Sequence[tuple[str, ValueLayout]]) -> list[float]:
        """For each of some copies of values, what the whole network costs at least where it is not made.

        Infinity where it cannot be had, or the solution is not exact.
        """
        if self._problem is None or self._min_sum is None or not self.is_exact:
            return [inf] * len(copies)
        return self._problem.costs_without(self._min_sum, copies)

    def _with(self, group: int, taken: int) -> float:
        values = self.network.touching[group]
        other = [*self.choice[:group], taken, *self.choice[group + 1 :]]
        before = _local_ns(self.network, values, list(self.choice), group)
        return self.cost_ns - before + _local_ns(self.network, values, other, group)


def solve_layouts(network: Network, max_entries: int = MAX_ENTRIES) -> Solution:
    """The cheapest choice: proven so where elimination can, else the best that local search reaches from it."""
    problem = LayoutProblem(network)
    solution = problem.min_sum.solve(max_entries)
    choice = problem.choice_of(solution)
    is_exact = solution.is_exact and problem.is_complete
    if not is_exact:
        choice = improve(network, choice)
    cost_ns = network.total_ns(choice)
    is_proven = problem.is_complete and cost_ns <= solution.bound * (1 + ROUNDING)
    return Solution(choice, cost_ns, solution.bound, is_proven, is_exact, network, problem, solution)


def improve(network: Network, choice: Choice) -> Choice:
    """Change one group at a time while that lowers the cost."""
    current = list(choice)
    touching = network.touching
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


def _local_ns(network: Network, values: Sequence[str], choice: list[int], index: int) -> float:
    work = network.work_ns[index][choice[index]]
    return work + sum(network.value_ns(value, choice) for value in values)


def departing_choice(network: Network, usual: Choice, promise: float) -> Choice:
    """The cheapest choice where whatever a usual one does not do costs more, by a share.

    So a candidate, or a reorder, that the usual choice lacks has to win by more than that. It never costs more than
    the usual choice. Without a charge it is the plain solve.
    """
    charged = network.departing(usual, promise)
    choice = solve_layouts(charged).choice
    return choice if charged.total_ns(choice) <= charged.total_ns(usual) else usual
