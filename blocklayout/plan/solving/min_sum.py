"""Minimise a sum of tables over discrete variables: exactly where elimination keeps them small, with a bound elsewhere.

Eliminating a variable adds up the tables it occurs in and keeps, for every assignment of its neighbours, the best
it can do. Chains and series-parallel graphs never need more than two neighbours; where more meet the same step
stays exact as long as the sum fits ``MAX_ENTRIES``. Beyond that the tables are eliminated in several bunches, each
with a minimum of its own: the result is a lower bound, and the bunches guide a choice that may miss the best.

Source: R. Dechter and I. Rish, "Mini-buckets: a general scheme for bounded inference", Journal of the ACM 50(2), 2003.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from itertools import groupby
from math import prod

import numpy as np
from msgspec import Struct

MAX_ENTRIES = 2**18
"""Of one table: two megabytes, a few milliseconds."""

Scope = tuple[int, ...]
"""Variables in ascending order; the axes of a table."""


class _Table(Struct, frozen=True, eq=False):
    """Costs of every assignment of some variables."""

    scope: Scope
    entries: np.ndarray

    def over(self, scope: Scope) -> np.ndarray:
        """The entries with an axis of extent 1 for each variable of ``scope`` that it lacks."""
        extents = dict(zip(self.scope, self.entries.shape, strict=True))
        return self.entries.reshape([extents.get(variable, 1) for variable in scope])

    def given(self, variable: int, choice: Sequence[int]) -> np.ndarray:
        """The costs of each value of one variable, the others as chosen."""
        where: tuple[int | slice, ...] = tuple(slice(None) if v == variable else choice[v] for v in self.scope)
        found: np.ndarray = self.entries[where]
        return found


class _Bunch(Struct, frozen=True, eq=False):
    """Tables that were eliminated together, and their message: the best for each assignment of the rest."""

    variable: int
    scope: Scope
    tables: tuple[_Table, ...]
    message: _Table


class MinSumSolution(Struct, frozen=True, eq=False, dict=True):
    """An assignment, its cost, and a lower bound of all costs.

    ``is_exact``: whether elimination alone proves the choice optimal.
    """

    choice: tuple[int, ...]
    cost: float
    bound: float
    is_exact: bool
    _sizes: Sequence[int]
    _bunches: tuple[_Bunch, ...]

    def best_given(self, scopes: Iterable[Scope]) -> dict[Scope, np.ndarray]:
        """For each of some scopes the least cost of all, for every assignment of these variables.

        Scopes are variables that some table joins, ascending, or single ones; the solution has to be exact.
        """
        if not self.is_exact:
            raise ValueError("only an exact solution knows the best of what it did not choose")
        wanted: dict[int, list[Scope]] = {}
        for scope in dict.fromkeys(scopes):
            wanted.setdefault(min(_varied(scope, self._sizes), key=self._order.__getitem__), []).append(scope)
        found = {}
        for bunch, best in self._downwards:
            for scope in wanted.get(bunch.variable, ()):
                least = _min_over(bunch.scope, best, _varied(scope, self._sizes)) + (self.bound - best.min())
                found[scope] = least.reshape([self._sizes[v] for v in scope])
        return found

    @cached_property
    def _order(self) -> dict[int, int]:
        return {bunch.variable: position for position, bunch in enumerate(self._bunches)}

    @cached_property
    def _downwards(self) -> Sequence[tuple[_Bunch, np.ndarray]]:
        """Each bunch with its tables' sum and the best of all others, those eliminated last first."""
        found: list[tuple[_Bunch, np.ndarray]] = []
        outside: dict[int, np.ndarray] = {}
        origins = {id(bunch.message): bunch for bunch in self._bunches}
        for bunch in reversed(self._bunches):
            best = _sum(bunch.scope, bunch.tables)
            if bunch.variable in outside:
                best = best + np.expand_dims(outside.pop(bunch.variable), bunch.scope.index(bunch.variable))
            for table in bunch.tables:
                child = origins.get(id(table))
                if child is not None:
                    with np.errstate(invalid="ignore"):  # infinity less infinity: the impossible stays so
                        without = best - table.over(bunch.scope)
                    without[np.isnan(without)] = np.inf
                    outside[child.variable] = _min_over(bunch.scope, without, table.scope)
            found.append((bunch, best))
        return found


class MinSum:
    """Variables, and tables of costs over some of them.

    Args:
        sizes: The number of values of each variable.

    Example:
        >>> problem = MinSum([2, 2])
        >>> problem.add((0,), np.array([0.0, 1.0]))
        >>> problem.add((0, 1), np.array([[5.0, 5.0], [3.0, 0.0]]))
        >>> problem.solve().choice
        (1, 1)
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self._tables: list[_Table] = []

    def add(self, scope: Sequence[int], costs: np.ndarray) -> None:
        """Add the costs of every assignment of some variables, an axis for each; infinity forbids one."""
        order = sorted(range(len(scope)), key=scope.__getitem__)
        varied = _varied([scope[i] for i in order], self.sizes)
        self._tables.append(_Table(varied, np.transpose(costs, order).reshape([self.sizes[v] for v in varied])))

    def cost(self, choice: Sequence[int]) -> float:
        """The sum of all tables for an assignment."""
        return float(sum(table.entries[tuple(choice[v] for v in table.scope)] for table in self._tables))

    def solve(self, max_entries: int = MAX_ENTRIES) -> MinSumSolution:
        """The cheapest assignment that elimination finds, and a bound; sums above ``max_entries`` are split."""
        bunches, bound = _eliminate(self.sizes, self._tables, max_entries)
        choice = [0] * len(self.sizes)
        for variable, members in groupby(reversed(bunches), key=lambda bunch: bunch.variable):
            tables = [table for bunch in reversed([*members]) for table in bunch.tables]
            choice[variable] = int(reduce(np.add, [table.given(variable, choice) for table in tables]).argmin())
        is_exact = len({bunch.variable for bunch in bunches}) == len(bunches)
        return MinSumSolution(tuple(choice), self.cost(choice), bound, is_exact, self.sizes, tuple(bunches))


class _Remaining:
    """The tables not yet eliminated, by variable."""

    def __init__(self, sizes: Sequence[int], tables: Iterable[_Table]) -> None:
        self.sizes = sizes
        self.of: list[dict[_Table, None]] = [{} for _ in sizes]
        for table in tables:
            self.add(table)
        for variable, size in enumerate(sizes):  # so that each has a bunch
            self.add(_Table((variable,), np.zeros(size)))

    def add(self, table: _Table) -> None:
        for variable in table.scope:
            self.of[variable][table] = None

    def take(self, variable: int) -> list[_Table]:
        tables = list(self.of[variable])
        for table in tables:
            for each in table.scope:
                del self.of[each][table]
        return tables

    def n_entries(self, variable: int) -> int:
        """Of the sum of all tables that a variable occurs in."""
        return self.volume(v for table in self.of[variable] for v in table.scope)

    def volume(self, variables: Iterable[int]) -> int:
        return prod(self.sizes[v] for v in set(variables))


def _eliminate(sizes: Sequence[int], tables: Iterable[_Table], max_entries: int) -> tuple[list[_Bunch], float]:
    """Take one variable after the other out, that first whose tables' sum is smallest."""
    remaining = _Remaining(sizes, tables)
    heap = [(remaining.n_entries(variable), variable) for variable in range(len(sizes))]
    heapq.heapify(heap)
    latest = {variable: n_entries for n_entries, variable in heap}
    bunches, bound = [], 0.0
    while heap:
        n_entries, variable = heapq.heappop(heap)
        if latest.get(variable) != n_entries:
            continue
        del latest[variable]
        for members in _bunched(remaining, remaining.take(variable), max_entries):
            bunch = _bunch(variable, members)
            bunches.append(bunch)
            if bunch.message.scope:
                remaining.add(bunch.message)
            else:
                bound += float(bunch.message.entries)
            for neighbour in bunch.message.scope:
                latest[neighbour] = remaining.n_entries(neighbour)
                heapq.heappush(heap, (latest[neighbour], neighbour))
    return bunches, bound


def _bunched(remaining: _Remaining, tables: list[_Table], max_entries: int) -> list[list[_Table]]:
    """The tables in as few bunches as stay within the limit: each goes to the first that has room."""

    def fits(scope: set[int]) -> bool:
        return remaining.volume(scope) <= max_entries

    if fits({v for table in tables for v in table.scope}):
        return [tables]
    bunches: list[tuple[set[int], list[_Table]]] = []
    for table in sorted(tables, key=lambda table: -table.entries.size):
        for scope, members in bunches:
            if fits(scope.union(table.scope)):
                scope.update(table.scope)
                members.append(table)
                break
        else:
            bunches.append((set(table.scope), [table]))
    return [members for _, members in bunches]


def _bunch(variable: int, tables: Sequence[_Table]) -> _Bunch:
    scope = tuple(sorted({v for table in tables for v in table.scope}))
    axis = scope.index(variable)
    best = _sum(scope, tables).min(axis=axis)
    return _Bunch(variable, scope, tuple(tables), _Table((*scope[:axis], *scope[axis + 1 :]), best))


def _sum(scope: Scope, tables: Sequence[_Table]) -> np.ndarray:
    return reduce(np.add, [table.over(scope) for table in tables])


def _varied(scope: Sequence[int], sizes: Sequence[int]) -> Scope:
    """The variables that have more than one value, or else the first: tables need no axis for the others."""
    return tuple(v for v in scope if sizes[v] > 1) or (scope[0],)


def _min_over(scope: Scope, entries: np.ndarray, kept: Scope) -> np.ndarray:
    """The least entry for each assignment of ``kept``."""
    gone = tuple(axis for axis, variable in enumerate(scope) if variable not in kept)
    least: np.ndarray = entries.min(axis=gone) if gone else entries
    return least
