"""Running plans whole, in turn, to see which is the fastest."""

from __future__ import annotations

import statistics
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.errors import DisturbedError
from blocklayout.plan.costs.random_data import random_array
from blocklayout.plan.costs.repeating import Run, Stopwatch
from blocklayout.runtime.row_parts import workspace_of
from blocklayout.timing import fastest_ns, fitting, time_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blocklayout.plan import Plan
    from blocklayout.runtime import ReadyPlan

N_PLACES, N_ROUNDS = 3, 7
"""How often plans are given other memory, and how often each has its turn there: where buffers lie matters, too."""

_TURN_NS = 15e6

N_RACED = 3
"""How many plans race for as long as it takes."""

N_BRIEF_ROUNDS, BRIEF_TURN_NS = 1, 2e6

N_FIRST_RUNS = 2
"""Of the first plan, to see what prices are worth here: the first run finds its memory cold."""

_SEED = 0


def time_ready_plans(plans: Sequence[ReadyPlan]) -> list[list[float]]:
    """Nanoseconds of whole runs on random data: for each plan a time for each round, the best of its turn.

    Args:
        plans: Of one model, with their packed weights.

    Raises:
        RefusedError: A primitive cannot be created or run.
    """

    def run() -> list[list[float]]:
        calls = [_run_of(ready) for ready in plans]
        return time_in_turn(calls, N_ROUNDS, partial(fastest_ns, turn_ns=_TURN_NS))

    places = [dnnl.run_parallel(run, plans[0].plan.n_threads) for _ in range(N_PLACES)]
    return [[ns for place in places for ns in place[index]] for index in range(len(plans))]


def time_briefly(
    plans: Sequence[Plan], make_ready: Callable[[int], ReadyPlan], seconds: Callable[[], float]
) -> list[list[float]] | None:
    """The same in one place, for those plans that there is time for and then rounds; disturbed ones do not count.

    The first plan's runs tell what prices are worth on this machine, and so which of the others have time for enough
    rounds; one that takes too long to be packed is passed over.

    Args:
        plans: Of one model, the likeliest first.
        make_ready: Packs the weights of one, by its place; the others' only where there is time for that, too.
        seconds: How long there is, asked once the first is ready; the round at hand is completed.

    Returns:
        As :func:`time_ready_plans`, with no times of plans that were passed over; ``None`` where that are all others.

    Raises:
        RefusedError: A primitive cannot be created or run.
        DisturbedError: Fewer than ``N_BRIEF_ROUNDS`` were left alone.
    """
    calls: list[Callable[[], object]] = []
    stopwatch, n_threads = Stopwatch(), plans[0].n_threads

    def first_run_ns() -> float:
        calls.append(_run_of(first))
        return min(stopwatch.time(calls[0]).ns for _ in range(N_FIRST_RUNS))

    def run() -> list[list[float | None]]:
        calls.extend(map(_run_of, others))
        for call in calls[1:]:  # the first has run
            call()
        rounds: list[list[float | None]] = []
        while len(rounds) < N_BRIEF_ROUNDS or (len(rounds) < N_PLACES * N_ROUNDS and monotonic() < until_s):
            rounds.append([_fastest_quiet_ns(call, stopwatch) for call in calls])
        return rounds

    began_s = monotonic()
    first = make_ready(0)
    packing_ns = 1e9 * (monotonic() - began_s)
    until_s = monotonic() + seconds()
    costs_ns = [plan.parts * plan.cost_ns for plan in plans]
    if monotonic() + N_FIRST_RUNS * costs_ns[0] / 1e9 > until_s:
        return None
    began_s = monotonic()
    run_ns = dnnl.run_parallel(first_run_ns, n_threads)
    starting_ns = max(1e9 * (monotonic() - began_s) - (N_FIRST_RUNS - 1) * run_ns, 0.0)
    worth = run_ns / costs_ns[0]
    others_ns = [
        starting_ns + rounds_ns(worth * cost_ns) + packing_ns * _packed_anew(plan, plans[0])
        for plan, cost_ns in zip(plans[1:], costs_ns[1:], strict=True)
    ]
    racing = [1 + index for index in fitting(others_ns, 1e9 * (until_s - monotonic()) - rounds_ns(run_ns))]
    if not racing:
        return None
    others = [make_ready(index) for index in racing]
    rounds = dnnl.run_parallel(run, n_threads)
    quiet = [[ns for ns in each if ns is not None] for each in rounds if None not in each]
    if len(quiet) < N_BRIEF_ROUNDS:
        had = f"{len(quiet)} of {len(rounds)} rounds were left alone by other work"
        raise DisturbedError(f"{had} in the time there was, and it takes {N_BRIEF_ROUNDS}")
    times: list[list[float]] = [[] for _ in plans]
    for index, own in zip((0, *racing), zip(*quiet, strict=True), strict=True):
        times[index] = [*own]
    return times


def rounds_ns(run_ns: float) -> float:
    """How long the rounds of a plan take."""
    return N_BRIEF_ROUNDS * max(run_ns, BRIEF_TURN_NS)


def share_of_time(ready: ReadyPlan, other: ReadyPlan, seconds: float | None) -> float:
    """How long a plan takes next to another one: the median of the rounds' ratios.

    Args:
        ready: Of the same model and as many rows.
        other: Likewise.
        seconds: How long both may run; ``None`` for as long as it takes.

    Raises:
        DisturbedError: There is no time to see, or other work keeps the CPUs busy.
    """
    both = [other, ready]
    plans = [each.plan for each in both]
    times = time_ready_plans(both) if seconds is None else time_briefly(plans, both.__getitem__, lambda: seconds)
    if times is None:
        raise DisturbedError("there was no time to see what is faster")
    ratios: list[float] = [own / others for others, own in zip(*times, strict=True)]
    return statistics.median(ratios)


def _packed_anew(plan: Plan, first: Plan) -> float:
    """Bytes of constants that are packed for a plan and are not the first one's, next to all of the first's."""
    own, known = ({(each.constant, each.desc): each.desc.nbytes for each in some.constants} for some in (plan, first))
    return sum(nbytes for key, nbytes in own.items() if key not in known) / max(sum(known.values()), 1)


def _fastest_quiet_ns(call: Callable[[], object], stopwatch: Stopwatch) -> float | None:
    """The best of a turn; ``None`` where other work disturbed all of it."""
    runs: list[Run] = []
    while sum(run.ns for run in runs) < BRIEF_TURN_NS:
        runs.append(stopwatch.time(call))
    return min((run.ns for run in runs if run.is_quiet), default=None)


def _run_of(ready: ReadyPlan) -> Callable[[], object]:
    """Runs a plan whole, on random data, in memory of its own."""
    workspace, plan = workspace_of(ready), ready.plan
    generator = np.random.default_rng(_SEED)
    feed = [desc.pack(random_array(desc.dtype, desc.dims, generator)) for _, desc in plan.fed]
    return partial(workspace.run, workspace.executable(dict(plan.inputs)), feed)
