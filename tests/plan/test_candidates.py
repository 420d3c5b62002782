"""Every candidate of every group computes the same, whatever its neighbours are."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from onnx.reference import ReferenceEvaluator

import blocklayout as bl
from blocklayout.plan import make
from blocklayout.plan.network import Network, propose_all
from blocklayout.plan.solving.solve import Solution, solve_layouts
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
@pytest.mark.parametrize("name", ["odd", "mobile"])
def test_islands_of_f32_in_bf16_compute_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_all(name, "bf16", 6e-2, monkeypatch)


def _check_all(name: str, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    net = NETS[name]()
    networks: list[Network] = []
    rounds = iter(range(10_000))
    solve_once = cache(solve_layouts)

    def propose_once(*args: Any) -> Network:
        """What is proposed is the same each time."""
        networks.extend([] if networks else [propose_all(*args)])
        return networks[0]

    def in_turn(network: Network) -> Solution:
        """All groups' candidates, each group's in turn, and no two groups in step."""
        number = next(rounds)
        choice = tuple((number + 3 * group) % len(offered) for group, offered in enumerate(network.candidates))
        return replace(solve_once(network), choice=choice)

    monkeypatch.setattr(make, "propose_all", propose_once)
    monkeypatch.setattr(make, "solve_layouts", in_turn)
    monkeypatch.setattr(make, "cheapest", lambda contenders: contenders[-1])
    feed = nets.feed_of(bl.load(net, dtype=dtype))
    outputs: Any = ReferenceEvaluator(net.to_onnx()).run(None, feed)
    for number in range(max(map(len, networks[0].candidates))):
        session = bl.load(net, dtype=dtype)
        result = session.run(None, feed)[0]
        error = np.abs(result - outputs[0]).max() / np.abs(outputs[0]).max()
        assert error < tolerance, f"round {number}: {session.plan}"
