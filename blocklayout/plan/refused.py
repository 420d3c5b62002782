"""Kernels whose primitives the library offered in some implementation, and then refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout import dnnl

if TYPE_CHECKING:
    from blocklayout.plan.network import Network
    from blocklayout.plan.plan import Plan

_DESCS = ("src", "src_0", "weights", "dst")


def is_refused(plan: Plan) -> bool:
    """Whether a step of a plan was refused in this process."""
    refusals = dnnl.refusals()
    return bool(refusals) and any(step.spec in refusals for step in plan.steps)


def refused_in(network: Network) -> tuple[tuple[str, str], ...]:
    """Each such kernel with the implementation and its layouts, by all refusals met in this process."""
    refusals = dnnl.refusals()
    if not refusals:
        return ()
    found = set()
    for tile, offered in zip(network.tiles, network.candidates, strict=True):
        asked = {_problem(step.spec) for each in offered for step in each.steps if isinstance(step.spec, dnnl.Spec)}
        alike = (spec for spec in refusals if _problem(spec) in asked)
        found |= {(tile.name, f"oneDNN offers {_told(spec)}, and refused to {refusals[spec]} it") for spec in alike}
    return tuple(sorted(found))


def _problem(spec: dnnl.Spec) -> tuple[object, ...]:
    """Equal for Specs that differ in nothing but layouts and post-ops."""
    extents = tuple((desc.dims, desc.dtype) for name, desc in spec.descs if name in _DESCS)
    return spec.kind, spec.algorithm, repr(spec.params), spec.n_threads, extents


def _told(spec: dnnl.Spec) -> str:
    layouts = " to ".join(spec.memory_desc(name).named(name) for name in ("src", "src_0", "dst") if spec.has(name))
    return f"{spec.impl} from {layouts}"
