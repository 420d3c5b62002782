"""Every candidate of every group computes the same, whatever its neighbours are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import make, portfolio
from blocklayout.plan.candidates.tiles import fuse, problem_key
from blocklayout.plan.network import Choice, Network, propose_all
from blocklayout.plan.portfolio import Portfolio
from tests import nets

NETS: dict[str, Callable[[], bl.Builder]] = {
    "chain": nets.chain,
    "residual": nets.residual,
    "odd": lambda: nets.residual(channels=17, batch=3),
    "mobile": nets.mobile,
}


@pytest.mark.parametrize("name", NETS)
def test_every_candidate_computes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_all(name, "f32", 1e-5, monkeypatch)


@pytest.mark.needs_bf16
@pytest.mark.parametrize(
    "name", ["chain", "mobile", *(pytest.param(name, marks=pytest.mark.full_size) for name in ("odd", "residual"))]
)
def test_islands_of_f32_in_bf16_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_all(name, "bf16", 6e-2, monkeypatch)


def _check_all(name: str, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    net = NETS[name]()
    networks: list[Network] = []
    rounds = iter(range(10_000))
    tried: set[tuple[int, int]] = set()

    def propose_once(*args: Any) -> Network:
        """What is proposed is the same each time."""
        networks.extend([] if networks else [propose_all(*args)])
        return networks[0]

    def in_turn(network: Network, *_: object) -> Choice:
        """All groups' candidates, each group's in turn, and no two groups in step."""
        number = next(rounds)
        choice = tuple((number + 3 * group) % len(offered) for group, offered in enumerate(network.candidates))
        tried.update(enumerate(choice))
        return choice

    monkeypatch.setattr(make, "propose_all", propose_once)
    monkeypatch.setattr(portfolio, "ROUNDING", -1.0)  # no policy is taken for the best, from which nothing departs
    monkeypatch.setattr(portfolio, "departing_choice", in_turn)
    monkeypatch.setattr(Portfolio, "cheapest", property(lambda portfolio: portfolio.solves[0]))
    feed = nets.feed_of(bl.load(net, dtype=dtype, tune="model"))
    outputs: Any = ReferenceEvaluator(net.to_onnx()).run(None, feed)
    for number in range(max(map(len, networks[0].candidates))):
        session = bl.load(net, dtype=dtype, tune="model")
        result = session.run(None, feed)[0]
        error = np.abs(result - outputs[0]).max() / np.abs(outputs[0]).max()
        assert error < tolerance, f"round {number}: {session.plan}"
    assert len(tried) == sum(map(len, networks[0].candidates))


def test_kernels_that_round_otherwise_share_no_candidates() -> None:
    """One that stands for a normalisation, too, may be by products of fewer bits; its twin may not."""
    b = bl.Builder()
    weights, ones, x = np.ones((16, 16, 3, 3), np.float32), np.ones(16, np.float32), b.input("x", (1, 16, 8, 8))
    b.output("y", x.conv(weights, ones, pads=1))
    b.output("z", x.conv(weights, pads=1).batch_norm(ones, ones, ones, ones))
    first, second = fuse(lower(legalize(simplify(b.to_graph()))), "bf16", 1)
    assert first.main.operator == second.main.operator
    assert problem_key(first, "bf16") != problem_key(second, "bf16") == problem_key(replace(second), "bf16")
