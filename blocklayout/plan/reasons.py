"""Why a step is there, in words: the reasons of layouts and reorders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.ir import Candidate
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import Step

CALLER = "the caller"
FOLLOWS = "it follows what it reads"


def asked_for(candidate: Candidate, why: str = "") -> str:
    """Of a step: the layouts it was asked for in; ``why`` where these are not the policy's."""
    origin = candidate.origin + (", sum in place" if candidate.alias else "")
    return f"{origin}: {why}" if why else f"asked for {origin}"


def no_kernel(layout: str) -> str:
    """Of a step that is not in the policy's layout."""
    return f"{layout} has only a reference implementation or none"


def entered(reader: str, desc: MemoryDesc, given: MemoryDesc) -> str:
    """Of an entry: its reader, and the layout given where that is another."""
    other = "" if given.readable_as(desc) else f", {CALLER} gives {_name(given)}"
    return f"{reader} reads {_name(desc)}{other}"


def reordered(writer: str, source: MemoryDesc, reader: str, desc: MemoryDesc) -> str:
    """Of a reorder: its two sides; a writer that is its own reader has no other yet."""
    wanted = f"{reader} wants {_name(desc)}"
    if writer == reader:
        wanted = f"the policy brings every result back to {_name(desc)}"
    return f"{writer} wrote {_name(source)}, {wanted}"


def only_reference(step: Step) -> str:
    """Of a step that runs a reference implementation."""
    return f"oneDNN has nothing faster for this {step.spec.kind} in any layout asked for"


def dropped(n_kernels: int, family: str) -> str:
    """Of an operator that ends a run of kernels in one family of layouts."""
    return f"drops a run of {n_kernels} kernel{'s' * (n_kernels > 1)} in {family} layout to plain"


def _name(desc: MemoryDesc) -> str:
    return desc.named("src") if desc.dtype == "f32" else f"{desc.named('src')} in {desc.dtype}"
