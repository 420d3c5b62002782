"""Running plans whole, in turn, to see which is the fastest."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dtypes import FLOATS, to_numpy
from blocklayout.ir import HostSpec
from blocklayout.plan.costs.measuring import cold_nbytes
from blocklayout.plan.costs.random_data import Tape, aligned, random_array, random_elements
from blocklayout.runtime.row_parts import workspace_of
from blocklayout.runtime.workspace import Room
from blocklayout.timing import Spread, fastest_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from blocklayout.plan import Plan
    from blocklayout.plan.plan import PackedConstant
    from blocklayout.runtime import ReadyPlan

MAX_SECONDS = 0.5
"""Longest that plans are run for where the caller did not ask to measure and runs are short."""

N_LEAST_ROUNDS = 3
"""Rounds that tell which is faster."""

N_PLACES, N_ROUNDS = 3, 7
"""How often plans are given other memory, and how often each has its turn there: where buffers lie matters, too."""

_TURN_NS, _BRIEF_TURN_NS = 15e6, 2e6
"""How long a turn lasts at least."""

_LONG_NS = 100e6
"""Of a run: what it finds in caches and memory for the first time matters little then."""

_FAR = 0.9
"""A plan whose long runs take less than this share of each other one's, first and in a round, is the fastest."""

_SEED = 0

_SPREAD = 1 / 16
"""Of random weights: with it activations neither vanish nor grow much from step to step."""


class RunOff(Struct):
    """Plans of one model that are run in turn.

    A machine changes its speed by the second, and a process differs from the next. So only times of one round are
    compared, and each plan has its turn in every round.

    Attributes:
        make_ready: Makes a plan ready to be run.
        seconds: How long there is for other plans than the first two, and for more rounds than a few.
        alone: Entered while the rounds last, so that no other process measures.
    """

    make_ready: Callable[[Plan], ReadyPlan]
    seconds: float = MAX_SECONDS
    tell: Callable[[str], None] = lambda _: None
    alone: Callable[[], AbstractContextManager[None]] = nullcontext
    _ready: list[ReadyPlan] = field(default_factory=list)
    _calls: list[Callable[[], object]] = field(default_factory=list)
    _turn_s: list[float] = field(default_factory=list)
    _began_s: float = 0.0
    _readying_s: float = 0.0
    _room: Room = field(default_factory=Room)

    def enter(self, plan: Plan) -> float:
        """Make a plan ready, and run it for the seconds that it takes: a second time, unless the first took long."""
        began_s = monotonic()
        self._began_s = self._began_s or began_s
        if self._room.arena.nbytes < plan.arena_nbytes:
            self._room.hold(plan.arena_nbytes, 0)
            self._room.arena.fill(0)  # else the first run would find new memory
        self._ready.append(self.make_ready(plan))
        self._calls.append(_run_of(self._ready[-1], self._room))
        once = partial(fastest_ns, self._calls[-1], 1.0)
        run_ns: float = self._in_region(once)
        self._readying_s = max(self._readying_s, monotonic() - began_s)
        if run_ns < _LONG_NS:
            run_ns = self._in_region(once)
        self._turn_s.append(max(run_ns, _BRIEF_TURN_NS) / 1e9)
        return run_ns / 1e9

    def has_time(self) -> bool:
        """Whether there is time to make another one ready and for a few rounds with it."""
        rounds_s = N_LEAST_ROUNDS * (sum(self._turn_s) + max(self._turn_s))
        return monotonic() - self._began_s + self._readying_s + rounds_s < self.seconds

    def times(self) -> list[tuple[float, ...]]:
        """Run all of them in turn while there is time: the nanoseconds of each, by round."""
        least_s = N_LEAST_ROUNDS * sum(self._turn_s)
        longer = f", which takes {least_s:.1f} s" if least_s > MAX_SECONDS else ""
        self.tell(f"running the {len(self._calls)} likeliest plans in turn{longer}")
        with self.alone():
            if self.seconds == inf:
                rounds = []
                for _ in range(N_PLACES):
                    elsewhere = [_run_of(ready) for ready in self._ready]
                    for call in elsewhere:
                        self._in_region(call)
                    rounds += self._rounds(elsewhere, N_ROUNDS, _TURN_NS)
            else:
                rounds = self._rounds(self._calls, N_PLACES * N_ROUNDS, _BRIEF_TURN_NS)
        return [*zip(*rounds, strict=True)]

    def _rounds(self, calls: Sequence[Callable[[], object]], n_rounds: int, turn_ns: float) -> list[list[float]]:
        """Nanoseconds by round and plan."""
        rounds: list[list[float]] = []
        until_s = self._began_s + self.seconds - sum(self._turn_s)
        while len(rounds) < n_rounds and (monotonic() < until_s or not self._is_told(rounds)):
            rounds.append([self._in_region(partial(fastest_ns, call, turn_ns)) for call in calls])
        return rounds

    def _is_told(self, rounds: Sequence[Sequence[float]]) -> bool:
        """Whether the rounds tell which plan is the fastest: a few do, and of long runs one where it is so by far."""
        if len(rounds) >= N_LEAST_ROUNDS:
            return True
        if not rounds or min(self._turn_s) < _LONG_NS / 1e9:
            return False
        ahead = {_far_ahead(times) for times in (self._turn_s, *rounds)}
        return len(ahead) == 1 and None not in ahead

    def _in_region(self, call: Callable[[], object]) -> Any:
        return dnnl.run_parallel(call, self._ready[0].plan.config.n_threads)


class StandIns:
    """Random bytes in place of packed weights, for plans that are run to be timed: only the weights of one are packed.

    They are as many as the weights of the first plan, up to more than caches hold, and all plans read them. Only
    operands that primitives multiply by are replaced, and none in a plan with a step by numpy, whose work values may
    decide.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._tapes: dict[str, Tape] = {}

    def of(self, plan: Plan) -> dict[int, np.ndarray]:
        """The bytes of those constants that are replaced, by buffer."""
        found: dict[int, np.ndarray] = {}
        for dtype, items in _by_dtype(plan).items():
            sizes = [aligned(item.desc.nbytes) for item in items]
            if dtype not in self._tapes:
                elements = random_elements("f32") * np.float32(_SPREAD)
                self._tapes[dtype] = Tape(elements.astype(to_numpy(dtype)))
            tape = self._tapes[dtype]
            tape.reserve(max(*sizes, 0 if tape.nbytes else min(sum(sizes), cold_nbytes(plan.config.n_threads))))
            found |= {item.buffer: tape.piece(item.desc.nbytes) for item in items}
        return found


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


def _far_ahead(times: Sequence[float]) -> int | None:
    """Which one took far less than each other one, if one did."""
    least, second = sorted(times)[:2]
    return times.index(least) if least < _FAR * second else None


def share_of_time(ready: ReadyPlan, other: ReadyPlan, seconds: float) -> float:
    """How long a plan takes next to another one of the same model and rows: the median of the rounds' ratios."""
    run_off = RunOff(lambda plan: other if plan is other.plan else ready, seconds)
    run_off.enter(other.plan)
    run_off.enter(ready.plan)
    others, own = run_off.times()
    return Spread.of_ratios(own, others).median


def _run_of(ready: ReadyPlan, room: Room | None = None) -> Callable[[], object]:
    """Runs a plan whole, on random data, in memory of its own where none is given."""
    workspace, plan = workspace_of(ready, room), ready.plan
    generator = np.random.default_rng(_SEED)
    feed = [desc.pack(random_array(desc.dtype, desc.dims, generator)) for _, desc in plan.fed]
    return partial(workspace.run, workspace.executable(dict(plan.inputs)), feed)
