"""Costs where some are measured: those as they are, and the model's brought to the same scale."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field

from blocklayout.dnnl import Attr
from blocklayout.ir import HostSpec

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.machine import Machine
    from blocklayout.plan.costs.model import Costs

_NO_ATTR = Attr()

_MEASURED_DOUBT = 0.07
"""Of a measured time: as much as two measurements of one primitive differ on a machine shared with others."""


class KnownCosts(Struct, frozen=True, dict=True):
    """A cost model that knows measured times; to be asked as :class:`~blocklayout.plan.costs.model.CostModel` is.

    What is not measured costs what the model says, times the median of measured to modelled times of that kind of
    primitive and implementation, else of that kind. Otherwise a candidate would win because nobody has measured it,
    where the model is too hopeful.

    Attributes:
        model: Estimates what is not measured.
        times: Measured nanoseconds: of steps by their resolved Spec, of reorders by the Spec as
            ``dnnl.reorder(src, dst, n_threads=...)`` gives it.

    Example:
        >>> from blocklayout import dnnl
        >>> from blocklayout.plan.costs.model import CostModel
        >>> from blocklayout.plan.costs.machine import Machine
        >>> model = CostModel(Machine("avx2", 1))
        >>> small, large = (dnnl.resolve(dnnl.softmax(dnnl.MemoryDesc((n, 9)), n_threads=1)).spec for n in (1, 500))
        >>> costs = KnownCosts(model, {small: 2 * model.step_ns(small)})
        >>> costs.step_ns(large) == 2 * model.step_ns(large), costs.is_measured(large)
        (True, False)
    """

    model: Costs
    times: Mapping[Spec, float]
    _reorders: dict[tuple[MemoryDesc, MemoryDesc], float] = field(default_factory=dict)
    _found: dict[tuple[MemoryDesc, MemoryDesc], float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for spec, ns in self.times.items():
            if self._is_mover(spec):
                self._reorders[spec.memory_desc("src"), spec.memory_desc("dst")] = ns

    @property
    def machine(self) -> Machine:
        """Machine description for the cost model."""
        return self.model.machine

    @property
    def source(self) -> str:
        """In words."""
        return f"{len(self.times)} times measured on this machine, and {self.model.source}"

    def is_measured(self, spec: Spec | HostSpec) -> bool:
        """Whether the cost of a step is a measured one."""
        return not isinstance(spec, HostSpec) and spec in self.times

    def is_reorder_measured(self, src: MemoryDesc, dst: MemoryDesc) -> bool:
        """Whether the cost of a reorder is a measured one."""
        return self._measured_ns(src, dst) is not None

    def step_ns(self, spec: Spec | HostSpec) -> float:
        """Nanoseconds of one execution of a resolved Spec."""
        if isinstance(spec, HostSpec):
            return self.model.step_ns(spec)
        if spec in self.times:
            return self.times[spec]
        return self.model.step_ns(spec) * self._ratio(spec.kind, spec.impl)

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Nanoseconds of bringing bytes from one layout to another."""
        known = self._measured_ns(src, dst)
        if known is not None:
            return known
        return self.model.reorder_ns(src, dst) * self._ratio("reorder", "")

    def doubt(self, spec: Spec | HostSpec) -> float:
        """How far off the price of a step may be."""
        return _MEASURED_DOUBT if self.is_measured(spec) else self.model.doubt(spec)

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """How far off the price of a reorder may be."""
        return _MEASURED_DOUBT if self.is_reorder_measured(src, dst) else self.model.reorder_doubt(src, dst)

    def _measured_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float | None:
        """The time of a reorder between these bytes, whatever their layouts are called."""
        key = (src, dst)
        if key not in self._found:
            alike = (
                ns
                for (other_src, other_dst), ns in self._reorders.items()
                if src.physically_equal(other_src) and dst.physically_equal(other_dst)
            )
            self._found[key] = self._reorders.get(key) or next(alike, None)
        return self._found[key]

    def _ratio(self, kind: str, impl: str) -> float:
        for key in ((kind, impl), (kind, None)):
            if key in self._ratios:
                return self._ratios[key]
        return 1.0

    @cached_property
    def _ratios(self) -> dict[tuple[str, str | None], float]:
        """Medians of measured to modelled times, by kind and implementation, and by kind alone."""
        found: dict[tuple[str, str | None], list[float]] = defaultdict(list)
        for spec, ns in self.times.items():
            ratio = ns / self._modelled_ns(spec)
            found[spec.kind, spec.impl].append(ratio)
            found[spec.kind, None].append(ratio)
        return {key: statistics.median(ratios) for key, ratios in found.items()}

    def _modelled_ns(self, spec: Spec) -> float:
        if spec.kind == "reorder" and not spec.impl:
            return self.model.reorder_ns(spec.memory_desc("src"), spec.memory_desc("dst"))
        return self.model.step_ns(spec)

    def _is_mover(self, spec: Spec) -> bool:
        """Whether it is how the planner asks for a reorder of its own."""
        is_bare = spec.kind == "reorder" and not spec.impl and spec.attr == _NO_ATTR
        return is_bare and spec.n_threads == self.machine.n_threads
