"""Choose one candidate per tile so that the whole network costs least, or so that it departs from a usual choice.

The choice is a sum of tables. Every tile is a variable, and so is every value that several tiles read: the layout
in which it is produced together with the set of copies made of it. So a reorder is charged once per value and layout,
however many read it. Groups and values are joined by tables of the costs of layouts between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec import Struct

from blocklayout.plan.solving.copies import CopyStates, Layouts
from blocklayout.plan.solving.min_sum import MAX_ENTRIES, MinSum

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, ValueLayout
    from blocklayout.plan.network import Choice, Network

SWEEPS = 4

ROUNDING = 1e-9
"""Costs that differ by less, as a share, are the same: they are sums in another order."""


_Table = tuple[tuple[int, ...], np.ndarray]
"""Variables, and costs by combination of their values."""


class Faces(Struct, frozen=True, eq=False, dict=True):
    """The combinations of layouts a tile can show its neighbours.

    Attributes:
        cheapest: The cheapest candidate behind each combination.
        of_candidate: The combination each candidate has.
    """

    offered: Sequence[Candidate]
    work_ns: Sequence[float]
    cheapest: tuple[int, ...]
    of_candidate: tuple[int, ...]

    @classmethod
    def of(cls, offered: Sequence[Candidate], work_ns: Sequence[float]) -> Faces:
        """The faces of some candidates."""
        numbers: dict[object, int] = {}
        of_candidate = tuple(numbers.setdefault((c.sources, c.dst, c.others), len(numbers)) for c in offered)
        cheapest: dict[int, int] = {}
        for index, face in enumerate(of_candidate):
            if face not in cheapest or work_ns[index] < work_ns[cheapest[face]]:
                cheapest[face] = index
        return cls(offered, work_ns, tuple(cheapest[face] for face in range(len(numbers))), of_candidate)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """The cheapest candidate of each face."""
        return tuple(self.offered[index] for index in self.cheapest)

    @cached_property
    def costs(self) -> np.ndarray:
        """Nanoseconds of each face's cheapest candidate."""
        return np.array([self.work_ns[index] for index in self.cheapest])

    def spread(self, by_face: np.ndarray) -> list[float]:
        """From a cost of the whole by face to one by candidate."""
        others = by_face - self.costs
        return [float(others[face]) + ns for face, ns in zip(self.of_candidate, self.work_ns, strict=True)]


class Link(Struct, frozen=True, eq=False, dict=True):
    """A value between the tiles: who produces it in which layouts, who wants it in which.

    Attributes:
        value: Its name.
        producer: The tile that settles its layout; ``None`` for the caller's.
        produced: Its layouts by the producer's faces; one for the caller's.
        wanted: By each tile that reads it, the layouts by its faces, for each operand that it is.
        result: The caller's layout, if it is an output.
    """

    layouts: Layouts
    value: str
    producer: int | None
    produced: np.ndarray
    wanted: Mapping[int, Sequence[np.ndarray]]
    result: int | None

    @classmethod
    def of(cls, network: Network, faces: Sequence[Faces], value: str) -> Link:
        """The link that a value of a network is."""
        producer = network.producer_of(value)
        if producer is None:
            produced = network.offers(value)
        else:
            produced = [network.produced(value, each) for each in faces[producer].candidates]
        demanded = [
            (reader, [candidate.source_descs[operand] for candidate in faces[reader].candidates])
            for reader, operand in network.readers[value]
        ]
        result = network.results.get(value)
        descs = [*produced, *(desc for _, column in demanded for desc in column), *([result] if result else [])]
        layouts = network.layouts_of(descs)
        wanted: dict[int, list[np.ndarray]] = {}
        for reader, column in demanded:
            wanted.setdefault(reader, []).append(layouts.indices(column))
        own = layouts.indices(produced)
        return cls(layouts, value, producer, own, wanted, layouts.index(result) if result else None)

    @property
    def is_shared(self) -> bool:
        """Whether several may read it, or who settles it does, so that its copies are a choice of their own."""
        return len(self.wanted) + (self.result is not None) > 1 or self.producer in self.wanted

    @cached_property
    def states(self) -> CopyStates:
        """Its states, if it is shared."""
        columns = [column for operands in self.wanted.values() for column in operands]
        wanted = [int(kind) for column in columns for kind in column]
        results = [] if self.result is None else [self.result]
        return CopyStates.of(self.layouts, self.produced.tolist(), [*wanted, *results], len(columns) + len(results))

    def costs(self, variable: int | None) -> Iterator[_Table]:
        """Costs between its producer and its readers: through a variable of its own if it is shared."""
        if variable is None:
            scope = self._direct_scope
            if scope and self._columns:
                rows: dict[int, list[float]] = {}
                produced = self.produced.tolist()
                for start in dict.fromkeys(produced):
                    known = {wanted: self.layouts.set_ns(start, wanted) for wanted in dict.fromkeys(self._columns)}
                    rows[start] = [known[wanted] for wanted in self._columns]
                yield scope, self._as_ends(np.array([rows[start] for start in produced]))
            return
        yield (variable,), self.states.costs
        if self.producer is not None:
            yield (self.producer, variable), self.states.produced_as(self.produced)
        for reader, operands in self.wanted.items():
            for kinds in operands:
                yield (variable, reader), self.states.serving(kinds)
        if self.result is not None:
            yield (variable,), self.states.serving(np.array([self.result]))[:, 0]

    def without(self, desc: ValueLayout, variable: int | None) -> _Table | None:
        """Nothing where no copy in a layout is made of it, else infinity; over the variables that decide that.

        ``None`` for a layout that no reader ever asks for: a policy of its own may make such a copy.
        """
        if not self.layouts.has(desc):
            return None
        kind = self.layouts.index(desc)
        if variable is not None:
            return (variable,), self.states.without(kind)
        scope = self._direct_scope
        if not scope or not self._columns:
            return None
        rows = [[self.layouts.makes(kind, start, wanted) for wanted in self._columns] for start in self.produced]
        return scope, np.where(self._as_ends(np.array(rows)), np.inf, 0.0)

    @property
    def _direct_scope(self) -> tuple[int, ...]:
        """The producer and the only reader, as far as they are tiles."""
        return tuple(end for end in (self.producer, *self.wanted) if end is not None)

    @cached_property
    def _columns(self) -> list[tuple[int, ...]]:
        """Layouts that the only reader wants, by its faces: a kind for each operand that the value is."""
        for operands in self.wanted.values():
            return [tuple(map(int, kinds)) for kinds in zip(*operands, strict=True)]
        return [] if self.result is None else [(self.result,)]

    def _as_ends(self, table: np.ndarray) -> np.ndarray:
        """Without the axis of an end that is no tile."""
        ends: np.ndarray = table
        if self.producer is None:
            ends = ends.min(axis=0)  # an input comes in its best layout, where it has several
        return ends if self.wanted else ends[:, 0]


class LayoutProblem:
    """A network as a problem for :class:`~blocklayout.plan.solving.min_sum.MinSum`, solved; tiles are variables first.

    Attributes:
        solution: By faces of tiles, and states of values.
        is_exact: Whether elimination proves it, so that the cost of every other choice is known.
        choice: The cheapest candidate of each tile that shows its neighbours the chosen layouts.
    """

    def __init__(self, network: Network, max_entries: int = MAX_ENTRIES) -> None:
        """Add up the costs of candidates and of the layouts between them, and find the least."""
        offers = list(zip(network.candidates, network.work_ns, strict=True))
        distinct = {(id(offered), id(work_ns)): (offered, work_ns) for offered, work_ns in offers}  # some are shared
        made = {key: Faces.of(*each) for key, each in distinct.items()}
        self._faces = [made[id(offered), id(work_ns)] for offered, work_ns in offers]
        self._links = {value: Link.of(network, self._faces, value) for value in network.readers}
        shared = [link for link in self._links.values() if link.is_shared]
        self._variables = {link.value: len(self._faces) + position for position, link in enumerate(shared)}
        sizes = [len(faces.cheapest) for faces in self._faces] + [len(link.states.costs) for link in shared]
        self.is_complete = all(link.states.is_complete for link in shared)
        min_sum = MinSum(sizes)
        for tile, faces in enumerate(self._faces):
            min_sum.add((tile,), faces.costs)
        for link in self._links.values():
            for scope, costs in link.costs(self._variables.get(link.value)):
                min_sum.add(scope, costs)
        self.solution = min_sum.solve(max_entries)
        self.is_exact = self.solution.is_exact and self.is_complete
        taken = zip(self._faces, self.solution.choice, strict=False)
        self.choice: Choice = tuple(faces.cheapest[face] for faces, face in taken)

    def costs_of_candidates(self) -> list[list[float]]:
        """For each tile, the least cost of the network with each of its candidates, of an exact solution."""
        best = self.solution.best_given([(tile,) for tile in range(len(self._faces))])
        return [faces.spread(best[(tile,)]) for tile, faces in enumerate(self._faces)]

    def costs_without(self, copies: Sequence[tuple[str, ValueLayout]]) -> list[float]:
        """For each copy of a value in a layout, the least cost of the network without it, of an exact solution."""
        asked = [self._links[value].without(desc, self._variables.get(value)) for value, desc in copies]
        best = self.solution.best_given([tuple(sorted(each[0])) for each in asked if each is not None])
        return [self.solution.cost if each is None else _least(best, *each) for each in asked]


def _least(best: Mapping[tuple[int, ...], np.ndarray], scope: tuple[int, ...], extra: np.ndarray) -> float:
    order = np.argsort(scope, kind="stable")
    return float((best[tuple(sorted(scope))] + np.transpose(extra, order)).min())


class Solution(Struct, frozen=True, eq=False, dict=True):
    """A choice, and how far from the best it can be.

    Attributes:
        bound_ns: No choice costs less.
        is_optimal: Whether that is proven.
        is_exact: Whether elimination proves it, so that the cost of every other choice is known.
    """

    choice: Choice
    cost_ns: float
    bound_ns: float
    is_optimal: bool
    is_exact: bool
    network: Network
    _exact: LayoutProblem | None = None

    @classmethod
    def only(cls, network: Network) -> Self | None:
        """Of a network whose tiles have one candidate each; ``None`` for others."""
        if any(len(offered) > 1 for offered in network.candidates):
            return None
        choice = (0,) * len(network.candidates)
        cost_ns = network.total_ns(choice)
        return cls(choice, cost_ns, cost_ns, is_optimal=True, is_exact=False, network=network)

    @cached_property
    def costs_of_candidates(self) -> list[list[float]]:
        """For each tile, the least cost of the whole network with each of its candidates.

        Where the solution is not exact, the cost if nothing else is chosen anew.
        """
        if self._exact is not None:
            return self._exact.costs_of_candidates()
        return [
            [self._with(tile, taken) for taken in range(len(offered))] if len(offered) > 1 else [self.cost_ns]
            for tile, offered in enumerate(self.network.candidates)
        ]

    def costs_without(self, copies: Sequence[tuple[str, ValueLayout]]) -> list[float]:
        """For each of some copies of values, the least cost of the whole network without it.

        Infinity where it cannot be had, or the solution is not exact.
        """
        return [inf] * len(copies) if self._exact is None else self._exact.costs_without(copies)

    def _with(self, tile: int, taken: int) -> float:
        other = [*self.choice[:tile], taken, *self.choice[tile + 1 :]]
        before, after = (_local_ns(self.network, choice, tile) for choice in (self.choice, other))
        return self.cost_ns - before + after


def solve_layouts(network: Network, max_entries: int = MAX_ENTRIES) -> Solution:
    """The cheapest choice: proven so where elimination can, else the best that local search reaches from it."""
    problem = LayoutProblem(network, max_entries)
    is_exact, bound = problem.is_exact, problem.solution.bound
    choice = problem.choice if is_exact else improve(network, problem.choice)
    cost_ns = network.total_ns(choice)
    is_proven = problem.is_complete and cost_ns <= bound * (1 + ROUNDING)
    return Solution(choice, cost_ns, bound, is_proven, is_exact, network, problem if is_exact else None)


def improve(network: Network, choice: Choice) -> Choice:
    """Change one tile at a time while that lowers the cost."""
    current = list(choice)
    for _ in range(SWEEPS):
        changed = False
        for index, candidates in enumerate(network.candidates):
            best, best_ns = current[index], _local_ns(network, current, index)
            for taken in range(len(candidates)):
                current[index] = taken
                cost = _local_ns(network, current, index)
                if cost < best_ns - 1e-6:
                    best, best_ns, changed = taken, cost, True
            current[index] = best
        if not changed:
            break
    return tuple(current)


def _local_ns(network: Network, choice: Sequence[int], index: int) -> float:
    """The part of the cost that a tile's candidate decides."""
    work = network.work_ns[index][choice[index]]
    return work + sum(network.value_ns(value, choice) for value in network.touching[index])


def departing_choice(network: Network, usual: Choice, promise: float) -> Choice:
    """The cheapest choice where all that a usual one does not do costs more, by a share.

    So a candidate, or a reorder, that the usual choice lacks has to win by more than that. It never costs more than
    the usual choice.
    """
    charged = network.departing(usual, promise)
    choice = solve_layouts(charged).choice
    return choice if charged.total_ns(choice) <= charged.total_ns(usual) else usual
