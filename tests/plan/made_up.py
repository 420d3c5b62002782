"""A network at prices that follow from a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blocklayout.model import legalize, lower, simplify
from blocklayout.plan.candidates.fuse import fuse
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.network import Network, propose_all
from tests import nets

if TYPE_CHECKING:
    from blocklayout.dnnl import Spec
    from blocklayout.ir import HostSpec
    from blocklayout.layout import MemoryDesc

_MODEL = CostModel(Machine("avx2", 2))


def network() -> Network:
    """A small one, with two branches that join."""
    program = lower(legalize(simplify(nets.residual().to_graph())))
    return propose_all(program, fuse(program, "f32", 2), Proposer(_MODEL, "f32"), {})


@dataclass(frozen=True)
class Prices:
    """Prices that follow from a seed, doubted all alike."""

    seed: int
    every_doubt: float
    machine: Machine = _MODEL.machine
    source: str = "nowhere"

    def step_ns(self, spec: Spec | HostSpec) -> float:
        return self._ns(str(spec))

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        return self._ns(f"{src} {dst}") / 4

    def doubt(self, spec: Spec | HostSpec) -> float:
        del spec
        return self.every_doubt

    def reorder_doubt(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        del src, dst
        return self.every_doubt

    def _ns(self, text: str) -> float:
        return 1000.0 + sum(map(ord, text)) * (self.seed + 7919) % 10_007
