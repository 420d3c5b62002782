"""Prices of a network that are doubted, and the few of them that a first load measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.plan.costs.atlas import EXACT_DOUBT
from blocklayout.plan.costs.known import OTHER_DTYPE_DOUBT, KnownCosts
from blocklayout.plan.costs.model import Price
from blocklayout.plan.pricing import measurements

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.plan.costs.model import Costs
    from blocklayout.plan.network import Network


_CREATING_NS = 1e5
"""Of creating a primitive and its tensors, for each of its runs."""


def mean_doubt(network: Network) -> float:
    """How far off prices may be, on average over the time of the cheapest candidates that have alternatives."""
    costs = network.costs
    cheapest = [min(offered, key=lambda each: each.cost_ns) for offered in network.candidates if len(offered) > 1]
    steps = [step.spec for candidate in cheapest for step in candidate.steps]
    doubted_ns = sum(costs.step_ns(spec) * costs.doubt(spec) for spec in steps)
    return doubted_ns / max(sum(map(costs.step_ns, steps)), 1.0)


_FILLED_PER_NS = 0.25
"""Bytes that are made ready in a nanosecond for a primitive to read and write."""


def most_doubted(network: Network, seconds: float) -> list[Spec]:
    """The Specs whose times are neither measured nor recorded, those first that tell most in the time they take.

    None whose tensors are too large to be made ready in so many seconds, and none that computes in another data type
    than the one asked for, where prices do not know which is faster.
    """
    prices = {spec: (_price(network.costs, spec), worth) for spec, worth in measurements(network).items()}
    told = {
        spec: worth * price.doubt / (_CREATING_NS + price.ns)
        for spec, (price, worth) in prices.items()
        if EXACT_DOUBT < price.doubt < OTHER_DTYPE_DOUBT and spec.nbytes_moved < 1e9 * seconds * _FILLED_PER_NS
    }
    return sorted(told, key=lambda spec: -told[spec])


def with_measured(network: Network, seconds: float) -> Network:
    """A network with as many of its most doubted prices measured as there is time for, and others scaled by these."""
    from blocklayout.plan.costs.tuning import measure_briefly  # 10 ms with all that measures

    times = measure_briefly(most_doubted(network, seconds), seconds)
    return network.priced(KnownCosts.over(network.costs, times))


def _price(costs: Costs, spec: Spec) -> Price:
    if spec.kind == "reorder" and not spec.impl:
        ends = spec.memory_desc("src"), spec.memory_desc("dst")
        return Price(costs.reorder_ns(*ends), costs.reorder_doubt(*ends))
    return Price(costs.step_ns(spec), costs.doubt(spec))
