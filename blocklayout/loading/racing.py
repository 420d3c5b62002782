"""Running plans whole, in turn, to see which is the fastest."""

from __future__ import annotations

import statistics
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from blocklayout import dnnl
from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.errors import DeadlineExceededError, DisturbedError
from blocklayout.ir import HostSpec
from blocklayout.plan.costs.measuring import cold_nbytes
from blocklayout.plan.costs.random_data import Tape, aligned, random_array, random_elements
from blocklayout.plan.costs.repeating import Run, Stopwatch
from blocklayout.runtime.row_parts import workspace_of
from blocklayout.runtime.workspace import Room
from blocklayout.timing import fastest_ns, time_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blocklayout.plan import Plan
    from blocklayout.plan.plan import PackedConstant
    from blocklayout.runtime import ReadyPlan

N_PLACES, N_ROUNDS = 3, 7
"""How often plans are given other memory, and how often each has its turn there: where buffers lie matters, too."""

_TURN_NS = 15e6

N_RACED = 3
"""How many plans race for as long as it takes."""

BRIEF_TURN_NS = 2e6

NEAR = 1.1
"""A plan whose first turn takes longer, next to the fastest, has no other."""

_SEED = 0

_SPREAD = 1 / 16
"""Of random weights: with it activations neither vanish nor grow much from step to step."""


class StandIns:
    """Random bytes in place of packed weights, for plans that are run to be timed: only that which is taken is packed.

    They are as many as the weights of a plan, up to what no cache holds, and all plans read them. Only what primitives
    multiply by is replaced, and nothing in a plan with a step by numpy: values may decide there what is computed.

    Args:
        plans: That are to be run.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        held_nbytes = cold_nbytes(plans[0].n_threads)
        needed: dict[str, int] = {}
        for plan in plans:
            for dtype, items in _by_dtype(plan).items():
                sizes = [aligned(item.desc.nbytes) for item in items]
                needed[dtype] = max(needed.get(dtype, 0), *sizes, min(sum(sizes), held_nbytes))
        self._tapes: dict[str, Tape] = {}
        for dtype, nbytes in needed.items():
            elements = random_elements("f32") * np.float32(_SPREAD)
            self._tapes[dtype] = Tape(elements.astype(to_numpy(dtype)))
            self._tapes[dtype].reserve(nbytes)

    def of(self, plan: Plan) -> dict[int, np.ndarray]:
        """The bytes of those constants that are replaced, by buffer."""
        return {
            item.buffer: self._tapes[dtype].piece(item.desc.nbytes)
            for dtype, items in _by_dtype(plan).items()
            for item in items
        }


def _by_dtype(plan: Plan) -> dict[str, list[PackedConstant]]:
    """The constants that are replaced, by their data type."""
    if any(isinstance(step.spec, HostSpec) for step in plan.steps):
        return {}
    operands = [(name, operand.buffer) for step in plan.steps for name, operand in step.operands]
    others = {buffer for name, buffer in operands if not name.startswith("weights")}
    found: dict[str, list[PackedConstant]] = {}
    for item in plan.constants:
        if item.desc.dtype in FLOATS and item.buffer not in others:
            found.setdefault(item.desc.dtype, []).append(item)
    return found


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
    plans: Sequence[Plan], make_ready: Callable[[int], ReadyPlan], seconds: float
) -> list[list[float]] | None:
    """The same in one place, for those plans that there is time for; disturbed turns do not count.

    Each has a turn as soon as it is ready. The first plan's tells what prices are worth on this machine, and so which
    of the others there is time for: one that would take too long is passed over. Those that took about as long as the
    fastest have their turns again, in rounds, while there is time.

    Args:
        plans: Of one model, the likeliest first.
        make_ready: Makes one ready to be run, by its place.
        seconds: How long there is; the turn at hand is completed, but for the first plan's first one.

    Returns:
        As :func:`time_ready_plans`, fewer times of slower plans, and none of those that were passed over; ``None``
        where that are all others.

    Raises:
        RefusedError: A primitive cannot be created or run.
        DisturbedError: No turn of the first was left alone, or none of any other.
    """
    if seconds <= 0:
        return None
    race = _Race(plans, make_ready, monotonic() + seconds)
    race.begin()
    for index in range(1, len(plans)):
        if race.has_time_for(index):
            race.enter(index)
    if len(race.calls) == 1:
        return None
    told = [index for index, own in enumerate(race.times) if own]
    if 0 not in told or len(told) == 1:
        raise DisturbedError(f"{len(told)} of {len(race.calls)} plans were left alone by other work in their turns")
    race.go_on(told)
    return race.times


class _Race:
    """Plans that are run in turn, in one place.

    Attributes:
        calls: Run those that take part.
        times: Of turns that were left alone, by plan.
    """

    def __init__(self, plans: Sequence[Plan], make_ready: Callable[[int], ReadyPlan], until_s: float) -> None:
        self._plans, self._make_ready, self._until_s = plans, make_ready, until_s
        self._room = Room()
        self._room.hold(max(plan.arena_nbytes for plan in plans), 0)
        self._room.arena.fill(0)  # else the first run alone would find new memory
        self._starting_ns = 0.0
        self._costs_ns = [plan.parts * plan.cost_ns for plan in plans]
        self._worth = 1.0
        self.calls: dict[int, Callable[[], object]] = {}
        self.times: list[list[float]] = [[] for _ in plans]

    def begin(self) -> None:
        """Give the first plan its turn, and see what prices are worth."""
        began_s = monotonic()
        call = self._call(0)
        self._starting_ns = 1e9 * (monotonic() - began_s)
        self.calls[0] = partial(call, stop=dnnl.Stop(int(1e9 * self._until_s)))  # nobody knows yet how long it takes
        self.enter(0)
        self.calls[0] = call
        self._worth = (*self.times[0], self._costs_ns[0])[0] / self._costs_ns[0]

    def has_time_for(self, index: int) -> bool:
        """Whether there is time to make a plan ready, and for its turn."""
        taking_ns = self._starting_ns + turn_of_ns(self._worth * self._costs_ns[index])
        return taking_ns <= 1e9 * (self._until_s - monotonic())

    def enter(self, index: int) -> None:
        """Give a plan its first turn, made ready if it is not, and a second one where other work disturbs that."""
        self.calls[index] = self.calls.get(index) or self._call(index)
        ns = self._turn_ns(index)
        if ns is None and monotonic() < self._until_s:
            ns = self._turn_ns(index)
        self.times[index] = [] if ns is None else [ns]

    def go_on(self, told: Sequence[int]) -> None:
        """Give the first plan, and those that are near the fastest, turns while there is time."""
        fastest_ns = min(self.times[index][0] for index in told)
        near = [index for index in told if index == 0 or self.times[index][0] < NEAR * fastest_ns]
        for _ in range(N_PLACES * N_ROUNDS - 1):
            if len(near) == 1 or monotonic() >= self._until_s:
                break
            turns = [self._turn_ns(index) for index in near]
            quiet = [ns for ns in turns if ns is not None]
            if len(quiet) == len(near):
                for index, ns in zip(near, quiet, strict=True):
                    self.times[index].append(ns)

    def _call(self, index: int) -> Callable[..., object]:
        return _run_of(self._make_ready(index), self._room)

    def _turn_ns(self, index: int) -> float | None:
        call = self.calls[index]
        return dnnl.run_parallel(lambda: _fastest_quiet_ns(call), self._plans[0].n_threads)


def turn_of_ns(run_ns: float) -> float:
    """How long the turn of a plan takes."""
    return max(run_ns, BRIEF_TURN_NS)


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
    times = time_ready_plans(both) if seconds is None else time_briefly(plans, both.__getitem__, seconds)
    if times is None:
        raise DisturbedError("there was no time to see what is faster")
    ratios: list[float] = [own / others for others, own in zip(*times, strict=False)]
    return statistics.median(ratios)


def _fastest_quiet_ns(call: Callable[[], object]) -> float | None:
    """The best of a turn; ``None`` where other work disturbed all of it, or its deadline passed."""
    stopwatch = Stopwatch()  # what making plans ready took from threads disturbs nothing
    runs: list[Run] = []
    with suppress(DeadlineExceededError):
        while sum(run.ns for run in runs) < BRIEF_TURN_NS:
            runs.append(stopwatch.time(call))
    return min((run.ns for run in runs if run.is_quiet), default=None)


def _run_of(ready: ReadyPlan, room: Room | None = None) -> Callable[..., object]:
    """Runs a plan whole, on random data, in memory of its own where none is given."""
    workspace, plan = workspace_of(ready, room), ready.plan
    generator = np.random.default_rng(_SEED)
    feed = [desc.pack(random_array(desc.dtype, desc.dims, generator)) for _, desc in plan.fed]
    return partial(workspace.run, workspace.executable(dict(plan.inputs)), feed)
