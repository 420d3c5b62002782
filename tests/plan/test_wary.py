"""Plans depart from a simple policy only for gains that prices are sure enough of."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blocklayout.dnnl import Spec
from blocklayout.ir import HostSpec
from blocklayout.layout import MemoryDesc
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan.candidates.fuse import fuse
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import Network, propose_all
from blocklayout.plan.policies import Policy, choose_by
from blocklayout.plan.portfolio import CLEARLY, UNIFORM_POLICIES, cheapest, contenders_of, racers
from blocklayout.plan.solving.solve import CHARGED_DOUBT, ROUNDING, charge_departures, solve_layouts, wary_choice
from tests import nets

MODEL = CostModel(Machine("avx2", 2))


@dataclass(frozen=True)
class MadeUp:
    """Prices that follow from a seed, doubted all alike."""

    seed: int
    every_doubt: float
    machine: Machine = MODEL.machine
    source: str = "nowhere"

    def step_ns(self, spec: Spec | HostSpec) -> float:
        return self._ns(str(spec))

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return self._ns(f"{src} {dst}") / 4

    def doubt(self, spec: Spec | HostSpec) -> float:
        del spec
        return self.every_doubt

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        del src, dst
        return self.every_doubt

    def _ns(self, text: str) -> float:
        return 1000.0 + sum(map(ord, text)) * (self.seed + 7919) % 10_007


@pytest.fixture(scope="module")
def proposed() -> Network:
    program = lower(legalize(simplify(nets.residual().to_graph())))
    return propose_all(program, fuse(program, "f32", 2), Proposer(MODEL, "f32"), {})


seeds = st.integers(0, 10_000)
doubts = st.floats(0, 2)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, doubt=doubts)
def test_it_is_never_above_a_uniform_policy(proposed: Network, seed: int, doubt: float) -> None:
    network = proposed.priced(MadeUp(seed, doubt))
    *policies, solve = contenders_of(network, None)
    for policy in policies:
        if policy.name in UNIFORM_POLICIES:
            assert solve.cost_ns <= policy.cost_ns * (1 + ROUNDING)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, doubt=doubts)
def test_with_the_charge_for_doubt_it_is_not_above_the_simple_choice_either(
    proposed: Network, seed: int, doubt: float
) -> None:
    network = proposed.priced(MadeUp(seed, doubt))
    simple = choose_by(Policy.parse("nhwc", network.costs.machine), network)
    charged, choice = charge_departures(network, simple), wary_choice(network, simple)
    assert charged.total_ns(simple) == pytest.approx(network.total_ns(simple))
    assert charged.total_ns(choice) <= charged.total_ns(simple)
    assert network.total_ns(choice) <= charged.total_ns(choice) * (1 + ROUNDING)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_without_doubt_it_is_the_plain_solve(proposed: Network, seed: int) -> None:
    network = proposed.priced(MadeUp(seed, 0.0))
    simple = choose_by(Policy.parse("blocked", network.costs.machine), network)
    assert network.total_ns(wary_choice(network, simple)) == pytest.approx(solve_layouts(network).cost_ns)


@settings(max_examples=10, deadline=None)
@given(seed=seeds)
def test_where_nothing_is_known_it_is_the_simple_choice(proposed: Network, seed: int) -> None:
    network = proposed.priced(MadeUp(seed, 1e6))
    simple = choose_by(Policy.parse("nhwc", network.costs.machine), network)
    assert network.total_ns(wary_choice(network, simple)) == pytest.approx(network.total_ns(simple))


def test_a_candidate_of_the_simple_choice_is_not_charged_and_others_are(proposed: Network) -> None:
    network = proposed.priced(MadeUp(1, 0.4))
    simple = choose_by(Policy.parse("nhwc", network.costs.machine), network)
    charged = charge_departures(network, simple)
    for before, after, taken in zip(network.candidates, charged.candidates, simple, strict=True):
        for index, (own, dear) in enumerate(zip(before, after, strict=True)):
            share = 1.0 if index == taken else 1 + 0.4 * CHARGED_DOUBT
            assert dear.cost_ns == pytest.approx(own.cost_ns * share)


@settings(max_examples=10, deadline=None)
@given(seed=seeds, doubt=doubts)
def test_the_cheapest_the_bold_solve_and_the_uniform_ones_are_raced_the_likeliest_first(
    proposed: Network, seed: int, doubt: float
) -> None:
    network = proposed.priced(MadeUp(seed, doubt))
    contenders, bold = contenders_of(network, None), solve_layouts(network).choice
    found = racers(contenders, bold)
    assert found[0] == cheapest(contenders)
    steps = [contender.assembly.steps for contender in found]
    assert all(steps.count(each) == 1 for each in steps)
    assert all(each.assembly.steps in steps for each in contenders if each.name in UNIFORM_POLICIES)
    assert bold in [each.choice for each in found]
    order = [(each.least_ns(found[0]) >= CLEARLY * found[0].cost_ns, each.cost_ns) for each in found[1:]]
    assert order == sorted(order)


def test_where_prices_are_sure_they_are_the_order(proposed: Network) -> None:
    sure = proposed.priced(MadeUp(1, 0.0))
    found = racers(contenders_of(sure, None), solve_layouts(sure).choice)
    assert len(found) > 1
    assert [each.cost_ns for each in found] == sorted(each.cost_ns for each in found)
    plain = next(each for each in contenders_of(sure, None) if each.name == "plain")
    assert plain.least_ns(plain) == plain.least_ns(found[0]) == plain.cost_ns  # prices without doubt
