"""Tuning measures what matters most first, never what is known, and keeps what it has measured."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from blocklayout import dnnl
from blocklayout.errors import DisturbedError, OutOfMemoryError
from blocklayout.plan.costs import repeating
from blocklayout.plan.costs.store import CostStore
from blocklayout.plan.costs.tuning import Tuned, tune, yardstick


def spec_number(number: int) -> dnnl.Spec:
    return dnnl.softmax(dnnl.MemoryDesc((1, number)), n_threads=1)


def requests(*numbers: int) -> dict[dnnl.Spec, float]:
    """Worth as much as their number."""
    return {spec_number(number): float(number) for number in numbers}


def counts(tuned: Tuned) -> tuple[int, int, int, int]:
    return tuned.n_measured, tuned.n_known, tuned.n_left, tuned.n_failed


@pytest.fixture
def store(tmp_path: Path) -> CostStore:
    return CostStore(tmp_path / "costs.bin", environment="here")


class FakeTimer:
    """Takes a second for each Spec, by a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timed: list[int] = []
        self.turns: list[int] = []
        self.errors: dict[int, list[Exception | KeyboardInterrupt]] = {}
        self.slowness = 1.0

    def time_in_turn(self, specs: Sequence[dnnl.Spec], go_on: Callable[[], bool]) -> list[float | Exception]:
        assert specs[0] == yardstick(specs[0].n_threads)
        self.turns.append(len(specs) - 1)
        return [50.0 * self.slowness, *self._times(specs[1:], go_on)]

    def _times(self, specs: Sequence[dnnl.Spec], go_on: Callable[[], bool]) -> list[float | Exception]:
        return [self._time(spec) if go_on() else DisturbedError("no time") for spec in specs]

    def _time(self, spec: dnnl.Spec) -> float | Exception:
        number = spec.desc("src").dims[1]
        self.timed.append(number)
        self.now_s += 1.0
        error = self.errors[number].pop() if self.errors.get(number) else None
        if isinstance(error, KeyboardInterrupt):
            raise error
        return error or number * self.slowness


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> FakeTimer:
    fake = FakeTimer()
    monkeypatch.setattr("blocklayout.plan.costs.tuning.SpecTimer", lambda *_: fake)
    monkeypatch.setattr("blocklayout.plan.costs.tuning.monotonic", lambda: fake.now_s)
    return fake


def test_the_most_valuable_comes_first_and_once(store: CostStore, timer: FakeTimer) -> None:
    tuned = tune(requests(2, 5, 3, 5), store, math.inf)
    assert timer.timed == [5, 3, 2]
    assert counts(tuned) == (3, 0, 0, 0)
    assert store.times([spec_number(5)]) == {spec_number(5): 5.0}


def test_what_is_known_is_not_measured_again(store: CostStore, timer: FakeTimer) -> None:
    store.keep(spec_number(3), 77.0)
    assert counts(tune(requests(1, 2, 3), store, math.inf)) == (2, 1, 0, 0)
    assert timer.timed == [2, 1]
    assert store.times([spec_number(3)]) == {spec_number(3): 77.0}
    assert counts(tune(requests(1, 2, 3), store, math.inf)) == (0, 3, 0, 0)


def test_times_of_a_slow_turn_are_kept_as_if_the_machine_were_as_fast_as_at_first(
    store: CostStore, timer: FakeTimer
) -> None:
    tune(requests(1, 2), store, math.inf)
    timer.slowness = 2.0
    tune(requests(3, 4), store, math.inf)
    wanted = [spec_number(number) for number in range(1, 5)]
    assert [*store.times(wanted).values()] == [1.0, 2.0, 3.0, 4.0]


def test_when_the_time_is_up_the_rest_is_left(store: CostStore, timer: FakeTimer) -> None:
    tuned = tune(requests(1, 2, 3, 4, 5), store, 2.5)
    assert counts(tuned) == (3, 0, 2, 0)
    assert tuned.seconds == 3.0
    assert timer.timed == [5, 4, 3]


def test_no_time_is_no_measurement(store: CostStore, timer: FakeTimer) -> None:
    assert counts(tune(requests(1, 2), store, 0.0)) == (0, 0, 2, 0)
    assert timer.timed == []


def test_what_cannot_run_is_skipped(store: CostStore, timer: FakeTimer) -> None:
    timer.errors = {2: [OutOfMemoryError("no")], 3: [MemoryError()]}
    assert counts(tune(requests(1, 2, 3), store, math.inf)) == (1, 0, 0, 2)


def test_what_was_disturbed_is_tried_again_after_the_others(store: CostStore, timer: FakeTimer) -> None:
    timer.errors = {3: [DisturbedError("busy")], 2: [DisturbedError("busy")] * 9}
    assert counts(tune(requests(1, 2, 3), store, math.inf)) == (2, 0, 1, 0)
    assert timer.timed == [3, 2, 1, 3, 2, 2]


def test_whoever_interrupts_it_keeps_the_turns_before(
    store: CostStore, timer: FakeTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blocklayout.plan.costs.tuning.N_IN_TURN", 2)
    timer.errors = {2: [KeyboardInterrupt()]}
    with pytest.raises(KeyboardInterrupt):
        tune(requests(1, 2, 3, 4), store, math.inf)
    other = CostStore(store.path, environment="here")
    assert set(other.times([spec_number(number) for number in range(1, 5)])) == {spec_number(3), spec_number(4)}


@pytest.mark.usefixtures("timer")
def test_progress_is_told_in_a_few_words(store: CostStore) -> None:
    told: list[str] = []
    store.keep(spec_number(3), 1.0)
    tune(requests(1, 2, 3), store, 40.0, told.append)
    assert told == ["measuring, 0 of 2 known (40 s left)", "measuring, 0 of 2 known (39 s left)"]
    told.clear()
    tune(requests(4), store, math.inf, told.append)
    assert told == ["measuring, 0 of 1 known"]


def test_progress_is_not_told_too_often(store: CostStore, timer: FakeTimer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blocklayout.plan.costs.tuning.monotonic", lambda: timer.now_s / 1000)
    told: list[str] = []
    tune(requests(*range(1, 300)), store, math.inf, told.append)
    assert len(told) == 3


def test_specs_take_turns_in_small_crowds(store: CostStore, timer: FakeTimer) -> None:
    tune(requests(*range(1, 301)), store, math.inf)
    assert timer.turns == [128, 128, 44]


def test_what_another_process_has_measured_meanwhile_is_not_measured_again(
    store: CostStore, timer: FakeTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def other_turn(*_: object) -> Iterator[None]:
        store.keep(spec_number(2), 77.0)
        yield

    monkeypatch.setattr(CostStore, "alone", other_turn)
    assert counts(tune(requests(1, 2, 3), store, math.inf)) == (2, 1, 0, 0)
    assert timer.timed == [3, 1]


def test_real_specs_are_measured(store: CostStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeating, "_n_switches", lambda: 0)
    plain, blocked = dnnl.MemoryDesc((1, 17, 9, 9)), dnnl.MemoryDesc((1, 17, 9, 9), "f32", "nChw8c")
    mover = dnnl.reorder(plain, blocked, n_threads=2)
    step = dnnl.resolve(dnnl.eltwise(blocked, algorithm="relu", n_threads=2)).spec
    absent = step.replace(impl="jit:of_another_library")
    tuned = tune(dict.fromkeys((mover, step, absent), 1.0), store, math.inf)
    assert counts(tuned) == (2, 0, 0, 1)
    assert set(store.times([mover, step, absent])) == {mover, step}
    assert re.fullmatch(r"2 measured in \d+\.\d s, 0 known, 1 failed", str(tuned))
