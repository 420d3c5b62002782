"""A choice that departs from a simple one only for gains that prices are sure enough of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.plan.solving.solve import solve_layouts

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from blocklayout.dnnl import Spec
    from blocklayout.ir import Candidate, HostSpec, ValueLayout
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.machine import Machine
    from blocklayout.plan.costs.model import Costs
    from blocklayout.plan.network import Choice, Network

CHARGED_DOUBT = 0.5
"""The share of what a price may be wrong by that is charged to what departs from the simple choice."""


def wary_choice(network: Network, simple: Choice) -> Choice:
    """The cheapest choice where whatever a simple one does not do costs more, by what its price may be wrong by.

    So a candidate, or a reorder, that the simple choice lacks has to win by more than that. It never costs more than
    the simple choice, by these prices and so by those without the charge too. Prices without doubt give the plain
    solve.
    """
    charged = charge_departures(network, simple)
    choice = solve_layouts(charged).choice
    return choice if charged.total_ns(choice) <= charged.total_ns(simple) else simple


def charge_departures(network: Network, simple: Choice) -> Network:
    """The same network with all candidates and reorders charged for doubt but those of a choice."""
    own = frozenset(
        (network.desc_of(value, simple), copy) for value in network.readers for copy in network.copies(value, simple)
    )
    charged: dict[int, tuple[Candidate, ...]] = {}
    candidates = []
    for offered, taken in zip(network.candidates, simple, strict=True):
        if id(offered) not in charged:
            charged[id(offered)] = tuple(_charged(network.costs, candidate) for candidate in offered)
        dear = charged[id(offered)]
        candidates.append((*dear[:taken], offered[taken], *dear[taken + 1 :]))
    return replace(network, candidates=tuple(candidates), costs=_ChargedReorders(network.costs, own))


def _charged(costs: Costs, candidate: Candidate) -> Candidate:
    doubt_ns = sum(costs.step_ns(step.spec) * costs.doubt(step.spec) for step in candidate.steps)
    return replace(candidate, cost_ns=candidate.cost_ns + CHARGED_DOUBT * doubt_ns)


class _ChargedReorders(Struct, frozen=True):
    """Costs whose reorders are charged for doubt, but for some."""

    costs: Costs
    free: AbstractSet[tuple[ValueLayout, ValueLayout]]

    @property
    def machine(self) -> Machine:
        return self.costs.machine

    @property
    def source(self) -> str:
        return self.costs.source

    def step_ns(self, spec: Spec | HostSpec) -> float:
        return self.costs.step_ns(spec)

    def doubt(self, spec: Spec | HostSpec) -> float:
        return self.costs.doubt(spec)

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        ns = self.costs.reorder_ns(src, dst)
        is_free = (src, dst) in self.free
        return ns if is_free else ns * (1 + CHARGED_DOUBT * self.costs.reorder_doubt(src, dst))

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return self.costs.reorder_doubt(src, dst)
