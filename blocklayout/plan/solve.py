"""Choose one candidate per group so that the whole network costs least.

Every group is a node with a cost per candidate, every value an edge with the cost of the reorder
between its producer's candidates and its reader's. Nodes of degree 0, 1 and 2 are eliminated
exactly (chains and series-parallel graphs disappear altogether); a node of higher degree is
decided by what it costs with its neighbours at their best. Edges charge a reorder per reader;
a local search over the true cost, which charges it once, follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.network import Choice, Network

SWEEPS = 4


def solve_layouts(network: Network) -> Choice:
    """The cheapest choice found: exact where every value has one reader and the graph reduces."""
    problem = _problem_of(network)
    return improve(network, problem.solve())


def improve(network: Network, choice: Choice) -> Choice:
    """Change one group at a time while that lowers the true cost."""
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
        tuple(dict.fromkeys([*(value.name for value in group.sources.values()), group.dst.name]))
        for group in network.groups
    ]


def _local_ns(network: Network, values: tuple[str, ...], choice: list[int], index: int) -> float:
    work = network.candidates[index][choice[index]].cost_ns
    return work + sum(network.value_ns(value, choice) for value in values)


@dataclass
class PairwiseProblem:
    """Nodes with a cost vector each, edges with a cost matrix each; minimised by elimination.

    Attributes:
        costs: Per node, the cost of each of its candidates.
        edges: ``edges[u][v][i, j]`` is the cost of ``u`` taking ``i`` while ``v`` takes ``j``; kept both ways.
    """

    costs: list[np.ndarray]
    edges: list[dict[int, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.edges = [{} for _ in self.costs]

    def add_edge(self, u: int, v: int, matrix: np.ndarray) -> None:
        """Add the cost of every pair of candidates of two nodes."""
        if v in self.edges[u]:
            matrix = self.edges[u][v] + matrix
        self.edges[u][v] = matrix
        self.edges[v][u] = matrix.T

    def solve(self) -> tuple[int, ...]:
        """A choice per node; the optimum if no node of degree above 2 had to be decided."""
        decisions: list[tuple[int, Callable[[list[int]], int]]] = []
        worklist = dict.fromkeys(range(len(self.costs)))
        alive = set(worklist)
        while alive:
            node = self._next(worklist, alive)
            neighbours = list(self.edges[node])
            decisions.append((node, self._eliminate(node, neighbours)))
            alive.remove(node)
            worklist |= dict.fromkeys(neighbours)
        choice = [0] * len(self.costs)
        for node, decide in reversed(decisions):
            choice[node] = decide(choice)
        return tuple(choice)

    def _next(self, worklist: dict[int, None], alive: set[int]) -> int:
        """A node of degree at most 2 where there is one, else the one of highest degree."""
        while worklist:
            node = next(iter(worklist))
            del worklist[node]
            if node in alive and len(self.edges[node]) <= 2:
                return node
        return max(sorted(alive), key=lambda node: len(self.edges[node]))

    def _eliminate(self, node: int, neighbours: list[int]) -> Callable[[list[int]], int]:
        matrices = [self.edges[node][neighbour] for neighbour in neighbours]
        if len(neighbours) > 2:
            return self._decide_now(node, neighbours, matrices)
        own = self.costs[node]
        self._detach(node, neighbours)
        if len(neighbours) == 1:
            self.costs[neighbours[0]] = self.costs[neighbours[0]] + (own[:, None] + matrices[0]).min(axis=0)
        elif len(neighbours) == 2:
            total = own[:, None, None] + matrices[0][:, :, None] + matrices[1][:, None, :]
            self.add_edge(neighbours[0], neighbours[1], total.min(axis=0))
        return _best_given(own, neighbours, matrices)

    def _decide_now(self, node: int, neighbours: list[int], matrices: list[np.ndarray]) -> Callable[[list[int]], int]:
        total = self.costs[node].copy()
        for neighbour, matrix in zip(neighbours, matrices, strict=True):
            total += (matrix + self.costs[neighbour][None, :]).min(axis=1)
        taken = int(total.argmin())
        self._detach(node, neighbours)
        for neighbour, matrix in zip(neighbours, matrices, strict=True):
            self.costs[neighbour] = self.costs[neighbour] + matrix[taken]
        return lambda _choice: taken

    def _detach(self, node: int, neighbours: list[int]) -> None:
        for neighbour in neighbours:
            del self.edges[neighbour][node]
        self.edges[node] = {}


def _best_given(own: np.ndarray, neighbours: list[int], matrices: list[np.ndarray]) -> Callable[[list[int]], int]:
    def decide(choice: list[int]) -> int:
        total = own.copy()
        for neighbour, matrix in zip(neighbours, matrices, strict=True):
            total += matrix[:, choice[neighbour]]
        return int(total.argmin())

    return decide


def _problem_of(network: Network) -> PairwiseProblem:
    problem = PairwiseProblem([np.array([c.cost_ns for c in offered]) for offered in network.candidates])
    for value, readers in network.readers.items():
        producer = network.producers.get(value)
        produced = [network.fixed[value]] if producer is None else network.offers(value)
        for reader, operand in readers:
            demanded = [candidate.source_descs[operand] for candidate in network.candidates[reader]]
            if producer is None:
                problem.costs[reader] = problem.costs[reader] + _reorders(network, produced, demanded)[0]
                continue
            problem.add_edge(producer, reader, _reorders(network, produced, demanded))
        if value in network.results and producer is not None:
            problem.costs[producer] = (
                problem.costs[producer] + _reorders(network, produced, [network.results[value]])[:, 0]
            )
    return problem


def _reorders(network: Network, produced: list[MemoryDesc], demanded: list[MemoryDesc]) -> np.ndarray:
    price = network.costs.reorder_ns
    return np.array([[0.0 if src.readable_as(dst) else price(src, dst) for dst in demanded] for src in produced])
