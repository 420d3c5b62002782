"""The Specs of a network that are worth measuring."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dnnl import Spec
from blocklayout.dtypes import has_reorder
from blocklayout.ir import Fused
from blocklayout.plan.costs.tuning import Measurement
from blocklayout.plan.solving.copies import Layouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.network import Network

REORDER_WEIGHT = 0.5
"""Value of a reorder's time, relative to that of a step which takes as long."""


def measurements(network: Network) -> list[Measurement]:
    """The Specs that a network may be computed with, each with the value of knowing its time.

    A step matters as much as its group takes at best, less where its own candidate is not likely to be that; a
    reorder as much as it takes.
    """
    worth: dict[Spec, float] = defaultdict(float)
    for offered in network.candidates:
        best_ns = min(candidate.cost_ns for candidate in offered)
        for candidate in offered if len(offered) > 1 else ():
            for step in candidate.steps:
                if isinstance(step.spec, Spec):
                    worth[step.spec] += best_ns * best_ns / max(candidate.cost_ns, 1.0)
    for src, dst in _reorders(network):
        spec = dnnl.reorder(src, dst, n_threads=network.costs.machine.n_threads)
        worth[spec] += REORDER_WEIGHT * network.costs.reorder_ns(src, dst)
    return [Measurement(spec, value_ns) for spec, value_ns in worth.items()]


def _reorders(network: Network) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
    """Every change of layout that any choice could make."""
    for value in network.readers:
        layouts = Layouts.of([*network.offers(value), *network.wishes(value)], network.reorder_ns)
        produced = {layouts.index(desc) for desc in network.offers(value)}
        wanted = {layouts.index(desc) for desc in network.wishes(value)}
        for src, dst in product(sorted(produced), sorted(wanted)):
            before, after = layouts.members[src], layouts.members[dst]
            if isinstance(before, Fused) or isinstance(after, Fused):
                continue
            if layouts.prices[src, dst] > 0 and has_reorder(before.dtype):
                yield before, after
