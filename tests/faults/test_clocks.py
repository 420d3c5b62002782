"""A clock that jumps: what it says decides nothing but which remembered plan goes first."""

from __future__ import annotations

import os
import time
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import timing
from blocklayout.plan.plan_store import MAX_FILES, PlanStore
from tests import nets

FAR_NS = 10**18


def test_times_are_those_of_a_clock_that_never_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps = cycle((0.0, 4e9, -1e9))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(jumps) * 1e9))
    session = bl.load(nets.residual(), tune="measure", tune_seconds=0.2)
    feed = nets.feed_of(session)
    expected = session.run(None, feed)
    profile = session.profile(feed, n_runs=2)
    assert all(0 < step.ns < 60e9 for step in profile.steps if step.kind == "work")
    assert 0 < timing.fastest_ns(lambda: session.run(None, feed)) < 60e9
    with bl.load(nets.residual(), streams=1) as again:
        np.testing.assert_allclose(again.submit(feed).result()[0], expected[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ahead_ns", [FAR_NS, -FAR_NS])
def test_plans_that_were_kept_at_another_time_make_room(ahead_ns: int, tmp_path: Path) -> None:
    store, plan = PlanStore(tmp_path), bl.load(nets.chain(convs=1), tune="model").plan
    for number in range(MAX_FILES):
        path = tmp_path / f"{number}.plan"
        path.touch()
        os.utime(path, ns=(time.time_ns() + ahead_ns,) * 2)
    for key in ("first", "second"):
        store.keep(key, plan)
    assert store.recall("first", bl.Plan) == store.recall("second", bl.Plan) == plan
    assert len([*tmp_path.iterdir()]) == MAX_FILES
