"""The choice of layouts as a sum of tables.

Every group is a variable, and so is every value that several groups read: the layout its producer gives it
together with the set of copies made of it. So a reorder is charged once per value and layout, however many
read it. Groups and values are joined by tables of what the layouts between them cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from blocklayout.plan.solving.links import Faces, Link
from blocklayout.plan.solving.min_sum import MinSum, MinSumSolution

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.plan.network import Choice, Network


class LayoutProblem:
    """A network as a problem for :class:`~blocklayout.plan.solving.min_sum.MinSum`; groups are its first variables."""

    def __init__(self, network: Network) -> None:
        """Add up what candidates and the layouts between them cost."""
        self._network = network
        self._faces = [Faces.of(offered) for offered in network.candidates]
        self._links = {value: Link.of(network, self._faces, value) for value in network.readers}
        shared = [link for link in self._links.values() if link.is_shared]
        self._variables = {link.value: len(self._faces) + position for position, link in enumerate(shared)}
        sizes = [len(faces.cheapest) for faces in self._faces] + [len(link.states.states) for link in shared]
        self.is_complete = all(link.states.is_complete for link in shared)
        self.min_sum = MinSum(sizes)
        for group, faces in enumerate(self._faces):
            self.min_sum.add((group,), faces.costs)
        for link in self._links.values():
            for scope, costs in link.costs(self._variables.get(link.value)):
                self.min_sum.add(scope, costs)

    def choice_of(self, solution: MinSumSolution) -> Choice:
        """The cheapest candidate of each group that shows its neighbours the chosen layouts."""
        return tuple(faces.cheapest[taken] for faces, taken in zip(self._faces, solution.choice, strict=False))

    def costs_of_candidates(self, solution: MinSumSolution) -> list[list[float]]:
        """For each group, what the whole network costs at least with each of its candidates."""
        best = solution.best_given([(group,) for group in range(len(self._faces))])
        return [faces.spread(best[(group,)]) for group, faces in enumerate(self._faces)]

    def costs_without(self, solution: MinSumSolution, copies: Sequence[tuple[str, ValueLayout]]) -> list[float]:
        """For each of some copies, what the whole network costs at least where it is not made.

        Args:
            solution: Of this problem, exact.
            copies: Values, and layouts they may be brought to.
        """
        asked = [self._links[value].without(desc, self._variables.get(value)) for value, desc in copies]
        best = solution.best_given([tuple(sorted(each[0])) for each in asked if each is not None])
        return [solution.cost if each is None else _least(best, *each) for each in asked]


def _least(best: Mapping[tuple[int, ...], np.ndarray], scope: tuple[int, ...], extra: np.ndarray) -> float:
    order = np.argsort(scope, kind="stable")
    return float((best[tuple(sorted(scope))] + np.transpose(extra, order)).min())
