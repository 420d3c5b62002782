"""Where prices come from, and what is measured for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import blocklayout as bl
from blocklayout.plan.costs import tuning
from blocklayout.plan.costs.store import cost_store_path
from tests import nets


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BLOCKLAYOUT_CACHE_DIR", str(tmp_path))
    return cost_store_path()


def _measured(plan: bl.Plan) -> int:
    return int(plan.priced_by.split()[0]) if plan.priced_by[0].isdigit() else 0


def test_nothing_is_measured_or_written_unasked(own_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("it measures")

    monkeypatch.setattr(tuning, "tune", refuse)
    for mode in ("cached", "model"):
        assert bl.load(nets.residual(), tune=mode).plan.priced_by == "the model"
    assert not own_store.exists()


def test_what_was_measured_is_used_afterwards(own_store: Path) -> None:
    told: list[str] = []
    tuned = bl.load(nets.residual(), tune="measure", tune_seconds=60, progress=told.append)
    assert own_store.exists()
    assert any("measured in" in line for line in told)
    cached = bl.load(nets.residual())
    assert _measured(cached.plan) > 0 or _measured(tuned.plan) == 0  # on a machine that is never quiet, none is
    assert cached.plan.policy_costs[0] == tuned.plan.policy_costs[0]
    assert not _measured(bl.load(nets.residual(), tune="model").plan)


def test_the_best_plans_are_run_whole(own_store: Path) -> None:
    plan = bl.load(nets.residual(), tune="measure", tune_seconds=0.2).plan
    assert own_store.parent.exists()
    names = [name for name, _ in plan.raced]
    assert len(names) >= 2
    assert dict(plan.raced)[names[0]] == 1.0
    assert plan.chosen in names
    assert "run whole, in turn" in plan.explain()


def test_modes_and_times_that_do_not_exist_are_refused() -> None:
    with pytest.raises(bl.PlanError, match="give 'cached' or 'model' or 'measure'"):
        bl.load(nets.chain(), tune="guess")  # type: ignore[arg-type]
    with pytest.raises(bl.PlanError, match="tune_seconds=0"):
        bl.load(nets.chain(), tune="measure", tune_seconds=0)


def test_a_store_that_cannot_be_read_is_told_of_once_and_worked_without(own_store: Path) -> None:
    own_store.mkdir()
    with pytest.warns(bl.CostStoreWarning, match="permissions"):
        first = bl.load(nets.chain()).plan
    assert bl.load(nets.chain()).plan == first
