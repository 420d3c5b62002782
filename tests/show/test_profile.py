"""A profile names every step once, by the model's own names, and its kinds add up to the whole."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

import blocklayout as bl
from blocklayout.dnnl import executable
from blocklayout.show.profile import KINDS, Profile, StepProfile, predicted_profile, typical
from tests import nets


@pytest.mark.parametrize("language", ["C", "Python"])
def test_every_step_is_there_once(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if language == "Python":
        monkeypatch.setattr(executable, "native", lambda: None)
    session = bl.load(nets.residual(), layout="nhwc")
    profile = session.profile(nets.feed_of(session), n_runs=3)
    plan = session.plan
    work = [step for step in profile.steps if step.kind == "work"]
    assert [(step.name, step.nodes, step.impl) for step in work] == [
        (step.kernel, step.nodes, step.spec.impl) for step in plan.steps if not step.is_reorder
    ]
    kinds = [step.kind for step in profile.steps]
    assert kinds[0] == "outside"
    assert kinds.count("input") == sum(entry.is_reorder for entry in plan.entries)
    assert kinds.count("output") + kinds.count("reorder") == sum(step.is_reorder for step in plan.steps)
    assert sum(step.flops for step in work) == 2 * plan.multiply_adds
    assert all(step.ns > 0 and step.ceiling_share for step in work)
    assert sum(profile.by_kind.values()) == pytest.approx(profile.ns)
    assert tuple(profile.by_kind) == KINDS


def test_the_table_and_the_trace_tell_the_same(tmp_path: Path) -> None:
    session = bl.load(nets.chain(), layout="per-op")
    profile = session.profile(nets.feed_of(session), n_runs=2)
    text = str(profile)
    assert text.startswith("a typical run of ")
    assert all(step.name in text and step.impl in text for step in profile.steps)
    profile.save_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["cat"] for event in events] == [step.kind for step in profile.steps]
    ends = [event["ts"] + event["dur"] for event in events]
    assert [event["ts"] for event in events[1:]] == pytest.approx(ends[:-1])
    assert ends[-1] * 1000 == pytest.approx(profile.ns)
    json.dumps(profile.to_dict(), allow_nan=False)


def test_what_the_caller_gets_and_gives_is_told_apart() -> None:
    session = bl.load(nets.chain(), layout="nhwc", io_layout={})
    profile = session.profile(nets.feed_of(session), n_runs=1)
    [last] = [step for step in profile.steps if step.kind == "output"]
    assert last is profile.steps[-1]
    assert "nhwc -> nchw" in last.layouts


@pytest.mark.filterwarnings("ignore::blocklayout.errors.PlainKernelWarning")
def test_what_the_reference_computes_is_a_fallback() -> None:
    b = bl.Builder()
    b.output("y", b.op("Det", b.input("x", (2, 3, 3))))
    profile = bl.load(b).profile({"x": np.ones((2, 3, 3), np.float32)}, n_runs=1)
    assert profile.by_kind["fallback"] > 0


def test_a_profiled_run_computes_what_others_do() -> None:
    session = bl.load(nets.residual())
    feed = nets.feed_of(session)
    before = session.run(None, feed)[0]
    session.profile(feed, n_runs=1)
    np.testing.assert_array_equal(session.run(None, feed)[0], before)


def test_several_profiles_become_one_by_medians() -> None:
    session = bl.load(nets.residual(), layout="nhwc")
    profiles = [session.profile(nets.feed_of(session), n_runs=1) for _ in range(3)]
    one = typical(profiles)
    assert one.n_runs == 3
    assert [(step.name, step.number) for step in one.steps] == [(step.name, step.number) for step in profiles[0].steps]
    last = [each.steps[-1] for each in profiles]
    assert one.steps[-1].ns == statistics.median(step.ns for step in last)
    reached = statistics.median(step.ceiling_share or 0 for step in last)
    assert one.steps[-1].ceiling_share == pytest.approx(reached)
    times = [step.ns for step in last]
    assert (one.steps[-1].low_ns, one.steps[-1].high_ns) == (min(times), max(times))


def test_each_step_has_the_range_of_its_runs() -> None:
    session = bl.load(nets.residual(), layout="nhwc")
    profile = session.profile(nets.feed_of(session), n_runs=5)
    assert all(0 < step.low_ns <= step.ns <= step.high_ns for step in profile.steps if step.kind != "outside")
    assert any(step.low_ns < step.high_ns for step in profile.steps)


def test_none_is_no_number_of_runs() -> None:
    session = bl.load(nets.chain())
    with pytest.raises(bl.InputError, match="n_runs=0"):
        session.profile(nets.feed_of(session), n_runs=0)
    with pytest.raises(bl.InputError, match="no input 'z'"):
        session.profile({"z": np.zeros(1)})


def _step(ns: float, predicted_ns: float = 0, ceiling_share: float | None = None) -> StepProfile:
    return StepProfile("k", "work", (), "", "", "", ns, predicted_ns, 0, 0, ceiling_share)


def test_the_share_above_a_ceiling_is_of_the_time() -> None:
    profile = Profile("m", 3, (_step(60, 0, 0.9), _step(30, 0, 0.5), _step(10)))
    assert profile.share_above(0.8) == pytest.approx(0.6)
    assert profile.share_above(0.4) == pytest.approx(0.9)
    assert profile.share_without_ceiling == pytest.approx(0.1)
    record = profile.to_dict()
    assert (record["above_80"], record["without_ceiling"]) == (pytest.approx(0.6), pytest.approx(0.1))
    assert Profile("m", 3, ()).share_above(0.8) == 0


def test_predictions_are_compared_by_their_geometric_mean_and_spread() -> None:
    profile = Profile("m", 3, (_step(200, 100), _step(800, 100), _step(7)))
    assert profile.prediction is not None
    assert list(profile.prediction) == pytest.approx([4, 2])
    assert Profile("m", 3, (_step(7),)).prediction is None


def test_a_predicted_profile_has_the_times_of_the_plan() -> None:
    with bl.load(nets.residual(), layout="nhwc", tune="model") as session:
        plan = session.plan
    profile = predicted_profile(plan, plan.machine())
    assert profile.n_runs == 0
    assert profile.ns == pytest.approx(plan.cost_ns)
    assert all(step.ns == step.estimated_ns for step in profile.steps)
    assert profile.prediction is None
    json.dumps(profile.to_dict(), allow_nan=False)
