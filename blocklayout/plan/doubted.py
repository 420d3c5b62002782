"""Prices of a network that are doubted, and the few of them that a first load measures."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from blocklayout.dnnl import Spec, multiply_adds
from blocklayout.plan.costs.atlas import EXACT_DOUBT
from blocklayout.plan.costs.known import OTHER_DTYPE_DOUBT, KnownCosts
from blocklayout.plan.costs.model import price_of
from blocklayout.plan.costs.traits import source_dtype
from blocklayout.plan.pricing import measurements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blocklayout.plan.network import Network


_CREATING_NS = 1e5
"""Of creating a primitive and its tensors, for each of its runs."""

_FILLED_PER_NS = 0.25
"""Bytes that are made ready in a nanosecond for a primitive to read and write."""

_N_COMPARED = 4
"""Pairs of implementations, in the data type that was asked for and in f32, that are measured before all else."""

_COMPARED_NS = 2e5
"""Nanoseconds that both of a pair take together, at least: in shorter ones the start counts for too much."""

_Pair = tuple[Spec, Spec]


def mean_doubt(network: Network) -> float:
    """How far off prices may be, on average over the time of the cheapest candidates that have alternatives."""
    costs = network.costs
    cheapest = [min(offered, key=lambda each: each.cost_ns) for offered in network.candidates if len(offered) > 1]
    steps = [step.spec for candidate in cheapest for step in candidate.steps]
    doubted_ns = sum(costs.step_ns(spec) * costs.doubt(spec) for spec in steps)
    return doubted_ns / max(sum(map(costs.step_ns, steps)), 1.0)


def most_doubted(network: Network, seconds: float) -> list[Spec]:
    """The Specs whose times are neither measured nor recorded, those first that tell most in the time they take.

    At the head are pairs that tell which data type is faster. Else there is none that computes in another data type
    than the one asked for, where prices do not know that; and none whose tensors are too large to be made ready in so
    many seconds.
    """
    prices = {spec: (price_of(network.costs, spec), worth) for spec, worth in measurements(network).items()}
    told = {
        spec: worth * price.doubt / (_CREATING_NS + price.ns)
        for spec, (price, worth) in prices.items()
        if EXACT_DOUBT < price.doubt < OTHER_DTYPE_DOUBT and _can_be_ready(spec, seconds)
    }
    compared = chain.from_iterable(_compared(network, seconds))
    return [*dict.fromkeys([*compared, *sorted(told, key=lambda spec: -told[spec])])]


def _can_be_ready(spec: Spec, seconds: float) -> bool:
    return spec.nbytes_moved < 1e9 * seconds * _FILLED_PER_NS


def _compared(network: Network, seconds: float) -> Iterator[_Pair]:
    """Pairs to measure, to know whether the data type that was asked for or f32 is the faster.

    A pair is the cheapest step of a group in each of the two types. Of the pairs by the same two implementations one is
    given, the shortest that is long enough; first of those that take most time, and none where a time of both is known.
    """
    costs = network.costs
    found: dict[tuple[str, str, str], list[_Pair]] = defaultdict(list)
    for offered in network.candidates if network.dtype != "f32" else ():
        best: dict[str, Spec] = {}
        for candidate in sorted(offered, key=lambda each: each.cost_ns):
            for spec in (step.spec for step in candidate.steps):
                if isinstance(spec, Spec) and multiply_adds(spec):
                    best.setdefault(source_dtype(spec), spec)
        if best.keys() >= {network.dtype, "f32"}:
            pair = best[network.dtype], best["f32"]
            found[pair[0].kind, pair[0].impl, pair[1].impl].append(pair)

    def pair_ns(pair: _Pair) -> float:
        return sum(map(costs.step_ns, pair))

    def is_known(pair: _Pair) -> bool:
        return max(map(costs.doubt, pair)) <= EXACT_DOUBT

    for pairs in sorted(found.values(), key=lambda pairs: -sum(map(pair_ns, pairs)))[:_N_COMPARED]:
        ready = [pair for pair in pairs if all(_can_be_ready(spec, seconds) for spec in pair)]
        if ready and not any(map(is_known, pairs)):
            yield min(ready, key=lambda pair: (pair_ns(pair) < _COMPARED_NS, abs(pair_ns(pair) - _COMPARED_NS)))


def with_measured(network: Network, seconds: float) -> Network:
    """A network with as many of its most doubted prices measured as there is time for, and others scaled by these."""
    from blocklayout.plan.costs.tuning import measure_briefly  # 10 ms with all that measures

    times = measure_briefly(most_doubted(network, seconds), seconds)
    return network.priced(KnownCosts.over(network.costs, times))
