"""A network at prices that follow from a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from blocklayout.dnnl import Spec, own
from blocklayout.layout import MemoryDesc
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan.candidates.propose import Proposer
from blocklayout.plan.candidates.tiles import fuse
from blocklayout.plan.costs.machine import Machine
from blocklayout.plan.costs.model import CostModel, Price
from blocklayout.plan.network import Network, propose_all
from tests import nets

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, HostSpec

_MODEL = CostModel(Machine("avx2", 2))


def network() -> Network:
    """A small one, with two branches that join."""
    program = lower(legalize(simplify(nets.residual().to_graph())))
    return propose_all(program, fuse(program, "f32", 2), Proposer(_MODEL, "f32"), {})


def network_in_bf16() -> Network:
    """The same in bf16, on whatever CPU: what the library offers is there twice, and in f32 an island."""
    wide = network()
    candidates = tuple((*map(_narrow, filter(_is_the_librarys, offered)), *offered) for offered in wide.candidates)
    return replace(wide, dtype="bf16", candidates=candidates)


def _is_the_librarys(candidate: Candidate) -> bool:
    return not any(isinstance(step.spec, Spec) and own.implementation(step.spec.impl) for step in candidate.steps)


def _narrow(candidate: Candidate) -> Candidate:
    steps = (
        replace(step, spec=_narrow_spec(step.spec)) if isinstance(step.spec, Spec) else step for step in candidate.steps
    )
    sources = tuple((operand, _narrow_desc(desc)) for operand, desc in candidate.sources)
    return replace(candidate, steps=tuple(steps), sources=sources, dst=_narrow_desc(candidate.dst))


def _narrow_spec(spec: Spec) -> Spec:
    descs = tuple((name, desc if name == "bias" else _narrow_desc(desc)) for name, desc in spec.descs)
    return spec.replace(descs=descs, impl=f"{spec.impl}_bf16")


def _narrow_desc(desc: Any) -> Any:
    return desc.with_dtype("bf16") if isinstance(desc, MemoryDesc) and desc.dtype == "f32" else desc


def prices(seed: int) -> CostModel:
    """Prices that follow from a seed."""
    return _MadeUp(_MODEL.machine, seed=seed)


class _MadeUp(CostModel, frozen=True, kw_only=True):
    seed: int

    def price(self, spec: Spec | HostSpec) -> Price:
        return Price(self._ns(str(spec)), "modelled")

    def reorder_price(self, src: MemoryDesc, dst: MemoryDesc) -> Price:
        return Price(self._ns(f"{src} {dst}") / 4, "modelled")

    def _ns(self, text: str) -> float:
        return 1000.0 + sum(map(ord, text)) * (self.seed + 7919) % 10_007
