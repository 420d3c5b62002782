"""How often something is run to know its time, and which runs count."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, count, repeat
from types import SimpleNamespace

import pytest

from blocklayout.plan.costs import repeating
from blocklayout.plan.costs.repeating import SLOW_NS, Run, Stopwatch, typical_times


def runs_of(ns: float) -> int:
    n_runs = 0

    def once() -> Run:
        nonlocal n_runs
        n_runs += 1
        return Run(ns, is_quiet=True)

    assert typical_times([once]) == [ns]
    return n_runs


def of(*runs: Iterator[Run] | list[Run]) -> Callable[[], Run]:
    return chain(*runs).__next__


@pytest.mark.parametrize(("ns", "expected"), [(1e3, 21), (1e6, 16), (10e6, 5), (40e6, 3), (60e6, 2), (2e9, 1)])
def test_slow_ones_run_less_often(ns: float, expected: int) -> None:
    assert runs_of(ns) == expected


@pytest.mark.parametrize(("ns", "expected"), [(SLOW_NS / 2, None), (2 * SLOW_NS, 2 * SLOW_NS)])
def test_two_runs_tell_the_time_of_slow_ones_only(ns: float, expected: float | None) -> None:
    """The first is slower, as it finds code and data far away."""
    asked = iter([True, True, False])
    runs = [Run(1.05 * ns, is_quiet=True), Run(ns, is_quiet=True)]
    assert typical_times([of(runs)], lambda: next(asked)) == [expected]


def test_a_bad_moment_does_not_count() -> None:
    runs = [Run(900.0, is_quiet=True), *[Run(100.0, is_quiet=True), Run(500.0, is_quiet=True)] * 20]
    assert typical_times([of(runs)]) == [100.0]


def test_interrupted_runs_do_not_count() -> None:
    runs = [Run(8e6, is_quiet=False)] * 5 + [Run(2e6, is_quiet=True)] * 5
    assert typical_times([of(runs)]) == [2e6]


def test_where_all_are_interrupted_there_is_no_time() -> None:
    assert typical_times([of(repeat(Run(8e6, is_quiet=False)))]) == [None]


def test_calls_take_turns_until_each_is_known() -> None:
    order = []

    def call(name: str, ns: float) -> Callable[[], Run]:
        def once() -> Run:
            order.append(name)
            return Run(ns, is_quiet=True)

        return once

    assert typical_times([call("a", 40e6), call("b", 10e6)]) == [40e6, 10e6]
    assert "".join(order) == "ababab" + "bb"


def test_what_ran_too_seldom_when_it_ends_has_no_time() -> None:
    asked = iter([True] * 7 + [False])
    times = typical_times([of(repeat(Run(ns, is_quiet=True))) for ns in (1.0, 2.0, 3.0)], lambda: next(asked))
    assert times == [1.0, None, None]


def test_a_run_is_quiet_unless_a_thread_lost_its_cpu_since_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([3, 3, 5, 5])
    monkeypatch.setattr(repeating, "_n_switches", lambda: next(counts))
    monkeypatch.setattr(repeating, "_waited_ns", lambda: math.nan)
    stopwatch = Stopwatch()
    assert [stopwatch.time(lambda: None).is_quiet for _ in range(3)] == [True, False, True]


def test_a_run_whose_threads_were_back_at_once_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    waited_ns, n_switches, now_ns = iter([0.0, 5e4, 1e5, 8e5]), count(), count(step=10**7 // 2)
    monkeypatch.setattr(repeating, "_n_switches", lambda: next(n_switches))
    monkeypatch.setattr(repeating, "_waited_ns", lambda: next(waited_ns))
    monkeypatch.setattr(repeating, "time", SimpleNamespace(perf_counter_ns=lambda: next(now_ns)))
    stopwatch = Stopwatch()
    assert [stopwatch.time(lambda: None) for _ in range(3)] == [Run(5e6, True), Run(5e6, True), Run(5e6, False)]
