"""Plans race the likeliest first, and each run tells which is the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.dnnl import Spec
from blocklayout.plan.network import Network
from blocklayout.plan.portfolio import CLEARLY, UNIFORM_POLICIES, Contender, Portfolio
from blocklayout.plan.race import Race, racers
from tests.plan import made_up
from tests.plan.made_up import Prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.ir import HostSpec


@pytest.fixture(scope="module")
def proposed() -> Network:
    return made_up.network()


seeds = st.integers(0, 10_000)
doubts = st.floats(0, 2)


def begun(network: Network) -> Race[Contender]:
    return Race(Portfolio.of(network), lambda _, contender: contender, lambda *_: {})


def step_ns(contender: Contender, true: Network) -> list[float]:
    """What a run's steps take by true prices."""
    return [step.cost_ns for step in contender.at(true).assembly.steps]


@settings(max_examples=10, deadline=None)
@given(seed=seeds, doubt=doubts)
def test_the_cheapest_the_bold_solve_and_the_uniform_ones_are_raced_the_likeliest_first(
    proposed: Network, seed: int, doubt: float
) -> None:
    portfolio = Portfolio.of(proposed.priced(Prices(seed, doubt)))
    found = racers(portfolio)
    assert found[0] == portfolio.cheapest
    specs = [contender.specs for contender in found]
    assert len({*specs}) == len(specs)
    assert all(each.specs in specs for each in portfolio.contenders if each.name in UNIFORM_POLICIES)
    assert portfolio.solution.choice in [each.choice for each in found]
    order = [(not each.may_beat(found[0]), each.cost_ns) for each in found[1:]]
    assert order == sorted(order)


def test_where_prices_are_sure_they_are_the_order(proposed: Network) -> None:
    portfolio = Portfolio.of(proposed.priced(Prices(1, 0.0)))
    found = racers(portfolio)
    assert len(found) > 1
    assert [each.cost_ns for each in found] == sorted(each.cost_ns for each in found)
    assert not any(each.may_beat(found[0]) for each in found if each.cost_ns > 1.01 * found[0].cost_ns)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, true_seed=seeds, doubt=doubts)
def test_no_plan_runs_twice_and_the_fastest_of_all_is_taken_at_what_is_known(
    proposed: Network, seed: int, true_seed: int, doubt: float
) -> None:
    true = proposed.priced(Prices(true_seed, 0.0))
    race = begun(proposed.priced(Prices(seed, doubt)))
    while True:
        race.learn(step_ns(race.plans[-1], true), 60.0)
        if race.next() is None:
            break
    assert len({each.specs for each in race.plans}) == len(race.plans)
    took_ns = [true.total_ns(each.choice) for each in race.plans]
    portfolio, winner, raced = race.result([[ns] for ns in took_ns])
    assert true.total_ns(winner.choice) <= 1.02 * min(took_ns)
    known = {step.spec: step.cost_ns for step in winner.at(true).assembly.steps if not step.is_reorder}
    assert {step.spec: step.cost_ns for step in winner.assembly.steps if not step.is_reorder} == pytest.approx(known)
    assert winner.network is portfolio.network
    assert [ratio for _, ratio in raced or (("", 1.0),)] == pytest.approx([ns / took_ns[0] for ns in took_ns])
    assert len({label for label, _ in raced}) == len(raced)


def test_a_plan_that_an_error_has_made_is_followed_by_one_without_it(proposed: Network) -> None:
    """A step takes a thousand times as long as its price says."""
    race = begun(proposed.priced(Prices(1, 0.1)))
    [first] = race.plans
    dear = next(step.spec for step in first.assembly.steps if isinstance(step.spec, Spec) and step.spec.has("weights"))
    race.learn([1000.0 * (1000 if step.spec == dear else 1) for step in first.assembly.steps], 60.0)
    second = race.next()
    assert second is not None
    assert dear not in second.specs


def test_where_a_run_leads_nowhere_else_doubted_prices_are_measured(proposed: Network) -> None:
    """Steps take what their prices say; then steps that are in no plan take nothing."""
    network = proposed.priced(Prices(1, 0.5))
    asked: list[tuple[Sequence[Spec], float]] = []

    def measure(specs: Sequence[Spec], seconds: float) -> dict[Spec, float]:
        asked.append((specs, seconds))
        return dict.fromkeys(specs, 1.0)

    race = Race(Portfolio.of(network), lambda _, contender: contender, measure)
    race.learn(step_ns(race.plans[-1], network), 60.0)
    while not asked:
        assert race.next() is not None
        race.learn(step_ns(race.plans[-1], network), 60.0)
    [(specs, seconds)] = asked
    assert 0 < seconds <= 30
    assert not {*specs} & {spec for each in race.plans for spec in each.specs}
    found = race.next()
    assert found is not None
    assert {*found.specs} & {*specs}


def test_what_there_is_no_time_to_learn_scales_prices(proposed: Network) -> None:
    race = begun(proposed.priced(Prices(1, 0.5)))
    [first] = race.plans
    race.learn([3 * ns for ns in step_ns(first, first.network)], seconds=0.0)
    asked: list[float] = []

    def never(ns: float, specs: Sequence[Spec | HostSpec]) -> bool:
        asked.append(ns)
        assert specs in [each.specs for each in racers(Portfolio.of(first.network))]
        return False

    assert race.next(never) is None
    waiting = [each.cost_ns for each in racers(Portfolio.of(first.network))[1:]]
    assert asked == pytest.approx([3 * ns for ns in waiting])


def test_where_there_was_time_for_one_run_what_its_steps_took_decides(proposed: Network) -> None:
    """It takes what its prices say; or one step a thousand times as long."""
    for times_longer in (1, 1000):
        network = proposed.priced(Prices(1, 0.1))
        race = begun(network)
        [first] = race.plans
        dear = next(
            step.spec for step in first.assembly.steps if isinstance(step.spec, Spec) and step.spec.has("weights")
        )
        race.learn([step.cost_ns * (times_longer if step.spec == dear else 1) for step in first.assembly.steps], 60.0)
        portfolio, winner, raced = race.result(None)
        assert raced == ()
        assert winner.network is portfolio.network
        assert winner.cost_ns <= portfolio.cheapest.cost_ns / CLEARLY
        assert (dear in winner.specs) == (winner.specs == first.specs) == (times_longer == 1)


def test_a_plan_that_is_faster_by_chance_is_not_taken(proposed: Network) -> None:
    race = begun(proposed.priced(Prices(1, 0.5)))
    second = race.next()
    assert second is not None
    assert race.result([[10.0, 10.0], [9.95, 9.9]])[1].choice == race.plans[0].choice
    assert race.result([[10.0, 10.0], [9.0, 9.0]])[1].choice == second.choice


def test_a_race_that_there_was_no_time_for_leaves_the_cheapest(proposed: Network) -> None:
    portfolio = Portfolio.of(proposed.priced(Prices(1, 0.5)))
    _, winner, raced = begun(portfolio.network).result(None)
    assert (winner.choice, raced) == (portfolio.cheapest.choice, ())


def test_a_plan_that_was_disturbed_is_none_of_those_raced(proposed: Network) -> None:
    race = begun(proposed.priced(Prices(1, 0.5)))
    race.next()
    third = race.next()
    assert third is not None
    _, winner, raced = race.result([[10.0], [], [8.0]])
    assert winner.choice == third.choice
    assert [ratio for _, ratio in raced] == [1.0, 0.8]
