"""A first load runs the likeliest plans whole, in turn, by a clock that only the tests move, and takes the fastest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import Struct
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.dtypes import to_numpy
from blocklayout.ir import HostSpec
from blocklayout.loading import run_off
from blocklayout.plan import make, portfolio, prepack
from blocklayout.plan.policies import BOLD_SOLVE, SOLVE, SOLVES
from blocklayout.plan.portfolio import UNIFORM_POLICIES
from blocklayout.runtime import Workspace
from blocklayout.show.names import policy_name
from tests import nets
from tests.refusing import Refusing

if TYPE_CHECKING:
    from collections.abc import Callable

    from blocklayout.layout import MemoryDesc

pytestmark = pytest.mark.runs_plans


@dataclass
class Track:
    """Where plans run.

    Attributes:
        run_s: How long a run takes, by the place among those that are made ready; the last for all others.
        readying_s: How long it takes to make a plan ready.
        now_s: The time.
        names: What chose the plans that were made ready, in order.
        plans: These, of all loads.
        told: What loading told.
        n_runs: Of each of them.
    """

    run_s: tuple[float, ...] = (0.010, 0.005, 0.020)
    readying_s: float = 0.0
    now_s: float = 100.0
    names: list[str] = field(default_factory=list)
    plans: list[bl.Plan] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    n_runs: Counter[int] = field(default_factory=Counter)

    def load(self, **options: Any) -> bl.Plan:
        """The plan of a small network."""
        for noted in (self.names, self.told, self.n_runs):
            noted.clear()
        return bl.load(nets.residual(), progress=self.told.append, **options).plan

    def enter(self, name: str) -> int:
        """The place of a plan that was made ready."""
        self.now_s += self.readying_s
        self.names.append(name)
        return len(self.names) - 1

    def run(self, place: int) -> None:
        self.n_runs[place] += 1
        self.now_s += self.run_s[min(place, len(self.run_s) - 1)]


@pytest.fixture
def track(monkeypatch: pytest.MonkeyPatch) -> Track:
    """Time passes where plans are made ready or run only; every policy is worth running, whatever prices are here."""
    track = Track()

    class Runner(Workspace):
        def __init__(self, ready: Any, room: Any = None) -> None:
            super().__init__(ready, room=room)
            self._place = track.enter(ready.plan.chosen)
            track.plans.append(ready.plan)

        def run(self, *_: Any, **__: Any) -> Any:
            track.run(self._place)

    def once(call: Callable[[], object], _: float) -> float:
        began_s = track.now_s
        call()
        return 1e9 * (track.now_s - began_s)

    monkeypatch.setattr(portfolio, "NEAR", inf)
    monkeypatch.setattr(make, "NEAR", inf)
    monkeypatch.setattr(run_off, "workspace_of", Runner)
    monkeypatch.setattr(run_off, "monotonic", lambda: track.now_s)
    monkeypatch.setattr(run_off, "fastest_ns", once)
    return track


def test_the_fastest_is_taken_told_of_and_remembered(track: Track) -> None:
    plan = track.load()
    first, fastest, *others = names = list(track.names)
    assert first in UNIFORM_POLICIES
    assert plan.chosen == fastest
    assert [name for name, _ in plan.raced] == names
    assert [ratio for _, ratio in plan.raced] == pytest.approx([1.0, 0.5, *(2.0 for _ in others)])
    assert plan.raced_ns == pytest.approx(5e6)
    assert f"run whole, in turn: {first} 1.000, {policy_name(fastest)} 0.500" in plan.explain()
    assert any("likeliest plans in turn" in what for what in track.told)
    assert track.load() == plan
    assert track.names == []


def test_a_tie_goes_to_the_uniform_policy(track: Track) -> None:
    track.run_s = (0.010, 0.00995)
    assert track.load().chosen == track.names[0]


class Why(Struct, frozen=True):
    """In place of a rationale."""

    raced: tuple[tuple[str, float], ...] = ()
    raced_ns: float = 0.0


class Raced(Struct, frozen=True):
    """In place of a plan."""

    rationale: Why = Why()


@dataclass
class Rounds:
    """Gives the times that plans took in some rounds."""

    taken: list[tuple[float, ...]]
    entering_s: tuple[float, ...] = (0.0,)
    entered: list[object] = field(default_factory=list)

    def enter(self, plan: object) -> float:
        """Nothing is run."""
        self.entered.append(plan)
        return self.entering_s[min(len(self.entered), len(self.entering_s)) - 1]

    def has_time(self) -> bool:
        return False

    def times(self) -> list[tuple[float, ...]]:
        return self.taken


@pytest.mark.parametrize(
    ("rounds", "is_taken"),
    [
        ((0.98, 0.98, 0.98, 1.20), True),
        ((0.98, 0.98, 1.20, 1.20), False),
        ((0.80, 0.80, 1.20), True),
        ((0.995, 0.995, 0.995), False),
        ((0.80, 1.20, 1.20), False),
    ],
)
def test_a_plan_is_taken_that_is_clearly_faster_in_three_of_four_rounds_or_by_far_in_half(
    rounds: tuple[float, ...], *, is_taken: bool
) -> None:
    contenders: Any = [SimpleNamespace(name=name, cost_ns=1.0) for name in ("first", "second")]
    raced = make._fastest(contenders, lambda _: Raced(), Rounds([(1.0,) * len(rounds), rounds]))  # type: ignore[arg-type,return-value]
    assert raced is not None
    taken, plan = raced
    assert taken.name == ("second" if is_taken else "first")
    assert [name for name, _ in plan.rationale.raced] == ["first", "second"]
    assert plan.rationale.raced_ns == (median(rounds) if is_taken else 1.0)


def test_of_two_that_are_faster_one_is_taken_that_others_disturbed_less() -> None:
    """Here the first plan was disturbed in two rounds of three, in which the third plan was not."""
    contenders: Any = [SimpleNamespace(name=name, cost_ns=1.0) for name in ("first", "second", "third")]
    rounds = Rounds([(1.0, 1.25, 1.30), (0.80, 0.99, 0.85), (1.01, 0.98, 1.00)])
    raced = make._fastest(contenders, lambda _: Raced(), rounds)  # type: ignore[arg-type,return-value]
    assert raced is not None
    assert raced[0].name == "second"


@pytest.mark.parametrize(
    ("second_ns", "bold_ns", "entering_s", "n_run"),
    [
        (1.2, 0.94, (0.1, 0.05), 4),
        (1.2, 0.96, (0.1, 0.05), 3),
        (1.2, 0.96, (2.0, 1.8), 2),
        (1.0, 0.96, (2.0, 1.8), 3),
        (1.0, 0.96, (2.0, 1.8, 1.0), 3),
    ],
)
def test_without_time_the_first_two_run_and_those_that_are_near_by_price_and_by_long_runs(
    second_ns: float, bold_ns: float, entering_s: tuple[float, ...], n_run: int
) -> None:
    costs = {"blocked": 1.1, SOLVE: 1.0, "nhwc": second_ns, BOLD_SOLVE: bold_ns}
    contenders: Any = [SimpleNamespace(name=name, cost_ns=each) for name, each in costs.items()]
    finished: list[Any] = []

    def finish(contender: Any) -> Any:
        finished.append(contender.name)
        return Raced()

    make._fastest(contenders, finish, Rounds([(1.0,)] * n_run, entering_s))
    assert finished == [*costs][:n_run]


def test_a_model_that_does_not_take_made_up_values_is_planned_by_prices() -> None:
    b, rng = bl.Builder(), np.random.default_rng(0)
    x, index = b.input("x", (1, 16, 28, 28)), b.input("index", (3,), "s64")
    for _ in range(3):
        x = x.conv(nets.he(rng, 16, 16, 3, 3), pads=1).relu()
    b.output("y", b.op("Gather", x, index, axis=0))  # an index can only be 0
    session = bl.load(b)
    assert session.plan.raced == ()
    feed = {"x": np.ones((1, 16, 28, 28), np.float32), "index": np.zeros(3, np.int64)}
    assert session.run(None, feed)[0].shape == (3, 16, 28, 28)


def test_only_auto_runs_plans_and_never_by_the_model(track: Track) -> None:
    assert track.load(tune="model").raced == ()
    assert track.load(layout="nhwc").raced == ()
    assert track.names == []


def test_all_but_a_second_solve_always_run_a_few_times_however_long_they_take(track: Track) -> None:
    track.run_s = (60.0, 50.0)
    plan = track.load()
    assert [name for name, _ in plan.raced] == track.names
    assert track.names[0] in UNIFORM_POLICIES
    assert "plain" in track.names
    assert len({*track.names} & {*UNIFORM_POLICIES}) > 2
    assert not {*track.names[make.N_LEAST_RUN :]} & {*SOLVES}
    assert min(track.n_runs.values()) >= run_off.N_LEAST_ROUNDS
    assert any("which takes" in what for what in track.told)


@pytest.mark.parametrize(
    ("run_s", "n_rounds"),
    [
        ((60.0, 50.0), 1),
        ((50.0, 60.0), 1),
        ((0.11, 0.12), run_off.N_LEAST_ROUNDS),
        ((0.09, 0.07), run_off.N_LEAST_ROUNDS),
    ],
)
def test_one_round_does_where_of_two_long_runs_one_is_far_ahead_twice(
    track: Track, run_s: tuple[float, float], n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portfolio, "NEAR", 0.0)
    monkeypatch.setattr(make, "CHEAPER", 0.0)
    track.run_s = run_s
    plan = track.load()
    assert plan.chosen == track.names[run_s.index(min(run_s))]
    assert {*track.n_runs.values()} == {n_rounds + (2 if min(run_s) < 0.1 else 1)}


@pytest.mark.parametrize(("run_s", "n_runs"), [(60.0, 1), (0.09, 2)])
def test_a_plan_whose_run_takes_long_enters_with_one(track: Track, run_s: float, n_runs: int) -> None:
    track.run_s = (run_s,)
    track.load()
    assert {*track.n_runs.values()} == {n_runs + run_off.N_LEAST_ROUNDS}


def test_a_policy_that_prices_know_to_be_far_slower_is_not_run(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portfolio, "NEAR", 0.0)
    track.load()
    assert len({*track.names} & {*UNIFORM_POLICIES}) == 1


def test_where_there_is_time_all_run_in_every_round(track: Track) -> None:
    track.run_s = (1e-6,)
    track.load()
    assert len(track.names) > make.N_LEAST_RUN
    assert len({*track.n_runs.values()}) == 1


def test_rounds_go_on_while_there_is_time(track: Track) -> None:
    track.run_s = (0.0001,)
    track.load()
    assert min(track.n_runs.values()) > run_off.N_LEAST_ROUNDS


def test_measuring_runs_all_in_several_places(track: Track, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocklayout.plan.pricing.Pricing.priced", lambda _, network: network)
    track.run_s = (60.0, 50.0)
    track.load(tune="measure")
    n_plans = len({*track.names})
    assert n_plans > make.N_LEAST_RUN
    assert len(track.names) == n_plans * (1 + run_off.N_PLACES)


@pytest.mark.parametrize("has_compiler", [True, False])
def test_a_real_run_off_leaves_answers_as_they_are(*, has_compiler: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_compiler:
        monkeypatch.setattr("blocklayout.dnnl.executable.native", lambda: None)
    session = bl.load(nets.residual())
    assert len(session.plan.raced) >= make.N_LEAST_RUN
    assert all(ratio > 0 for _, ratio in session.plan.raced)
    assert session.plan.chosen in dict(session.plan.raced)
    feed = nets.feed_of(session)
    [expected] = ReferenceEvaluator(nets.residual().to_onnx()).run(None, feed)
    assert np.allclose(session.run(None, feed)[0], expected, atol=1e-4)


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
    found = run_off.StandIns().of(plan)
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
    assert run_off.StandIns().of(plan) == {}


def test_a_plan_that_is_refused_is_replaced_and_the_others_run_on(
    track: Track, refusing: Refusing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"recipes": {"winograd": False}}
    track.load(**options)
    refused = next(step.spec for step in track.plans[-1].steps if step.spec.kind == "convolution")
    refusing.create(refused.__eq__)
    monkeypatch.setenv("BLOCKLAYOUT_CACHE_DIR", str(tmp_path))
    plan = track.load(**options)
    assert refusing.met == [refused]
    assert len(plan.raced) >= make.N_LEAST_RUN
    assert refused not in {step.spec for step in plan.steps}
    assert any(f"oneDNN offers {refused.impl}" in reason for _, reason in plan.exceptions)


@pytest.mark.parametrize("is_file", [True, False])
def test_a_policy_that_was_seen_to_be_faster_is_taken_now_and_by_later_loads(tmp_path: Path, *, is_file: bool) -> None:
    bl.save(nets.residual(), tmp_path / "model.onnx")
    source = tmp_path / "model.onnx" if is_file else nets.residual()
    session = bl.load(source)
    other = next(name for name in ("plain", "blocked") if name != session.plan.chosen)
    feed = nets.feed_of(session)
    before = session.run(None, feed)[0]
    session.settle(feed, other, 0.8)
    for plan in (session.plan, bl.load(source).plan):
        assert (plan.policy, plan.chosen, plan.raced[-1]) == ("auto", other, (other, 0.8))
    assert np.allclose(session.run(None, feed)[0], before, atol=1e-4)


@pytest.mark.parametrize("options", [{"layout": "nhwc"}, {"tune": "model"}])
def test_a_session_of_another_policy_or_of_the_model_alone_is_not_settled(options: dict[str, Any]) -> None:
    session = bl.load(nets.residual(), **options)
    before = session.plan
    other = next(name for name in ("plain", "blocked") if name != before.chosen)
    session.settle(nets.feed_of(session), other, 0.5)
    assert session.plan == before
