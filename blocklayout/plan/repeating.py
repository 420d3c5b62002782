"""Repeating a run until its time is known, and telling apart what other processes add to it."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blocklayout.errors import DisturbedError

if TYPE_CHECKING:
    from collections.abc import Callable

_MIN_RUNS = 5
MAX_RUNS = 40
_BUDGET_NS = 15e6
_PATIENCE_NS = 60e6
_SLOW_NS = 50e6  # reference implementations
_VERY_SLOW_NS = 1e9
_MIN_QUIET_RUNS = 2
_NS_PER_SWITCH = 10e6


@dataclass(frozen=True)
class Run:
    """One timed run.

    Attributes:
        ns: How long it took.
        is_quiet: Whether the process kept its CPUs meanwhile.
    """

    ns: float
    is_quiet: bool


class Stopwatch:
    """Times runs that follow each other, and knows which of them were left alone.

    Threads of a parallel region wait for each other. One that loses its CPU for a time slice holds up all of them,
    and every step takes milliseconds as long as anything else runs on the machine. Such runs say nothing, and are
    known by their involuntary switches: there is none in a run that was left alone, but for one now and then,
    to the system's own chores, in a long one. A thread may have lost its CPU between two runs and be missed in the
    second, so switches count from the end of the run before.
    """

    def __init__(self) -> None:
        self._n_switches = _n_switches()

    def time(self, call: Callable[[], object]) -> Run:
        """One run of ``call``."""
        start = time.perf_counter_ns()
        call()
        ns = float(time.perf_counter_ns() - start)
        n_before, self._n_switches = self._n_switches, _n_switches()
        return Run(ns, self._n_switches - n_before <= ns // _NS_PER_SWITCH)


def typical_ns(once: Callable[[], Run]) -> float:
    """The lower quartile of the quiet ones of some runs, the first left out.

    Whatever else the machine does only adds to a time; the fastest of all, on the other hand, had luck with caches
    and clock that a network does not have every time.

    Args:
        once: Runs once.

    Raises:
        DisturbedError: Hardly any run was quiet.
    """
    first = once()
    if first.is_quiet and first.ns > _SLOW_NS:
        return first.ns if first.ns > _VERY_SLOW_NS else min(first.ns, once().ns)
    times: list[float] = []
    n_runs, spent_ns = 0, 0.0
    while n_runs < MAX_RUNS and spent_ns < (_PATIENCE_NS if len(times) < _MIN_RUNS else _BUDGET_NS):
        run = once()
        n_runs, spent_ns = n_runs + 1, spent_ns + run.ns
        times += [run.ns] if run.is_quiet else []
    if len(times) < _MIN_QUIET_RUNS:
        raise DisturbedError(
            f"no time can be measured: of {n_runs} runs, {n_runs - len(times)} were interrupted by other work on these "
            f"CPUs; measure when the machine is quiet, or with fewer threads"
        )
    return sorted(times)[len(times) // 4]


def _n_switches() -> int:
    """How often this process has lost a CPU to another so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
