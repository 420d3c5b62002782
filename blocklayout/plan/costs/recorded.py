"""Costs by an atlas, and by the model where nothing like it was recorded."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dnnl import is_reference, processor
from blocklayout.dtypes import has_reorder
from blocklayout.ir import HostSpec
from blocklayout.plan.costs.atlas import Price
from blocklayout.plan.costs.traits import spec_class, spec_numbers

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.atlas import Atlas
    from blocklayout.plan.costs.machine import Machine
    from blocklayout.plan.costs.model import CostModel

FOREIGN_DOUBT = 0.25
"""How much more prices are doubted on CPUs of another maker than the atlas's."""


class RecordedCosts(Struct, frozen=True, dict=True):
    """Costs by an atlas of recorded times; to be asked as :class:`~blocklayout.plan.costs.model.CostModel` is.

    Attributes:
        model: Prices what is like nothing that was recorded.
        atlas: The recorded times.
        cpu: Name of the CPU that prices are for.
    """

    model: CostModel
    atlas: Atlas
    cpu: str = field(default_factory=processor.cpu_name)
    _prices: dict[Spec, Price] = field(default_factory=dict)
    _reorders: dict[tuple[MemoryDesc, MemoryDesc], Price] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """Machine description for the cost model."""
        return self.model.machine

    @property
    def source(self) -> str:
        """In words."""
        return f"times recorded on {self.atlas.origin.partition(':')[0]}, and the model"

    def step_ns(self, spec: Spec | HostSpec) -> float:
        """Nanoseconds of one execution of a resolved Spec."""
        return self.model.step_ns(spec) if isinstance(spec, HostSpec) else self._price(spec).ns

    def doubt(self, spec: Spec | HostSpec) -> float:
        """How far off the price of a step may be."""
        return self.model.doubt(spec) if isinstance(spec, HostSpec) else self._price(spec).doubt

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Nanoseconds of bringing bytes from one layout to another."""
        return self._reorder(src, dst).ns

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """How far off the price of a reorder may be."""
        return self._reorder(src, dst).doubt

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the atlas is of CPUs of another maker."""
        return self.cpu.split(" ")[0] != self.atlas.origin.split(" ")[0]

    def _reorder(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        found = self._reorders.get((src, dst))
        if found is None:
            if has_reorder(src.dtype):
                found = self._found(dnnl.reorder(src, dst, n_threads=self.machine.n_threads))
            if found is None:
                found = Price(self.model.reorder_ns(src, dst), self.model.reorder_doubt(src, dst))
            self._reorders[src, dst] = found
        return found

    def _price(self, spec: Spec) -> Price:
        price = self._prices.get(spec)
        if price is None:
            price = self._found(spec) or Price(self.model.step_ns(spec), self.model.doubt(spec))
            self._prices[spec] = price
        return price

    def _found(self, spec: Spec) -> Price | None:
        """By the atlas, for so many threads."""
        if is_reference(spec.impl):
            return None
        price = self.atlas.price(spec_class(spec, self.machine.isa), spec_numbers(spec))
        if price is None:
            return None
        start_ns = min(price.ns, self.machine.step_ns)
        ns = start_ns + (price.ns - start_ns) * self.atlas.n_threads / self.machine.n_threads
        return Price(ns, price.doubt + FOREIGN_DOUBT * self.is_foreign)
