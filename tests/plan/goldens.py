"""Plans in a compact form of text, as golden files hold them; run as a script, prints some.

``python -m tests.plan.goldens DTYPE NETWORK...`` plans networks of the zoo for the instruction set that
``ONEDNN_MAX_CPU_ISA`` allows, for a committed machine: the defaults of :class:`blocklayout.plan.Machine`, two threads,
the cost model alone. The library shows one thing of the real machine even so: it fuses a pointwise and a depthwise
convolution where the tensor between them is larger than twice that machine's second-level cache. Here it never pays.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from blocklayout import dnnl, zoo
from blocklayout.model import legalize, lower, simplify
from blocklayout.plan import CostModel, Machine, Request, make_plan
from blocklayout.plan.costs.model import Price
from blocklayout.show.names import primitive_name, step_layouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blocklayout.ir import HostSpec
    from blocklayout.plan import Plan

END = "\f\n"
"""Behind each plan."""

NEVER_NS = 1e12

COMMAND = "pytest tests/plan/test_golden_plans.py --update-golden"


class _Unfused(CostModel, frozen=True):
    """Prices at which no two convolutions are one primitive."""

    def price(self, spec: dnnl.Spec | HostSpec) -> Price:
        is_pair = isinstance(spec, dnnl.Spec) and spec.kind == "convolution" and spec.attr.depthwise is not None
        return Price(NEVER_NS, "modelled") if is_pair else super().price(spec)


def golden_text(plan: Plan, isa: str) -> str:
    """A plan without numbers that change whenever the cost model does: what runs, in which layouts, and why."""
    origin = (
        f"# zoo:{plan.model} at its usual extents, ONEDNN_MAX_CPU_ISA={isa}, Machine({plan.isa!r}, 2): by {COMMAND}"
    )
    return "\n".join([origin, *_lines(plan)]) + "\n"


def _lines(plan: Plan) -> Iterator[str]:
    yield f"layout {plan.policy} ({plan.chosen}), {plan.dtype}, {plan.n_threads} threads, oneDNN {plan.library}"
    for entry in plan.entries:
        yield f"in {entry.input}: {entry.source.named('src')} -> {entry.desc.named('src')}: {entry.reason}"
    for number, step in enumerate(plan.steps):
        told = f"{number} {step.kernel}: {primitive_name(step)}, {step.spec.impl}, {step_layouts(step)}"
        yield f"{told}: {step.reason}" if step.is_reorder else told
    yield "formats"
    yield from (f"{name}: {desc.named('src')}" for name, desc in plan.formats.items())


def main(network: str, dtype: str) -> None:
    """Print the golden text of a network's plan."""
    program = lower(legalize(simplify(zoo.build(network, seed=None).to_graph())))
    plan = make_plan(program, Request(dtype=dtype), _Unfused(Machine(dnnl.isa(), 2)))
    sys.stdout.write(golden_text(plan, os.environ["ONEDNN_MAX_CPU_ISA"]) + END)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        main(each, sys.argv[1])
