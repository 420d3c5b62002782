"""A choice that departs from a simple one only for gains that prices are sure enough of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from blocklayout.plan.costs.model import CostsOver, Price
from blocklayout.plan.solving.solve import solve_layouts

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from blocklayout.ir import Candidate, ValueLayout
    from blocklayout.layout import MemoryDesc
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


class _ChargedReorders(CostsOver, frozen=True):
    """Costs whose reorders are charged for doubt, but for some."""

    free: AbstractSet[tuple[ValueLayout, ValueLayout]]

    def reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        price = super().reorder_price(src, dst)
        charge = 0.0 if (src, dst) in self.free else CHARGED_DOUBT * price.doubt
        return Price(price.ns * (1 + charge), price.doubt)
