"""A plan for other extents takes the layouts of one that was chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import blocklayout as bl
from blocklayout import dnnl
from blocklayout.ir import layout_name
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import CostModel, Machine, Plan, Request, make_plan
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.policies import POLICIES
from tests import nets

COSTS = CostModel(Machine(dnnl.isa(), 2))


def plan_of(builder: bl.Builder, like: Plan | None = None, **request: Any) -> Plan:
    return make_plan(lower(legalize(simplify(builder.to_graph()))), Request(**request), COSTS, like=like)


def layouts_of(plan: Plan) -> dict[str, list[str]]:
    return {choice.kernel: list(map(layout_name, choice.chosen.layouts)) for choice in plan.choices}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the groups whose layouts were chosen among all."""
    names: list[str] = []
    propose = Proposer.propose

    def noted(self: Proposer, group: Any, *rest: Any) -> Any:
        names.append(group.name)
        return propose(self, group, *rest)

    monkeypatch.setattr(Proposer, "propose", noted)
    return names


@pytest.mark.parametrize("policy", POLICIES)
def test_layouts_are_those_that_were_chosen(policy: str, asked: list[str]) -> None:
    usual = plan_of(nets.residual(size=14), policy=policy)
    n_groups = len(asked)
    taken = plan_of(nets.residual(size=22), usual, policy=policy)
    assert layouts_of(taken) == layouts_of(usual)
    assert taken.chosen == usual.chosen
    assert len(asked) < 1.5 * n_groups  # views, and what is one primitive with its neighbour, are asked about again
    assert "chosen for image 2x3x14x14" in taken.priced_by
    assert not taken.is_optimal


@pytest.mark.parametrize("make", [nets.residual, nets.mobile], ids=lambda make: make.__name__)
def test_a_plan_that_takes_its_own_layouts_costs_the_same(make: Callable[[], bl.Builder]) -> None:
    usual = plan_of(make())
    assert plan_of(make(), usual).cost_ns <= usual.cost_ns * (1 + 1e-9)


def test_implementations_are_taken_where_extents_are_near() -> None:
    usual = plan_of(nets.residual(size=14))
    near, far = (plan_of(nets.residual(size=size), usual) for size in (16, 24))
    impls = {choice.kernel: choice.chosen.impls for choice in usual.choices}
    taken = {choice.kernel: choice.chosen.impls for choice in near.choices}
    assert taken == impls
    assert not any(choice.alternatives for choice in near.choices if choice.chosen.impls)
    assert any(choice.alternatives for choice in far.choices)


def test_what_the_plan_does_not_know_is_chosen() -> None:
    usual = plan_of(nets.chain(convs=2))
    assert layouts_of(plan_of(nets.chain(convs=3), usual)).keys() == layouts_of(plan_of(nets.chain(convs=3))).keys()


def test_wishes_hold_all_the_same() -> None:
    builder, larger = nets.chain(channels=32, size=12), nets.chain(channels=32, size=16)
    usual = plan_of(builder)
    without = plan_of(larger, usual, without=frozenset({"winograd"}))
    assert not any("winograd" in step.spec.impl for step in without.steps)


def test_a_session_takes_layouts_for_extents_that_are_near(asked: list[str]) -> None:
    session = bl.load(nets.free_model())
    expected = bl.load(nets.free_model(), layout="plain")

    def n_asked(*shape: int) -> int:
        asked.clear()
        x = nets.random_input(shape)
        y = session(x)
        n = len(asked)
        np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-4)
        return n

    assert n_asked(1, 3, 16, 16) > 0
    assert [n_asked(1, 3, 16, 24), n_asked(2, 3, 15, 9), n_asked(15, 3, 16, 16)] == [0, 0, 0]
    assert "chosen for x 1x3x16x16" in session.plan_for({"x": (1, 3, 16, 24)}).priced_by
    assert n_asked(20, 3, 16, 16) > 0  # too many for the first ones' layouts
    assert n_asked(40, 3, 16, 16) == 0
    assert "chosen for x 20x3x16x16" in session.plan_for({"x": (40, 3, 16, 16)}).priced_by
