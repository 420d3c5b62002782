"""Repeating runs until their times are known, and telling apart time lost to other processes."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

MAX_RUNS = 20
"""Of those that count."""

_MIN_RUNS = 5
_BUDGET_NS = 15e6
_PATIENCE_NS = 60e6
SLOW_NS = 2e6
"""Of a run for which it makes little difference that the first one finds code and data far away."""

_VERY_SLOW_NS = 1e9
N_LEAST_RUNS = 2
"""Quiet ones that tell a time."""

_NS_PER_SWITCH = 10e6
_LEAST_LOST = 0.02
_THREADS = Path("/proc/self/task")


class Run(Struct, frozen=True):
    """The nanoseconds of one run, and whether the process kept its CPUs meanwhile."""

    ns: float
    is_quiet: bool


class Stopwatch:
    """Times runs that follow each other, and knows which of them were left alone.

    Threads of a parallel region wait for each other. One that loses its CPU for a time slice holds up all of them,
    and every step takes milliseconds as long as anything else runs on the machine. Such runs say nothing, and are
    known by their involuntary switches: there is none in a run that was left alone, but for one now and then,
    to the system's own chores, in a long one. Chores may be more than that, and short: where threads were back before
    a fiftieth of the run was lost, it was left alone, too. A thread may have lost its CPU between two runs and be
    missed in the second, so switches count from the end of the run before, and lost time from that of the last
    one with too many.
    """

    def __init__(self) -> None:
        self._n_switches, self._waited_ns = _n_switches(), _waited_ns()

    def time(self, call: Callable[[], object]) -> Run:
        """One run of ``call``."""
        start = time.perf_counter_ns()
        call()
        ns = float(time.perf_counter_ns() - start)
        n_before, self._n_switches = self._n_switches, _n_switches()
        is_quiet = self._n_switches - n_before <= ns // _NS_PER_SWITCH
        if not is_quiet:
            waited_ns, self._waited_ns = self._waited_ns, _waited_ns()
            is_quiet = self._waited_ns - waited_ns < _LEAST_LOST * ns
        return Run(ns, is_quiet)


def typical_times(calls: Sequence[Callable[[], Run]], go_on: Callable[[], bool] = lambda: True) -> list[float | None]:
    """For each call the lower quartile of its quiet runs, without a short first one; ``None`` if few were quiet.

    All other work of the machine only adds to a time; the fastest of all, on the other hand, had luck with caches
    and clock that a network does not have every time. The calls take turns, one run each: so each finds the caches as
    others left them, and a slow spell of the machine slows them alike. ``go_on`` is asked before each run.
    """
    all_series = [_Series(call) for call in calls]
    waiting = all_series
    while waiting:
        for series in waiting:
            if not go_on():
                return [series.typical_ns for series in all_series]
            series.run()
        waiting = [series for series in waiting if not series.is_complete]
    return [series.typical_ns for series in all_series]


class _Series(Struct):
    call: Callable[[], Run]
    n_runs: int = 0
    spent_ns: float = 0.0
    quiet: list[float] = field(default_factory=list)

    def run(self) -> None:
        run = self.call()
        self.n_runs += 1
        is_first = self.n_runs == 1
        self.spent_ns += 0.0 if is_first else run.ns
        if run.is_quiet and (run.ns > SLOW_NS or not is_first):
            self.quiet.append(run.ns)

    @property
    def is_complete(self) -> bool:
        limit_ns = _PATIENCE_NS if len(self.quiet) < _MIN_RUNS else _BUDGET_NS
        return self.n_runs > MAX_RUNS or self.spent_ns >= limit_ns or self._is_very_slow

    @property
    def typical_ns(self) -> float | None:
        if len(self.quiet) < N_LEAST_RUNS and not self._is_very_slow:
            return None
        return sorted(self.quiet)[len(self.quiet) // 4]

    @property
    def _is_very_slow(self) -> bool:
        """Whether even one run is long enough."""
        return any(ns > _VERY_SLOW_NS for ns in self.quiet)


def _n_switches() -> int:
    """How often this process has lost a CPU to another so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _waited_ns() -> float:
    """How long threads of this process have waited for a CPU so far; no number where the system does not tell."""
    try:
        return float(sum(int((thread / "schedstat").read_bytes().split()[1]) for thread in _THREADS.iterdir()))
    except (OSError, IndexError):
        return math.nan
