"""Where the prices of a network come from: the model, times measured before, or measuring now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import product
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dnnl import Spec
from blocklayout.dtypes import has_reorder
from blocklayout.ir import Fused
from blocklayout.plan.candidates.pins import check_expectations
from blocklayout.plan.costs.store import CostStore
from blocklayout.plan.plan import Plan
from blocklayout.plan.plan_store import PlanStore, plan_key, plan_store_path
from blocklayout.plan.refused import is_refused
from blocklayout.plan.request import TuneMode
from blocklayout.plan.runs import check_losses

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.model import CostModel
    from blocklayout.plan.network import Network
    from blocklayout.plan.request import Request

_Kept = TypeVar("_Kept", bound=Struct)

REORDER_WEIGHT = 0.5
"""Value of a reorder's time, relative to that of a step which takes as long."""


class Pricing(Struct, frozen=True):
    """Prices networks on one machine.

    All that prices is imported when it is asked: a plan that was made before takes none of it.

    Attributes:
        n_threads: Threads of a plan.
        mode: ``cached``, measured times where the store has them, else the model; ``model``, without measured ones;
            ``measure``, the most valuable are measured first.
        seconds: How long to measure at most.
        tell: Progress callback.
    """

    n_threads: int
    mode: TuneMode
    seconds: float
    tell: Callable[[str], None]
    store: CostStore = field(default_factory=CostStore)
    isa: str = field(default_factory=dnnl.isa)

    def modelled(self) -> CostModel:
        """The model alone."""
        from blocklayout.plan.costs.machine import Machine
        from blocklayout.plan.costs.model import CostModel

        return CostModel(Machine(self.isa, self.n_threads))

    def alone(self) -> AbstractContextManager[None]:
        """While no other process measures; none is waited for longer than it may measure."""
        until = monotonic() + self.seconds
        return self.store.alone(lambda: monotonic() < until)

    def priced(self, network: Network) -> Network:
        """A network that was proposed by the model, at those that were measured here where there are any."""
        if self.mode == "model" or (self.mode == "cached" and not self.store.has_times()):
            return network
        wanted = measurements(network)
        if self.mode == "measure":
            from blocklayout.plan.costs.tuning import tune

            tuned = tune(wanted, self.store, self.seconds, self.tell)
            self.tell(str(tuned))
        return network.priced(network.costs.knowing(self.store.times(wanted)))

    def recall(self, made_of: str, request: Request, check: Callable[[Plan], None] | None = None) -> Plan | None:
        """The plan that was made of this before, at the same prices; ``None`` where one has to be made.

        Args:
            made_of: Identifies the computation; see :func:`~blocklayout.plan.plan_store.plan_key`.
            request: As the plan was asked for.
            check: Raises where the plan cannot be of that.

        Raises:
            PlanError: It does not meet an expectation.
        """
        plan = self.recall_as(Plan, made_of, request, check)
        if plan is None or is_refused(plan):
            return None
        check_expectations(plan, request.demanded.expected)
        check_losses(plan, request.on_layout_loss)
        return plan

    def recall_as(
        self, kind: type[_Kept], made_of: str, request: Request, check: Callable[[_Kept], None] | None = None
    ) -> _Kept | None:
        """The plan, or another ``kind``, that was kept for the same question at the same prices, if any was."""
        key = self._key(made_of, request) if self.mode == "cached" else None
        return None if key is None else PlanStore(plan_store_path()).recall(key, kind, check)

    def keep(self, kept: Struct, made_of: str, request: Request) -> None:
        """Keep a plan, or another Struct, for loads that ask the same at prices as they are now."""
        key = self._key(made_of, request) if self.mode != "model" else None
        if key is not None:
            PlanStore(plan_store_path()).keep(key, kept)

    def _key(self, made_of: str, request: Request) -> str | None:
        state = self.store.state()
        return None if state is None else plan_key(made_of, request, self.n_threads, state)


def measurements(network: Network) -> dict[Spec, float]:
    """The Specs that a network may be computed with, and how much their times matter.

    A step matters as much as its tile takes at best, less where its own candidate is not likely to be that; a
    reorder as much as it takes.
    """
    worth: dict[Spec, float] = defaultdict(float)
    for offered, work_ns in zip(network.candidates, network.work_ns, strict=True):
        best_ns = min(work_ns)
        for candidate, ns in zip(offered, work_ns, strict=True) if len(offered) > 1 else ():
            for step in candidate.steps:
                if isinstance(step.spec, Spec):
                    worth[step.spec] += best_ns * best_ns / max(ns, 1.0)
    for src, dst in _reorders(network):
        spec = dnnl.reorder(src, dst, n_threads=network.costs.machine.n_threads)
        worth[spec] += REORDER_WEIGHT * network.costs.reorder_ns(src, dst)
    return dict(worth)


def _reorders(network: Network) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
    """Every change of layout that any choice could make."""
    for value in network.readers:
        offers, wishes = network.offers(value), network.wishes(value)
        layouts = network.layouts_of([*offers, *wishes])
        produced, wanted = ({layouts.index(desc) for desc in descs} for descs in (offers, wishes))
        for src, dst in product(sorted(produced), sorted(wanted)):
            before, after = layouts.members[src], layouts.members[dst]
            if isinstance(before, Fused) or isinstance(after, Fused):
                continue
            if layouts.ns(src, dst) > 0 and has_reorder(before.dtype):
                yield before, after
