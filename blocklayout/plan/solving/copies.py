"""A value's layouts as the solve sees them: which can be read as which, and the price of copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import combinations

import numpy as np
from msgspec import Struct

from blocklayout.ir import ValueLayout, readable_as

_MAX_CACHED = 1024
_MAX_STATES_CACHED = 64  # they may be large

MAX_STATES = 4096
"""Of a value with several readers; beyond that, sets of more than two copies are left out."""


def copies_wanted(produced: ValueLayout, demands: Iterable[ValueLayout]) -> list[ValueLayout]:
    """The layouts a value has to be brought to so that each demand finds one it can be read as; in demands' order."""
    wanted = [desc for desc in dict.fromkeys(demands) if not readable_as(produced, desc)]
    return [desc for desc in wanted if not any(_serves_before(other, desc, wanted) for other in wanted)]


def _serves_before(other: ValueLayout, desc: ValueLayout, wanted: Sequence[ValueLayout]) -> bool:
    """Whether a copy in ``other`` makes one in ``desc`` needless; of two that serve each other the first stays."""
    if other is desc or not readable_as(other, desc):
        return False
    return not readable_as(desc, other) or wanted.index(other) < wanted.index(desc)


class Layouts(Struct, frozen=True, eq=False, dict=True):
    """The layouts that one value may be produced or wanted in, those that are the same bytes taken as one kind."""

    members: tuple[ValueLayout, ...]
    price: Callable[[ValueLayout, ValueLayout], float]

    @classmethod
    def of(cls, descs: Iterable[ValueLayout], price: Callable[[ValueLayout, ValueLayout], float]) -> Layouts:
        """The kinds among some layouts, with the nanoseconds of a reorder from one layout to another."""
        return cls(_kinds(tuple(dict.fromkeys(descs))), price)

    def index(self, desc: ValueLayout) -> int:
        """Which kind a layout is of."""
        if desc in self._known:
            return self._known[desc]
        return next(index for index, member in enumerate(self.members) if _alike(desc, member))

    def has(self, desc: ValueLayout) -> bool:
        """Whether a layout is of any of the kinds."""
        return any(_alike(desc, member) for member in self.members)

    def indices(self, descs: Iterable[ValueLayout]) -> np.ndarray:
        """Which kinds some layouts are of."""
        return np.array([self.index(desc) for desc in descs], int)

    @cached_property
    def _known(self) -> dict[ValueLayout, int]:
        return {member: index for index, member in enumerate(self.members)}

    @cached_property
    def readable(self) -> np.ndarray:
        """``[i, j]``: whether kind ``i`` can be read as kind ``j``."""
        return _readable(self.members)

    def ns(self, produced: int, kind: int) -> float:
        """Nanoseconds of bringing one kind to another; nothing where it can be read so."""
        if (produced, kind) not in self._ns:
            free = self.readable[produced, kind]
            self._ns[produced, kind] = 0.0 if free else self.price(self.members[produced], self.members[kind])
        return self._ns[produced, kind]

    @cached_property
    def _ns(self) -> dict[tuple[int, int], float]:
        return {}

    def set_ns(self, produced: int, wanted: Sequence[int]) -> float:
        """Nanoseconds of all copies that some demands take, each made once."""
        copies = wanted if len(wanted) == 1 else self._copies(produced, wanted)
        return sum((self.ns(produced, kind) for kind in copies), 0.0)

    def makes(self, kind: int, produced: int, wanted: Sequence[int]) -> bool:
        """Whether some demands take a copy of a kind."""
        return kind in self._copies(produced, wanted)

    def _copies(self, produced: int, wanted: Sequence[int]) -> list[int]:
        copies = copies_wanted(self.members[produced], [self.members[kind] for kind in wanted])
        return [self._known[desc] for desc in copies]


class CopyStates(Struct, frozen=True, eq=False, dict=True):
    """The states of a value with several readers: its producer's layout, with a set of copies.

    Attributes:
        layouts: The kinds of layouts.
        is_complete: Whether every sensible set of copies is among them.
    """

    layouts: Layouts
    is_complete: bool
    _starts: np.ndarray
    _makes: np.ndarray

    @classmethod
    def of(cls, layouts: Layouts, produced: Iterable[int], wanted: Iterable[int], n_demands: int) -> CopyStates:
        """All states of a value, by the kinds offered and wanted; never more copies are needed than demands."""
        kinds, offered = tuple(sorted(set(wanted))), tuple(sorted(set(produced)))
        return cls(layouts, *_states(layouts.members, offered, kinds, n_demands))

    @cached_property
    def costs(self) -> np.ndarray:
        """Nanoseconds of each state's copies."""
        ns = np.zeros((len(self.layouts.members), self._makes.shape[1]))
        for start in np.unique(self._starts):
            for kind in np.flatnonzero(self._makes[self._starts == start].any(axis=0)):
                ns[start, kind] = self.layouts.ns(int(start), int(kind))
        costs: np.ndarray = np.where(self._makes, ns[self._starts], 0.0).sum(axis=1)
        return costs

    def produced_as(self, kinds: np.ndarray) -> np.ndarray:
        """``[i, j]``: 0 where state ``j`` starts from kind ``kinds[i]``, else infinity."""
        return np.where(kinds[:, None] == self._starts[None, :], 0.0, np.inf)

    def serving(self, kinds: np.ndarray) -> np.ndarray:
        """``[i, j]``: 0 where state ``i`` has a layout readable as kind ``kinds[j]``, else infinity."""
        readable = self.layouts.readable
        served = readable[self._starts] | (self._makes @ readable)
        return np.where(served[:, kinds], 0.0, np.inf)

    def without(self, kind: int) -> np.ndarray:
        """Nothing for states that make no copy of a kind, else infinity."""
        return np.where(self._makes[:, kind], np.inf, 0.0)


@lru_cache(maxsize=_MAX_STATES_CACHED)
def _states(
    members: tuple[ValueLayout, ...], offered: tuple[int, ...], kinds: tuple[int, ...], n_demands: int
) -> tuple[bool, np.ndarray, np.ndarray]:
    """Whether these are all, their produced kinds, and which copies each makes: all but prices, for later solves."""
    readable = _readable(members)
    for limit in (n_demands, 2):
        states = [(start, copies) for start in offered for copies in _subsets(readable, start, kinds, limit)]
        if len(states) <= MAX_STATES:
            break
    makes = np.zeros((len(states), len(members)), bool)
    for row, (_, copies) in zip(makes, states, strict=True):
        row[list(copies)] = True
    starts = np.array([start for start, _ in states], int)
    makes.flags.writeable = starts.flags.writeable = False
    return limit == n_demands, starts, makes


def _subsets(readable: np.ndarray, start: int, kinds: Sequence[int], limit: int) -> Iterator[tuple[int, ...]]:
    """The sets of copies that make sense beside ``start``: none that could be read from another of them."""
    useful = [kind for kind in kinds if not readable[start, kind]]
    for size in range(min(limit, len(useful)) + 1):
        for copies in combinations(useful, size):
            if not any(readable[a, b] for a in copies for b in copies if a != b):
                yield copies


@lru_cache(maxsize=_MAX_CACHED)
def _kinds(descs: tuple[ValueLayout, ...]) -> tuple[ValueLayout, ...]:
    """The first of each kind; networks repeat themselves, and are solved more than once."""
    members: list[ValueLayout] = []
    for desc in descs:
        if not any(_alike(desc, member) for member in members):
            members.append(desc)
    return tuple(members)


@lru_cache(maxsize=_MAX_CACHED)
def _readable(members: tuple[ValueLayout, ...]) -> np.ndarray:
    return np.array([[readable_as(a, b) for b in members] for a in members], bool)


def _alike(a: ValueLayout, b: ValueLayout) -> bool:
    return readable_as(a, b) and readable_as(b, a)
