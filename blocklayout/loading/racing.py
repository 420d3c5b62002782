"""Running plans whole, in turn, to see which is the fastest."""

from __future__ import annotations

import statistics
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

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

    from blocklayout.dnnl import Spec
    from blocklayout.plan import Plan
    from blocklayout.plan.plan import PackedConstant
    from blocklayout.plan.race import HasTime, Racers
    from blocklayout.runtime import ReadyPlan

N_PLACES, N_ROUNDS = 3, 7
"""How often plans are given other memory, and how often each has its turn there: where buffers lie matters, too."""

_TURN_NS = 15e6

N_RACED = 3
"""How many plans race for as long as it takes."""

BRIEF_TURN_NS = 2e6

_CREATING = 4.0
"""How many times longer it takes to create a primitive than to bind it as a step."""

NEAR = 1.1
"""A plan whose first turn takes longer, next to the fastest, has no other."""

_SEED = 0

_SPREAD = 1 / 16
"""Of random weights: with it activations neither vanish nor grow much from step to step."""


class StandIns:
    """Random bytes in place of packed weights, for plans that are run to be timed: only that which is taken is packed.

    They are as many as the weights of the first plan, up to what no cache holds, and all plans read them. Only what
    primitives multiply by is replaced, and nothing in a plan with a step by numpy: values may decide there what is
    computed.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._tapes: dict[str, Tape] = {}

    def of(self, plan: Plan) -> dict[int, np.ndarray]:
        """The bytes of those constants that are replaced, by buffer."""
        found: dict[int, np.ndarray] = {}
        for dtype, items in _by_dtype(plan).items():
            sizes = [aligned(item.desc.nbytes) for item in items]
            tape = self._tape(dtype)
            tape.reserve(max(*sizes, 0 if tape.nbytes else min(sum(sizes), cold_nbytes(plan.n_threads))))
            found |= {item.buffer: tape.piece(item.desc.nbytes) for item in items}
        return found

    def _tape(self, dtype: str) -> Tape:
        if dtype not in self._tapes:
            elements = random_elements("f32") * np.float32(_SPREAD)
            self._tapes[dtype] = Tape(elements.astype(to_numpy(dtype)))
        return self._tapes[dtype]


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


def time_briefly(racers: Racers, make_ready: Callable[[Plan], ReadyPlan], seconds: float) -> list[list[float]] | None:
    """The same in one place, for those plans that there is time for; disturbed turns do not count.

    Each has a turn as soon as it is ready, and what its steps took tells which is the next. Those that took about as
    long as the fastest have their turns again, in rounds, while there is time.

    Args:
        racers: Plans of one model.
        make_ready: Makes one ready to be run.
        seconds: How long there is; the turn at hand is completed, but for the first plan's first one.

    Returns:
        As :func:`time_ready_plans`, fewer times of slower plans; ``None`` where there was time for the first at most.

    Raises:
        RefusedError: A primitive cannot be created or run.
        DisturbedError: No turn of the first was left alone, or none of any other.
    """
    if seconds <= 0:
        return None
    race = _Race(racers, make_ready, monotonic() + seconds)
    race.begin()
    if len(race.times) == 1:
        return None
    told = [index for index, own in enumerate(race.times) if own]
    if 0 not in told or len(told) == 1:
        raise DisturbedError(f"{len(told)} of {len(race.times)} plans were left alone by other work in their turns")
    race.go_on(told)
    return race.times


class _Turn(NamedTuple):
    """The fastest run of a plan that was left alone: how long it took, and each of its steps."""

    ns: float
    step_ns: Sequence[float]


class _Race:
    """Plans that are run in turn, in one place.

    Attributes:
        times: Of turns that were left alone, by plan.
    """

    def __init__(self, racers: Racers, make_ready: Callable[[Plan], ReadyPlan], until_s: float) -> None:
        self._racers, self._make_ready, self._until_s = racers, make_ready, until_s
        self._room = Room()
        self._made: set[Spec | HostSpec] = set()
        self._pace_ns = 0.0
        self._calls: list[Callable[..., object]] = []
        self.times: list[list[float]] = []

    def begin(self) -> None:
        """Give the first plan its turn, and others while there is time."""
        self._enter(dnnl.Stop(int(1e9 * self._until_s)))  # nobody knows yet how long it takes
        while self._racers.next(self._has_time) is not None:
            self._enter()

    def _has_time(self, run_ns: float, specs: Sequence[Spec | HostSpec]) -> bool:
        """Whether there is time to make a plan ready, and for its turn."""
        starting_ns = self._pace_ns * self._effort(specs)
        return starting_ns + turn_of_ns(run_ns) <= 1e9 * (self._until_s - monotonic())

    def _effort(self, specs: Sequence[Spec | HostSpec]) -> float:
        """Of making a plan ready: the number of its steps, and more for each primitive that no plan before had."""
        return 1 + len(specs) + _CREATING * len({*specs} - self._made)

    def _enter(self, stop: dnnl.Stop | None = None) -> None:
        """Make the last plan ready, and give it its first turn, and a second one where other work disturbs that."""
        began_s, plan = monotonic(), self._racers.plans[-1]
        if self._room.arena.nbytes < plan.arena_nbytes:
            self._room.hold(plan.arena_nbytes, 0)
            self._room.arena.fill(0)  # else the first run would find new memory
        call = _run_of(self._make_ready(plan), self._room)
        self._pace_ns = 1e9 * (monotonic() - began_s) / self._effort(_specs(plan))
        self._made |= {*_specs(plan)}
        self._calls.append(call)
        turn = self._turn(partial(call, stop=stop))
        if turn is None and monotonic() < self._until_s:
            turn = self._turn(partial(call, stop=stop))
        self.times.append([])
        if turn is not None:
            self.times[-1].append(turn.ns)
            self._racers.learn(turn.step_ns[len(plan.entries) :], self._until_s - monotonic())

    def go_on(self, told: Sequence[int]) -> None:
        """Give the first plan, and those that are near the fastest, turns while there is time."""
        fastest_ns = min(self.times[index][0] for index in told)
        near = [index for index in told if index == 0 or self.times[index][0] < NEAR * fastest_ns]
        round_s = sum(turn_of_ns(self.times[index][0]) for index in near) / 1e9
        for _ in range(N_PLACES * N_ROUNDS - 1):
            if len(near) == 1 or monotonic() + round_s > self._until_s:
                break
            turns = [self._turn(self._calls[index]) for index in near]
            quiet = [turn.ns for turn in turns if turn is not None]
            if len(quiet) == len(near):
                for index, ns in zip(near, quiet, strict=True):
                    self.times[index].append(ns)

    def _turn(self, call: Callable[..., object]) -> _Turn | None:
        return dnnl.run_parallel(lambda: _fastest_quiet(call), self._racers.plans[0].n_threads)


def turn_of_ns(run_ns: float) -> float:
    """How long the turn of a plan takes."""
    return max(run_ns, BRIEF_TURN_NS)


class _Given:
    """Two plans to be run whole, the second if there is time for it."""

    def __init__(self, first: Plan, second: Plan) -> None:
        self.plans = [first]
        self._second, self._worth = second, 1.0

    def next(self, has_time: HasTime = lambda *_: True) -> Plan | None:
        """As :meth:`Racers.next`."""
        if len(self.plans) == 2 or not has_time(self._worth * _run_ns(self._second), _specs(self._second)):
            return None
        self.plans.append(self._second)
        return self._second

    def learn(self, step_ns: Sequence[float], seconds: float) -> None:
        """As :meth:`Racers.learn`: what prices are worth."""
        del seconds
        self._worth = sum(step_ns) / _run_ns(self.plans[0])


def _specs(plan: Plan) -> list[Spec | HostSpec]:
    return [step.spec for step in plan.steps]


def _run_ns(plan: Plan) -> float:
    """Estimated nanoseconds of a run with the rows of all parts."""
    return plan.parts * plan.cost_ns


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
    if seconds is None:
        times: list[list[float]] | None = time_ready_plans(both)
    else:
        plans = _Given(other.plan, ready.plan)
        times = time_briefly(plans, lambda plan: other if plan is other.plan else ready, seconds)
    if times is None:
        raise DisturbedError("there was no time to see what is faster")
    ratios: list[float] = [own / others for others, own in zip(*times, strict=False)]
    return statistics.median(ratios)


def _fastest_quiet(call: Callable[..., object]) -> _Turn | None:
    """The fastest run of a turn; ``None`` where other work disturbed all of it, or its deadline passed."""
    stopwatch = Stopwatch()  # what making plans ready took from threads disturbs nothing
    runs: list[tuple[Run, list[int]]] = []
    with suppress(DeadlineExceededError):
        while sum(run.ns for run, _ in runs) < BRIEF_TURN_NS:
            step_ns: list[int] = []
            runs.append((stopwatch.time(partial(call, times=step_ns)), step_ns))
    quiet = (_Turn(run.ns, step_ns) for run, step_ns in runs if run.is_quiet)
    return min(quiet, key=lambda turn: turn.ns, default=None)


def _run_of(ready: ReadyPlan, room: Room | None = None) -> Callable[..., object]:
    """Runs a plan whole, on random data, in memory of its own where none is given."""
    workspace, plan = workspace_of(ready, room), ready.plan
    generator = np.random.default_rng(_SEED)
    feed = [desc.pack(random_array(desc.dtype, desc.dims, generator)) for _, desc in plan.fed]
    return partial(workspace.run, workspace.executable(dict(plan.inputs)), feed)
