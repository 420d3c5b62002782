"""Running plans whole, in turn, to see which is the fastest."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.errors import DisturbedError
from blocklayout.plan.costs.random_data import random_array
from blocklayout.plan.costs.repeating import Run, Stopwatch
from blocklayout.runtime import Workspace
from blocklayout.timing import fastest_ns, time_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blocklayout.runtime import ReadyPlan

N_PLACES, N_ROUNDS = 3, 7
"""How often plans are given other memory, and how often each has its turn there: where buffers lie matters, too."""

_TURN_NS = 15e6

N_BRIEF_ROUNDS, _BRIEF_TURN_NS = 3, 2e6

_SEED = 0


def time_ready_plans(plans: Sequence[ReadyPlan]) -> list[list[float]]:
    """Nanoseconds of whole runs on random data: for each plan a time for each round, the best of its turn.

    Args:
        plans: Of one model, with their packed weights.

    Raises:
        RefusedError: A primitive cannot be created or run.
    """
    feeds = [_feeds(ready) for ready in plans]

    def run() -> list[list[float]]:
        return time_in_turn(_runs(plans, feeds), N_ROUNDS, partial(fastest_ns, turn_ns=_TURN_NS))

    places = [dnnl.run_parallel(run, plans[0].plan.n_threads) for _ in range(N_PLACES)]
    return [[ns for place in places for ns in place[index]] for index in range(len(plans))]


def time_briefly(plans: Sequence[ReadyPlan], until_s: float) -> list[list[float]]:
    """The same in one place, for as many rounds as there is time for; those that other work disturbs do not count.

    Args:
        plans: Of one model, with their packed weights.
        until_s: When to end, by ``time.monotonic``; the round at hand is completed.

    Raises:
        RefusedError: A primitive cannot be created or run.
        DisturbedError: Fewer than ``N_BRIEF_ROUNDS`` were left alone.
    """
    feeds = [_feeds(ready) for ready in plans]

    def run() -> list[list[float | None]]:
        turn = partial(_fastest_quiet_ns, stopwatch=Stopwatch())
        return time_in_turn(_runs(plans, feeds), N_PLACES * N_ROUNDS, turn, lambda: monotonic() < until_s)

    rounds = list(zip(*dnnl.run_parallel(run, plans[0].plan.n_threads), strict=True))
    quiet = [[ns for ns in times if ns is not None] for times in rounds if None not in times]
    if len(quiet) < N_BRIEF_ROUNDS:
        had = f"{len(quiet)} of {len(rounds)} rounds were left alone by other work"
        raise DisturbedError(f"{had} in the time there was, and it takes {N_BRIEF_ROUNDS}")
    return [list(times) for times in zip(*quiet, strict=True)]


def _fastest_quiet_ns(call: Callable[[], object], stopwatch: Stopwatch) -> float | None:
    """The best of a turn; ``None`` where other work disturbed all of it."""
    runs: list[Run] = []
    while sum(run.ns for run in runs) < _BRIEF_TURN_NS:
        runs.append(stopwatch.time(call))
    return min((run.ns for run in runs if run.is_quiet), default=None)


def _runs(plans: Sequence[ReadyPlan], feeds: Sequence[list[np.ndarray]]) -> list[Callable[[], object]]:
    """For each plan a call that runs it whole, in memory of its own."""
    workspaces = [(Workspace(ready), dict(ready.plan.inputs)) for ready in plans]
    return [
        partial(workspace.run, workspace.executable(descs), buffers)
        for (workspace, descs), buffers in zip(workspaces, feeds, strict=True)
    ]


def _feeds(ready: ReadyPlan) -> list[np.ndarray]:
    generator = np.random.default_rng(_SEED)
    return [desc.pack(random_array(desc.dtype, desc.dims, generator)) for _, desc in ready.plan.inputs]
