"""Prices: nanoseconds of a primitive that were measured, or a model's estimate of its work and bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import exp, log
from typing import NamedTuple

from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.dnnl import Spec, multiply_adds, own
from blocklayout.dnnl.primitives import function_flops, kind_of
from blocklayout.dtypes import BYTE_DTYPES, has_reorder
from blocklayout.ir import HostSpec, RecipeStep
from blocklayout.layout import MemoryDesc
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.plan import PriceSource

_HOST_COSTS = {
    "plain": (50_000.0, 0.5),
    "numpy": (5_000.0, 1.0),
    "registered": (10_000.0, 1.0),
    "copy": (5_000.0, 2.0),
    "zero_padding": (5_000.0, 2.0),
}
"""Nanoseconds to begin, and bytes per nanosecond after that, of steps that no primitive computes."""

_CONVERTED_PER_NS, _TURNED_PER_NS = 8.0, 1.8
"""Bytes that a reorder makes numbers of in a nanosecond and thread, or the other way round, or bytes of another scale.

Where neighbours in memory stay neighbours, and elsewhere; bytes that stay as they are take half as long. On
AVX512-VNNI, to and from f32 and bf16 alike.
"""

_N_UNTOLD = 2.0
"""How many times a factor between measured and modelled times has to be seen to be believed by half."""


class Price(NamedTuple):
    """Nanoseconds of one execution, and where they come from."""

    ns: float
    source: PriceSource


class CostModel(Struct, frozen=True, dict=True):
    """Prices on one machine: measured times, else the model's estimates.

    The price of an unmeasured step is the model's, times the median of measured to such prices of its implementation,
    which is drawn towards that of its kind and data type, and that towards the median of all, the more the fewer there
    are. Without any factor a candidate would win because nobody has measured it.

    Attributes:
        machine: The machine that prices are for.
        times: Measured nanoseconds: of steps by their resolved Spec, of reorders by the Spec as
            ``dnnl.reorder(src, dst, n_threads=...)`` makes it.

    Example:
        >>> from blocklayout import dnnl
        >>> from blocklayout.plan.costs.machine import Machine
        >>> model = CostModel(Machine("avx2", 1))
        >>> small, large = (dnnl.resolve(dnnl.softmax(dnnl.MemoryDesc((n, 9)), n_threads=1)).spec for n in (1, 500))
        >>> known = model.knowing({small: 2 * model.step_ns(small)})
        >>> known.price(small).source, 1 < known.step_ns(large) / model.step_ns(large) < 2
        ('measured', True)
    """

    machine: Machine
    times: Mapping[Spec, float] = field(default_factory=dict)
    _prices: dict[Spec | HostSpec, Price] = field(default_factory=dict)
    _reorders: dict[tuple[MemoryDesc, MemoryDesc], Price] = field(default_factory=dict)

    def knowing(self, times: Mapping[Spec, float]) -> CostModel:
        """The same with these times as well; newer ones replace others."""
        return CostModel(self.machine, {**self.times, **times}) if times else self

    @property
    def source(self) -> str:
        """Where prices come from, in words."""
        return f"{len(self.times)} times measured on this machine, and the model" if self.times else "the model"

    def price(self, spec: Spec | HostSpec) -> Price:
        """Of one execution of a resolved Spec, or of a reorder as its constructor makes it."""
        if spec not in self._prices:
            self._prices[spec] = self._found(spec)
        return self._prices[spec]

    def step_ns(self, spec: Spec | HostSpec) -> float:
        """Nanoseconds of one execution."""
        return self.price(spec).ns

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Nanoseconds of bringing bytes from one layout to another."""
        return self.reorder_price(src, dst).ns

    def reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        """Of bringing bytes from one layout to another."""
        key = (src, dst)
        if key not in self._reorders:
            is_modelled = not self.times or not has_reorder(src.dtype)
            self._reorders[key] = (
                Price(self._moving_ns(src, dst), "modelled")
                if is_modelled
                else self.price(dnnl.reorder(src, dst, n_threads=self.machine.n_threads))
            )
        return self._reorders[key]

    def _found(self, spec: Spec | HostSpec) -> Price:
        if isinstance(spec, HostSpec):
            start_ns, bandwidth = _HOST_COSTS[spec.kind]
            return Price(start_ns + spec.nbytes_moved / bandwidth, "modelled")
        if spec in self.times:
            return Price(self.times[spec], "measured")
        return Price(self._modelled_ns(spec) * (self._factor(_family(spec)) if self.times else 1.0), "modelled")

    def _factor(self, family: tuple[str, ...]) -> float:
        wider = (family[:n] for n in (3, 2, 0))
        return next(self._factors[each] for each in wider if each in self._factors)

    @cached_property
    def _factors(self) -> dict[tuple[str, ...], float]:
        """Of measured to modelled times: of all, of each kind and data type, and of each implementation."""
        import statistics  # only where times were measured

        logs: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for spec, ns in self.times.items():
            for n in (0, 2, 3):
                logs[_family(spec)[:n]].append(log(ns / self._modelled_ns(spec)))
        found: dict[tuple[str, ...], float] = {}
        for family, ratios in sorted(logs.items(), key=lambda item: len(item[0])):  # the widest first
            wider = found.get(family[:2], found[()]) if family else 0.0
            found[family] = wider + (statistics.median(ratios) - wider) * len(ratios) / (len(ratios) + _N_UNTOLD)
        return {family: exp(ratio) for family, ratio in found.items()}

    def _modelled_ns(self, spec: Spec) -> float:
        """Nanoseconds by the model: the slower of its arithmetic and its memory traffic."""
        if spec.kind == "reorder":
            is_scaled = bool(spec.attr.scales) and not own.implementation(spec.impl)
            return self._moving_ns(spec.memory_desc("src"), spec.memory_desc("dst"), is_scaled=is_scaled)
        if ours := own.implementation(spec.impl):
            compute_ns = ours.compute_ns(spec, self.machine.peak_flops(spec.impl, "f32"), self.machine.n_threads)
            return self.machine.step_ns + ours.total_ns(compute_ns, self._traffic_ns(spec))
        functions_ns = function_flops(spec) / self.machine.peak_flops(spec.impl, "f32")
        return self.machine.step_ns + max(self._compute_ns(spec), self._traffic_ns(spec)) + functions_ns

    def _moving_ns(self, src: MemoryDesc, dst: MemoryDesc, *, is_scaled: bool = False) -> float:
        moving_ns = (src.nbytes + dst.nbytes) / self.machine.reorder_bandwidth
        are_bytes = src.dtype in BYTE_DTYPES, dst.dtype in BYTE_DTYPES
        is_ours = are_bytes == (True, False) and src.with_dtype(dst.dtype) == dst  # own/widening.py
        if any(are_bytes) and not is_ours:
            per_ns = _CONVERTED_PER_NS if _innermost(src) == _innermost(dst) else _TURNED_PER_NS
            per_ns *= 1 if is_scaled or not all(are_bytes) else 2
            moving_ns = max(moving_ns, src.n_elements / (per_ns * self.machine.n_threads))
        return self.machine.step_ns + moving_ns

    def _compute_ns(self, spec: Spec) -> float:
        flops = 2 * multiply_adds(spec, padded=True)
        if not flops:
            return 0.0
        peak_flops = self.machine.peak_flops(spec.impl, spec.side("src").dtype)
        return flops / (kind_of(spec.kind).peak_share(spec) * peak_flops)

    def _traffic_ns(self, spec: Spec) -> float:
        return spec.nbytes_moved / (self.machine.bandwidth * kind_of(spec.kind).bandwidth_share(spec))


def _innermost(desc: MemoryDesc) -> int:
    """The dimension along which neighbours in memory lie."""
    order = (*desc.dim_order, *desc.inner_idxs)
    return next((dim for dim in reversed(order) if desc.dims[dim] > 1), 0)


def steps_ns(costs: CostModel, steps: Iterable[RecipeStep]) -> float:
    """Nanoseconds of resolved steps, one after the other."""
    return sum((costs.step_ns(step.spec) for step in steps), 0.0)


def _family(spec: Spec) -> tuple[str, ...]:
    """Its kind, data type and implementation."""
    return spec.kind, spec.side("src").dtype if not spec.has("src_0") else spec.desc("src_0").dtype, spec.impl
