"""What kernels could have been instead, and what pins to that cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import blocklayout as bl
from blocklayout.plan import Plan, portfolio
from blocklayout.show.plan_record import plan_record
from tests import nets


@pytest.fixture
def at_their_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices are taken as they are, whatever they may be wrong by."""
    monkeypatch.setattr(portfolio, "PROMISE", 0.0)


@pytest.mark.usefixtures("at_their_word")
@pytest.mark.parametrize("build", [nets.residual, nets.chain])
def test_a_pin_to_an_alternative_costs_what_was_said(build: Callable[[], bl.Builder]) -> None:
    free = bl.load(build(), tune="model").plan
    assert free.is_exact
    n_pinned = 0
    for choice in free.choices[:6]:
        for alternative in choice.alternatives:
            layout = choice.pin_to(alternative.way)
            if layout is None:
                continue
            pinned = bl.load(build(), tune="model", pin={choice.kernel: layout}).plan
            assert pinned.unpinned_ns == pytest.approx(free.cost_ns)
            assert pinned.cost_ns - free.cost_ns == pytest.approx(alternative.extra_ns, abs=1e-6 * free.cost_ns)
            n_pinned += 1
    assert n_pinned


def test_what_is_added_is_counted_from_the_cheapest_network() -> None:
    plan = bl.load(nets.residual(), tune="model", layout="plain").plan
    assert plan.is_exact
    assert plan.cost_ns > plan.bound_ns
    record = plan_record(plan)
    added = [each["added_ns"] for kernel in record["kernels"] for each in kernel["alternatives"]]
    assert min(added) >= -1e-6 * plan.cost_ns
    assert record["declined_ns"] == plan.cost_ns - plan.bound_ns


def test_each_layout_of_a_result_has_one_pin_and_the_chosen_one_none() -> None:
    plan = bl.load(nets.residual(), tune="model").plan
    for choice in plan.choices:
        costs = [each.extra_ns for each in choice.alternatives]
        assert costs == sorted(costs)
        pins = [layout for each in choice.alternatives if (layout := choice.pin_to(each.way)) is not None]
        assert len(pins) == len(set(pins))
        if isinstance(choice.chosen.dst, bl.MemoryDesc):
            assert choice.chosen.dst.named("src") not in pins
        assert set(pins) <= set(choice.layouts)


def test_alternatives_survive_json() -> None:
    plan = bl.load(nets.mobile(), tune="model").plan
    assert Plan.from_json(plan.to_json()) == plan


def test_values_in_one_buffer_have_writers_of_their_own() -> None:
    plan = bl.load(nets.residual(), tune="model", layout="plain").plan
    record = plan_record(plan)
    names = [kernel["name"] for kernel in record["kernels"]]
    values = {kernel["writes"]: kernel["name"] for kernel in record["kernels"]}
    assert any(choice.chosen.in_place for choice in plan.choices)
    for edge in record["edges"]:
        if edge["value"] in values:
            assert names[edge["source"]] == values[edge["value"]]


def test_layouts_of_matrices_have_a_class() -> None:
    plan = bl.load(nets.residual(), tune="model").plan
    classes = {desc["class"] for desc in plan_record(plan)["descs"] if len(desc.get("dims", ())) == 2}
    assert classes <= {"any", "other", "plain"}
