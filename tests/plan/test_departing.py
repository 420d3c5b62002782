"""A solve departs from a uniform policy only for gains that are clear enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.plan.network import Network
from blocklayout.plan.policies import BOLD_SOLVE, SOLVE, Policy, choose_by
from blocklayout.plan.portfolio import APART, NEAR, UNIFORM_POLICIES, Portfolio
from blocklayout.plan.solving.solve import ROUNDING, departing_choice, solve_layouts
from tests.plan import made_up

if TYPE_CHECKING:
    from blocklayout.plan.network import Choice


@pytest.fixture(scope="module")
def proposed() -> Network:
    return made_up.network()


seeds = st.integers(0, 10_000)
promises = st.floats(0, 2)


def usual(network: Network, name: str = "nhwc") -> Choice:
    return choose_by(Policy.parse(name, network.costs.machine), network)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_the_best_uniform_policy_and_the_solves_are_the_likeliest_in_this_order(proposed: Network, seed: int) -> None:
    portfolio = Portfolio.of(proposed.priced(made_up.prices(seed)))
    uniform = sorted((each for each in portfolio.policies if each.name in UNIFORM_POLICIES), key=lambda it: it.cost_ns)
    first, *others = portfolio.likeliest
    assert first.cost_ns == uniform[0].cost_ns
    assert len({each.specs for each in portfolio.likeliest}) == len(portfolio.likeliest)
    named = [each.name for each in others]
    solve, bold = portfolio.solves
    is_bold = first.cost_ns - bold.cost_ns > 2 * (first.cost_ns - solve.cost_ns)
    early, late = (BOLD_SOLVE, SOLVE) if is_bold else (SOLVE, BOLD_SOLVE)
    assert named == sorted(named, key=[early, *(each.name for each in uniform), late].index)
    near = [each for each in uniform[1:] if each.cost_ns < NEAR * first.cost_ns and each.own_share(first) > APART]
    assert {each.specs for each in near} <= {each.specs for each in portfolio.likeliest}
    assert all(each.cost_ns < NEAR * uniform[0].cost_ns for each in others)
    assert portfolio.solution.choice in [each.choice for each in portfolio.likeliest]


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_by_prices_auto_is_never_above_a_policy(proposed: Network, seed: int) -> None:
    portfolio = Portfolio.of(proposed.priced(made_up.prices(seed)))
    assert all(portfolio.cheapest.cost_ns <= policy.cost_ns * (1 + ROUNDING) for policy in portfolio.policies)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, promise=promises)
def test_with_the_charge_it_is_not_above_the_usual_choice_either(proposed: Network, seed: int, promise: float) -> None:
    network = proposed.priced(made_up.prices(seed))
    charged, choice = network.departing(usual(network), promise), departing_choice(network, usual(network), promise)
    assert charged.total_ns(usual(network)) == pytest.approx(network.total_ns(usual(network)))
    assert charged.total_ns(choice) <= charged.total_ns(usual(network))
    assert network.total_ns(choice) <= charged.total_ns(choice) * (1 + ROUNDING)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_where_nothing_has_to_be_promised_it_is_the_plain_solve(proposed: Network, seed: int) -> None:
    network = proposed.priced(made_up.prices(seed))
    choice = departing_choice(network, usual(network, "blocked"), 0.0)
    assert network.total_ns(choice) == pytest.approx(solve_layouts(network).cost_ns)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_where_everything_has_to_be_promised_it_is_the_usual_choice(proposed: Network, seed: int) -> None:
    network = proposed.priced(made_up.prices(seed))
    choice = departing_choice(network, usual(network), 1e6)
    assert network.total_ns(choice) == pytest.approx(network.total_ns(usual(network)))


def test_a_candidate_of_the_usual_choice_is_not_charged_and_others_are(proposed: Network) -> None:
    network = proposed.priced(made_up.prices(1))
    charged = network.departing(usual(network), 0.4)
    for before, after, taken in zip(network.work_ns, charged.work_ns, usual(network), strict=True):
        for index, (own, dear) in enumerate(zip(before, after, strict=True)):
            assert dear == pytest.approx(own * (1.0 if index == taken else 1.4))


def test_a_departure_computes_in_the_data_type_that_was_asked_for() -> None:
    """Prices of bf16 and f32 compare on the kind of CPU only that they were taken on."""
    network = made_up.network_in_bf16().priced(made_up.prices(1))
    choice = departing_choice(network, usual(network), 0.01)
    for offered, taken, before in zip(network.candidates, choice, usual(network), strict=True):
        assert offered[taken].dst.dtype == offered[before].dst.dtype
