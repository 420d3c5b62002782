"""The cost model: nanoseconds of a step from its work, its bytes and its implementation's class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blocklayout.dnnl import Spec

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.machine import Machine

_EFFICIENCY = (
    ("ref", 0.002),
    ("gemm", 0.55),
    ("jit_dw", 0.35),
    ("brgdmm_dw", 0.25),
    ("jit_sse41", 0.25),
    ("brg", 0.75),
    ("jit_1x1", 0.80),
    ("jit", 0.80),
)
"""Share of the machine's ceiling that a class of implementations reaches, by prefix of its name."""

_OTHER_EFFICIENCY = 0.4
_REFERENCE_BYTES_PER_NS = 0.2


@dataclass
class CostModel:
    """Estimates of what steps and reorders cost on a machine; instant, and the same every time."""

    machine: Machine
    _reorders: dict[tuple[MemoryDesc, MemoryDesc], float] = field(default_factory=dict, repr=False)

    def step_ns(self, spec: Spec) -> float:
        """Nanoseconds of one execution of a resolved Spec: the slower of its arithmetic and its memory traffic."""
        return self.machine.step_ns + max(self._compute_ns(spec), self._traffic_ns(spec))

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Nanoseconds of bringing bytes from one layout to another."""
        key = (src, dst)
        if key not in self._reorders:
            moved = src.nbytes + dst.nbytes
            self._reorders[key] = self.machine.step_ns + moved / self.machine.reorder_bandwidth
        return self._reorders[key]

    def _compute_ns(self, spec: Spec) -> float:
        flops = 2 * spec.multiply_adds(padded=True)
        if not flops:
            return 0.0
        machine = self.machine
        peak = machine.bf16_flops if spec.desc("src").dtype == "bf16" else machine.f32_flops
        return flops / (peak * machine.n_threads * _efficiency(spec.impl))

    def _traffic_ns(self, spec: Spec) -> float:
        moved = spec.nbytes_moved
        if spec.impl.startswith("ref"):
            return moved / _REFERENCE_BYTES_PER_NS
        return moved / self.machine.bandwidth


def _efficiency(impl: str) -> float:
    return next((share for prefix, share in _EFFICIENCY if impl.startswith(prefix)), _OTHER_EFFICIENCY)
