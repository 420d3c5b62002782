"""Times as they should be taken: in turn, on real data, and told with their spread."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Call = Callable[[], object]

TURN_NS = 40e6
"""How long a turn lasts at least; a call is repeated for so long, and once in any case."""


class Spread(Struct, frozen=True):
    """The middle of some measurements, and how far they lie apart."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The median, the smallest and the largest.

        Example:
            >>> Spread.of([3.0, 1.0, 2.0])
            Spread(median=2.0, low=1.0, high=3.0)
        """
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])

    def scaled(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.low * factor, self.high * factor)


def time_in_turn(calls: Sequence[Call], n_rounds: int, turn_ns: float = TURN_NS) -> list[list[float]]:
    """Nanoseconds of each call in each round, the best of its turn.

    In a round every call has its turn, so that whatever slows the machine for a while slows them all:
    compare values of the same round.

    Args:
        calls: What to time.
        n_rounds: How many rounds; before them, each call runs once.
        turn_ns: How long a turn lasts at least.

    Returns:
        A list for each call, with a value for each round.
    """
    for call in calls:
        call()
    rounds = [[_fastest_ns(call, turn_ns) for call in calls] for _ in range(n_rounds)]
    return [[times[index] for times in rounds] for index in range(len(calls))]


def _fastest_ns(call: Call, turn_ns: float) -> float:
    best, spent = math.inf, 0.0
    while spent < turn_ns:
        start = time.perf_counter_ns()
        call()
        once = float(time.perf_counter_ns() - start)
        best, spent = min(best, once), spent + max(once, 1.0)
    return best
