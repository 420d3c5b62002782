"""Plans that prices cannot tell apart are run whole and briefly, by a clock that only the tests move."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.dtypes import to_numpy
from blocklayout.errors import DeadlineExceededError
from blocklayout.ir import HostSpec
from blocklayout.loading import from_model as loading
from blocklayout.loading import racing
from blocklayout.plan import portfolio, prepack, race
from blocklayout.plan.costs import repeating, tuning
from blocklayout.plan.costs.known import KnownCosts
from blocklayout.runtime import Workspace
from tests import nets
from tests.refusing import Refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blocklayout.dnnl import Spec, Stop
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.model import Costs

PLANNING_S = 3.0


@dataclass
class Track:
    """Where plans race.

    Attributes:
        run_s: How long a run takes, by the place among those that are made ready; the last for all others.
        now_s: The time.
        is_busy: Whether other work takes a CPU away in every run.
        names: What chose the plans that were made ready, in order.
        plans: These, of all loads.
        told: What loading told.
    """

    run_s: tuple[float, ...] = (0.010, 0.005, 0.020)
    now_s: float = 100.0
    is_busy: bool = False
    n_switches: int = 0
    planning_s: float = PLANNING_S
    names: list[str] = field(default_factory=list)
    plans: list[bl.Plan] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    raced_s: float = 0.0
    measured_s: list[float] = field(default_factory=list)
    is_measuring: bool = False

    def load(self, **options: Any) -> bl.Plan:
        """The plan of a small network; planning takes its time."""
        self.names.clear()
        self.told.clear()
        return bl.load(nets.residual(), progress=self._tell, **options).plan

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what == "choosing layouts":
            self.now_s += self.planning_s

    def measure(self, specs: Sequence[Spec], seconds: float) -> dict[Spec, float]:
        """All of some Specs, or nothing."""
        if not self.is_measuring:
            return {}
        self.measured_s.append(seconds)
        self.now_s += seconds
        return dict.fromkeys(specs, 1000.0)

    def enter(self, name: str) -> float:
        """How long a run of the next plan takes."""
        self.names.append(name)
        return self.run_s[min(len(self.names), len(self.run_s)) - 1]

    def run(self, seconds: float, times: list[int], stop: Stop | None = None) -> None:
        left_s = stop.deadline_ns / 1e9 - self.now_s if stop is not None else seconds
        self.now_s += min(seconds, left_s)
        self.raced_s += min(seconds, left_s)
        self.n_switches += self.is_busy
        if left_s < seconds:
            raise DeadlineExceededError("the deadline passed")
        times.append(int(1e9 * seconds))


@pytest.fixture
def track(monkeypatch: pytest.MonkeyPatch) -> Track:
    """Prices are sure of nothing, and time passes where plans are made or run only."""
    track = Track()

    class Racer(Workspace):
        def __init__(self, ready: Any, room: Any = None) -> None:
            super().__init__(ready, room=room)
            self._run_s = track.enter(ready.plan.chosen)
            track.plans.append(ready.plan)

        def run(self, *_: Any, times: list[int], stop: Stop | None = None) -> Any:  # type: ignore[override]
            taken: list[int] = []
            track.run(self._run_s, taken, stop)
            n_steps = len(self._plan.steps)
            times += [0] * len(self._plan.entries) + [taken[0] // n_steps] * n_steps

    monkeypatch.setattr(loading, "SURE_BELOW", 0.0)
    monkeypatch.setattr(tuning, "measure_briefly", track.measure)
    monkeypatch.setattr(racing, "workspace_of", Racer)
    for module in (loading, racing, race, portfolio):
        monkeypatch.setattr(module, "monotonic", lambda: track.now_s)
    monkeypatch.setattr(repeating, "time", SimpleNamespace(perf_counter_ns=lambda: track.now_s * 1e9))
    monkeypatch.setattr(repeating, "_n_switches", lambda: track.n_switches)
    monkeypatch.setattr(repeating, "_waited_ns", lambda: 1e9 * track.n_switches)
    return track


def test_the_fastest_is_taken_told_of_and_remembered(track: Track) -> None:
    plan = track.load()
    cheapest, fastest, *_ = names = list(track.names)
    assert plan.chosen == fastest
    labels = [label for label, _ in plan.raced]
    assert len({*labels}) == len(names)
    assert all(label.startswith(name) for label, name in zip(labels, names, strict=True))
    assert [ratio for _, ratio in plan.raced] == pytest.approx([1.0, 0.5, *(2.0,) * (len(names) - 2)])
    assert f"run whole, in turn: {cheapest} 1.000, {fastest} 0.500" in plan.explain()
    assert any("best plans in turn" in what for what in track.told)
    assert track.load() == plan
    assert track.names == []


@pytest.mark.parametrize("has_compiler", [True, False])
def test_a_run_tells_what_its_steps_took(*, has_compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    learnt: list[dict[Spec, float]] = []
    known = KnownCosts.over

    def over(costs: Costs, times: dict[Spec, float]) -> Costs:
        if times:
            learnt.append(times)
        return known(costs, times)

    if not has_compiler:
        monkeypatch.setattr("blocklayout.dnnl.executable.native", lambda: None)
    monkeypatch.setattr(loading, "SURE_BELOW", 0.0)
    monkeypatch.setattr(loading, "PACKED_PER_NS", 1e-9)  # so that there is time
    monkeypatch.setattr(loading, "MAX_RUN_SECONDS", 60.0)
    monkeypatch.setattr(repeating.Stopwatch, "time", undisturbed)
    monkeypatch.setattr(tuning, "measure_briefly", lambda *_: {})
    monkeypatch.setattr(KnownCosts, "over", over)
    session = bl.load(nets.residual())
    assert learnt
    assert all(0 < ns < 1e9 for times in learnt for ns in times.values())
    assert "convolution" in {spec.kind for spec in learnt[0]}
    assert "times measured on this machine" in session.plan.priced_by
    feed = nets.feed_of(session)
    [expected] = ReferenceEvaluator(nets.residual().to_onnx()).run(None, feed)
    assert np.allclose(session.run(None, feed)[0], expected, atol=1e-4)


def undisturbed(_: object, call: Callable[[], object]) -> repeating.Run:
    began_s = time.perf_counter()
    call()
    return repeating.Run(1e9 * (time.perf_counter() - began_s), is_quiet=True)


def test_only_what_is_unsure_races_and_never_by_the_model(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    assert track.load(tune="model").raced == ()
    assert track.load(layout="nhwc").raced == ()
    monkeypatch.setattr(loading, "SURE_BELOW", 1e9)
    assert track.load().raced == ()
    assert track.raced_s == 0


@pytest.mark.parametrize("planning_s", [0.3, 0.6, 60.0])
def test_a_race_takes_a_third_of_loading_and_at_most_half_a_second(planning_s: float, track: Track) -> None:
    track.planning_s = planning_s
    assert track.load().raced
    a_round = track.run_s[0] + track.run_s[1] + track.run_s[2] * (len(track.names) - 2)
    loading_s = (1 + loading.STILL_TO_COME) * planning_s
    assert track.raced_s < min(loading_s / 2, loading.MAX_RUN_SECONDS) + 1.01 * a_round


@pytest.mark.parametrize(("run_s", "raced_s"), [(0.3, 0.3), (3.0, loading.MAX_RUN_SECONDS)])
def test_the_cheapest_plans_turn_tells_whether_there_is_time_for_another(
    run_s: float, raced_s: float, track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    track.run_s = (run_s,)
    plan = track.load()
    assert plan.raced == ()
    assert len(track.names) == 1
    assert track.raced_s == pytest.approx(raced_s)
    track.planning_s = 0.0
    monkeypatch.setattr(loading, "PACKED_PER_NS", math.inf)
    assert track.load(threads=1).raced == ()
    assert track.names == []  # not even begun


@dataclass
class Prices:
    """Plans of these prices, all of which are right next to each other."""

    seconds: Sequence[float]
    packing_s: float = 0.0

    def __post_init__(self) -> None:
        self.plans: list[Any] = [self.plan(self.seconds[0])]
        self.waiting = [*self.seconds[1:]]
        self.worth = 1.0

    def plan(self, seconds: float) -> Any:
        steps = (SimpleNamespace(spec=f"takes {seconds} s"),)
        return SimpleNamespace(cost_ns=1e9 * seconds, n_threads=1, arena_nbytes=0, entries=(), steps=steps)

    def next(self, has_time: Callable[..., bool] = lambda *_: True) -> Any:
        for index, seconds in enumerate(self.waiting):
            if has_time(1e9 * seconds * self.worth, [f"takes {seconds} s"]):
                self.plans.append(self.plan(self.waiting.pop(index)))
                return self.plans[-1]
        return None

    def learn(self, step_ns: Sequence[float], seconds: float) -> None:
        assert seconds < math.inf
        if len(self.plans) == 1:
            self.worth = sum(step_ns) / self.plans[0].cost_ns


@pytest.fixture
def raced(track: Track, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[float]] | None]:
    """Races plans for some seconds, by the track's runs."""

    def run_of(run_s: float, _: object) -> Callable[..., None]:
        return partial(track.run, run_s)

    monkeypatch.setattr(racing, "_run_of", run_of)
    run_s = iter(track.run_s)

    def race(prices: Prices, seconds: float) -> list[list[float]] | None:
        def make_ready(_: object) -> Any:
            track.now_s += prices.packing_s
            return next(run_s)

        return racing.time_briefly(prices, make_ready, seconds)

    return race


PRICES_S = (0.02, 0.05, 0.06)
"""Twice as long as the first plan's run takes, so that others seem to take 0.025 and 0.03 s."""


@pytest.mark.parametrize(("seconds", "n_racing"), [(0.0, 0), (0.015, 1), (0.032, 1), (0.04, 2), (0.05, 3), (0.2, 3)])
def test_as_many_plans_race_as_there_is_time_for(
    seconds: float, n_racing: int, track: Track, raced: Callable[..., list[list[float]] | None]
) -> None:
    times = raced(Prices(PRICES_S), seconds)
    if n_racing < 2:
        assert times is None
        assert track.raced_s == pytest.approx(n_racing * track.run_s[0])
    else:
        assert times is not None
        assert [own[0] / 1e9 for own in times] == pytest.approx(track.run_s[:n_racing])


def test_the_time_that_is_left_is_for_the_first_and_those_that_are_near_the_fastest(
    track: Track, raced: Callable[..., list[list[float]] | None]
) -> None:
    times = raced(Prices(PRICES_S), 0.2)
    assert times is not None
    assert len(times[0]) == len(times[1]) > 2
    assert len(times[2]) == 1
    assert track.raced_s < 0.2 + sum(track.run_s[:2])


@pytest.mark.parametrize(("seconds", "n_racing"), [(0.15, 0), (0.26, 2)])
def test_the_time_that_it_takes_to_make_the_first_ready_is_expected_of_others(
    seconds: float, n_racing: int, raced: Callable[..., list[list[float]] | None]
) -> None:
    times = raced(Prices(PRICES_S, packing_s=0.1), seconds)
    assert sum(map(bool, times or ())) == n_racing


def test_a_plan_that_takes_too_long_is_passed_over(raced: Callable[..., list[list[float]] | None]) -> None:
    prices = Prices((0.02, 0.06, 0.04))
    times = raced(prices, 0.035)
    assert times is not None
    assert all(times)
    assert [plan.cost_ns for plan in prices.plans] == [0.02e9, 0.04e9]


def test_only_the_plan_that_is_taken_has_its_weights_packed(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    packed: list[MemoryDesc] = []
    pack = prepack._packed

    def counting(array: np.ndarray, desc: MemoryDesc) -> np.ndarray:
        packed.append(desc)
        return pack(array, desc)

    monkeypatch.setattr(prepack, "_packed", counting)
    plan = track.load()
    assert len(track.names) > 1
    assert Counter(packed) == Counter(each.desc for each in plan.constants)


@pytest.mark.parametrize("dtype", ["f32", pytest.param("bf16", marks=pytest.mark.needs_bf16)])
def test_what_stands_in_for_weights_is_as_large_and_ordinary_numbers(dtype: str) -> None:
    plan = bl.load(nets.residual(), layout="nhwc", dtype=dtype, tune="model").plan
    found = racing.StandIns().of(plan)
    weights = {each.buffer: each.desc for each in plan.constants if len(each.desc.dims) > 1}
    assert found.keys() == weights.keys()
    for buffer, desc in weights.items():
        assert found[buffer].nbytes == desc.nbytes
        numbers = np.abs(found[buffer].view(to_numpy(desc.dtype)).astype(np.float32))
        assert 0.01 < np.median(numbers) < 1.0
        assert numbers.max() < 1.0


def test_nothing_stands_in_where_numpy_computes_a_step() -> None:
    b = bl.Builder()
    x = b.input("x", (1, 16, 8, 8)).conv(np.ones((16, 16, 1, 1), np.float32), name="conv")
    b.output("y", x.equal(x))
    plan = bl.load(b, tune="model").plan
    assert any(isinstance(step.spec, HostSpec) for step in plan.steps)
    assert racing.StandIns().of(plan) == {}


@pytest.mark.parametrize("planning_s", [0.3, 60.0])
def test_half_of_the_time_is_for_prices_that_are_doubted(planning_s: float, track: Track) -> None:
    track.planning_s, track.is_measuring, track.run_s = planning_s, True, (0.001,)
    plan = track.load()
    seconds = min((1 + loading.STILL_TO_COME) * planning_s / 2, loading.MAX_RUN_SECONDS)
    assert track.measured_s[0] == pytest.approx(loading.MEASURED_SHARE * seconds)
    assert "times measured on this machine, and times recorded on" in plan.priced_by
    assert plan.raced  # though prices are sure now
    assert sum(track.measured_s) + track.raced_s < seconds + 0.01
    assert any("measuring what matters most" in what for what in track.told)
    n_measured = len(track.measured_s)
    track.load()
    assert len(track.measured_s) == n_measured  # the plan is remembered


def test_nothing_is_measured_where_prices_are_sure_or_nothing_is_to_be_chosen(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    track.is_measuring = True
    assert "measured" not in track.load(tune="model").priced_by
    assert "measured" not in track.load(layout="nhwc").priced_by
    monkeypatch.setattr(loading, "SURE_BELOW", 1e9)
    assert "measured" not in track.load().priced_by
    assert track.measured_s == []


def test_a_contender_that_is_refused_is_replaced_and_the_others_race_on(
    track: Track, refusing: Refusing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"winograd": False}
    track.load(**options)
    refused = next(step.spec for step in track.plans[-1].steps if step.spec.kind == "convolution")
    refusing.create(refused.__eq__)
    monkeypatch.setenv("BLOCKLAYOUT_CACHE_DIR", str(tmp_path))
    plan = track.load(**options)
    assert refusing.met == [refused]
    assert len(plan.raced) >= 2
    assert refused not in {step.spec for step in plan.steps}
    assert any(f"oneDNN offers {refused.impl}" in reason for _, reason in plan.exceptions)


def test_a_disturbed_race_leaves_the_cheapest_and_says_so(track: Track) -> None:
    track.is_busy, track.run_s = True, (0.005,)
    plan = track.load()
    assert plan.raced == ()
    assert plan.chosen == track.names[0]
    assert "a race of whole plans told nothing: 0 of " in plan.explain()
    assert any("cheapest plan is taken: 0 of " in what and "left alone by other work" in what for what in track.told)
    assert track.load() == plan
    assert track.names == []
