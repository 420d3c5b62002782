"""Plans depart from a simple policy only for gains that prices are sure enough of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.dnnl import Spec
from blocklayout.plan.costs.traits import source_dtype
from blocklayout.plan.network import Network
from blocklayout.plan.policies import Policy, choose_by
from blocklayout.plan.portfolio import UNIFORM_POLICIES, contenders_of
from blocklayout.plan.solving.solve import CHARGED_DOUBT, ROUNDING, charge_departures, solve_layouts, wary_choice
from tests.plan import made_up
from tests.plan.made_up import Prices

if TYPE_CHECKING:
    from blocklayout.ir import HostSpec


@pytest.fixture(scope="module")
def proposed() -> Network:
    return made_up.network()


seeds = st.integers(0, 10_000)
doubts = st.floats(0, 2)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, doubt=doubts)
def test_it_is_never_above_a_uniform_policy(proposed: Network, seed: int, doubt: float) -> None:
    network = proposed.priced(Prices(seed, doubt))
    *policies, solve = contenders_of(network, None)
    for policy in policies:
        if policy.name in UNIFORM_POLICIES:
            assert solve.cost_ns <= policy.cost_ns * (1 + ROUNDING)


@pytest.mark.parametrize(("in_f32", "doubt", "is_wide"), [(0.5, 0.2, True), (0.9, 2.0, False), (2.0, 0.2, False)])
def test_what_computes_in_f32_is_taken_where_prices_are_sure_that_it_is_faster(
    in_f32: float, doubt: float, *, is_wide: bool
) -> None:
    """Each step takes so much of what it takes in bf16."""

    class Typed(Prices):
        def step_ns(self, spec: Spec | HostSpec) -> float:
            is_in_f32 = isinstance(spec, Spec) and spec.has("weights") and source_dtype(spec) == "f32"
            return 1e6 * (in_f32 if is_in_f32 else 1.0)

    network = made_up.network_in_bf16().priced(Typed(1, doubt))
    *_, solve = contenders_of(network, None)
    chosen = [offered[taken] for offered, taken in zip(network.candidates, solve.choice, strict=True)]
    specs = [step.spec for candidate in chosen for step in candidate.steps if isinstance(step.spec, Spec)]
    assert {source_dtype(spec) for spec in specs if spec.has("weights")} == {"f32" if is_wide else "bf16"}


@settings(max_examples=10, deadline=None)
@given(seed=seeds, doubt=doubts)
def test_with_the_charge_for_doubt_it_is_not_above_the_simple_choice_either(
    proposed: Network, seed: int, doubt: float
) -> None:
    network = proposed.priced(Prices(seed, doubt))
    simple = choose_by(Policy.parse("nhwc", network.costs.machine), network)
    charged, choice = charge_departures(network, simple), wary_choice(network, simple)
    assert charged.total_ns(simple) == pytest.approx(network.total_ns(simple))
    assert charged.total_ns(choice) <= charged.total_ns(simple)
    assert network.total_ns(choice) <= charged.total_ns(choice) * (1 + ROUNDING)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_without_doubt_it_is_the_plain_solve(proposed: Network, seed: int) -> None:
    network = proposed.priced(Prices(seed, 0.0))
    simple = choose_by(Policy.parse("blocked", network.costs.machine), network)
    assert network.total_ns(wary_choice(network, simple)) == pytest.approx(solve_layouts(network).cost_ns)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_where_nothing_is_known_it_is_the_simple_choice(proposed: Network, seed: int) -> None:
    network = proposed.priced(Prices(seed, 1e6))
    simple = choose_by(Policy.parse("nhwc", network.costs.machine), network)
    assert network.total_ns(wary_choice(network, simple)) == pytest.approx(network.total_ns(simple))


def test_a_candidate_of_the_simple_choice_is_not_charged_and_others_are(proposed: Network) -> None:
    network = proposed.priced(Prices(1, 0.4))
    simple = choose_by(Policy.parse("nhwc", network.costs.machine), network)
    charged = charge_departures(network, simple)
    for before, after, taken in zip(network.candidates, charged.candidates, simple, strict=True):
        for index, (own, dear) in enumerate(zip(before, after, strict=True)):
            share = 1.0 if index == taken else 1 + 0.4 * CHARGED_DOUBT
            assert dear.cost_ns == pytest.approx(own.cost_ns * share)
