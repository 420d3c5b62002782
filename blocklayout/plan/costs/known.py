"""Costs by times that are known: measured on this machine, or recorded on another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from math import exp, log
from typing import TYPE_CHECKING

from msgspec import field

from blocklayout import dnnl
from blocklayout.dnnl import Attr, is_reference
from blocklayout.dtypes import has_reorder
from blocklayout.plan.costs.model import CostsOver, Price, is_asked, price_of
from blocklayout.plan.costs.traits import source_dtype, spec_class, spec_numbers

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.costs.atlas import Atlas
    from blocklayout.plan.costs.model import Costs

_NO_ATTR = Attr()

_MEASURED_DOUBT = 0.07
"""Of a measured time: as much as two measurements of one primitive differ on a machine shared with others."""

_N_UNTOLD = 2.0
"""How many times a factor between measured and modelled ones has to be seen to be believed by half."""

FOREIGN_DOUBT = 0.25
"""How much more prices are doubted on CPUs of another maker or family than the atlas's."""

OTHER_DTYPE_DOUBT = 10.0
"""How much more they are of what computes in another data type than was asked for.

The speed of bf16 over that of f32 differs by factors between kinds of CPUs, so the type that was asked for is kept
until both have been measured here.
"""


class KnownCosts(CostsOver, frozen=True, dict=True):
    """A cost model that knows measured times; to be asked as :class:`~blocklayout.plan.costs.model.CostModel` is.

    What is not measured costs what the model says, times the median of measured to modelled times: that of its kind of
    primitive, data type and implementation. That of a kind is drawn towards that of all, and that of an implementation
    towards that of its kind and type, the more the fewer there are; what types differ by is taken as it is, since it
    may be large and few primitives are measured in each. Without any factor a candidate would win because nobody has
    measured it, where the model is too hopeful.

    Attributes:
        times: Measured nanoseconds: of steps by their resolved Spec, of reorders by the Spec as
            ``dnnl.reorder(src, dst, n_threads=...)`` gives it.

    Example:
        >>> from blocklayout import dnnl
        >>> from blocklayout.plan.costs.model import CostModel
        >>> from blocklayout.plan.costs.machine import Machine
        >>> model = CostModel(Machine("avx2", 1))
        >>> small, large = (dnnl.resolve(dnnl.softmax(dnnl.MemoryDesc((n, 9)), n_threads=1)).spec for n in (1, 500))
        >>> costs = KnownCosts(model, {small: 2 * model.step_ns(small)})
        >>> 1 < costs.step_ns(large) / model.step_ns(large) < 2, costs.doubt(large) == model.doubt(large)
        (True, True)
    """

    times: Mapping[Spec, float]
    _measured: dict[MemoryDesc, dict[MemoryDesc, float]] = field(default_factory=dict)
    _prices: dict[tuple[MemoryDesc, MemoryDesc], Price] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for spec, ns in self.times.items():
            if is_asked(spec) and spec.attr == _NO_ATTR and spec.n_threads == self.machine.n_threads:
                self._measured.setdefault(spec.memory_desc("src"), {})[spec.memory_desc("dst")] = ns

    @classmethod
    def over(cls, costs: Costs, times: Mapping[Spec, float]) -> Costs:
        """Costs that know these times as well; the same costs where there are none."""
        if not times:
            return costs
        if isinstance(costs, KnownCosts):
            return cls(costs.model, {**costs.times, **times})
        return cls(costs, times)

    @property
    def source(self) -> str:
        return f"{len(self.times)} times measured on this machine, and {self.model.source}"

    def price(self, spec: Spec) -> Price:
        if spec in self.times:
            return Price(self.times[spec], _MEASURED_DOUBT)
        ns, doubt = super().price(spec)
        family = _family(spec)
        if doubt > OTHER_DTYPE_DOUBT and family[:2] in self._ratios:
            doubt -= OTHER_DTYPE_DOUBT - FOREIGN_DOUBT
        return Price(ns * self._ratio(*family), doubt)

    def reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        price = self._prices.get((src, dst))
        if price is None:
            price = self._prices[src, dst] = self._reorder_price(src, dst)
        return price

    def _reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        known = self._measured_ns(src, dst)
        if known is not None:
            return Price(known, _MEASURED_DOUBT)
        ns, doubt = super().reorder_price(src, dst)
        return Price(ns * self._ratio("reorder", src.dtype, ""), doubt)

    def _measured_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float | None:
        """The time of a reorder between these bytes, whatever their layouts are called."""
        own = self._measured.get(src, {}).get(dst)
        if own is not None:
            return own
        alike = (
            ns
            for other_src, times in self._measured.items()
            if src.physically_equal(other_src)
            for other_dst, ns in times.items()
            if dst.physically_equal(other_dst)
        )
        return next(alike, None)

    def _ratio(self, *family: str) -> float:
        wider = (family[:n] for n in range(len(family), -1, -1))
        return next((self._ratios[each] for each in wider if each in self._ratios), 1.0)

    @cached_property
    def _ratios(self) -> dict[tuple[str, ...], float]:
        """Of measured to modelled times: of all, of each kind, of each data type of it, and of each implementation."""
        import statistics  # only where times were measured

        logs: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for spec, ns in self.times.items():
            ratio, narrowest = log(ns / price_of(self.model, spec).ns), _family(spec)
            for n in range(len(narrowest) + 1):
                logs[narrowest[:n]].append(ratio)
        found: dict[tuple[str, ...], float] = {}
        for family, ratios in sorted(logs.items(), key=lambda item: len(item[0])):  # the widest first
            wider = found[family[:-1]] if family else 0.0
            if len(family) == 2:  # of a data type
                found[family] = wider + statistics.median(ratios) - statistics.median(logs[family[:1]])
            else:
                found[family] = wider + (statistics.median(ratios) - wider) * len(ratios) / (len(ratios) + _N_UNTOLD)
        return {family: exp(ratio) for family, ratio in found.items()}


def _family(spec: Spec) -> tuple[str, str, str]:
    """Its kind, data type and implementation: Specs that share the first of these have prices scaled together."""
    return spec.kind, source_dtype(spec), spec.impl


class RecordedCosts(CostsOver, frozen=True, dict=True):
    """Costs by an atlas of recorded times; to be asked as :class:`~blocklayout.plan.costs.model.CostModel` is.

    An atlas that has nothing in the data type asked for prices nothing: what follows from times in another type is too
    dear next to these, by factors.

    Attributes:
        atlas: The recorded times.
        cpu_kind: Of the CPU that prices are for, as :func:`~blocklayout.dnnl.processor.cpu_kind` gives it.
        dtype: Data type that was asked for.
    """

    atlas: Atlas
    cpu_kind: str
    dtype: str
    _prices: dict[Spec, Price] = field(default_factory=dict)
    _reorders: dict[tuple[MemoryDesc, MemoryDesc], Price] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return f"times recorded on {self.atlas.cpu}, and the model" if self.is_of_dtype else self.model.source

    @cached_property
    def is_foreign(self) -> bool:
        """Whether the atlas is of a CPU of another maker or family."""
        return not self.atlas.is_of(self.cpu_kind)

    @cached_property
    def is_of_dtype(self) -> bool:
        """Whether anything was recorded in the data type that was asked for."""
        return self.atlas.has_dtype(self.dtype)

    def price(self, spec: Spec) -> Price:
        price = self._prices.get(spec)
        if price is None:
            price = self._prices[spec] = self._found(spec) or super().price(spec)
        return price

    def reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        price = self._reorders.get((src, dst))
        if price is None:
            mover = dnnl.reorder(src, dst, n_threads=self.machine.n_threads) if has_reorder(src.dtype) else None
            price = (mover and self._found(mover)) or super().reorder_price(src, dst)
            self._reorders[src, dst] = price
        return price

    def _found(self, spec: Spec) -> Price | None:
        """By the atlas, for so many threads."""
        if is_reference(spec.impl) or not self.is_of_dtype:
            return None
        price = self.atlas.price(spec_class(spec, self.machine.isa), spec_numbers(spec))
        if price is None:
            return None
        start_ns = min(price.ns, self.machine.step_ns)
        ns = start_ns + (price.ns - start_ns) * self.atlas.n_threads / self.machine.n_threads
        return Price(ns, price.doubt + (self._foreign_doubt(spec) if self.is_foreign else 0.0))

    def _foreign_doubt(self, spec: Spec) -> float:
        is_as_asked = spec.kind == "reorder" or source_dtype(spec) == self.dtype
        return FOREIGN_DOUBT if is_as_asked else OTHER_DTYPE_DOUBT
