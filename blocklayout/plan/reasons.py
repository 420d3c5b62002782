"""Why a step is there, in words: the reasons of layouts and reorders."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.ir import Candidate
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import Step

CALLER = "the caller"
FOLLOWS = "it follows what it reads"

_WISHES = {
    "any": "in the layouts that oneDNN prefers",
    "plain": "row-major",
    "channels_last": "channels last",
    "blocked8": "blocks of 8",
    "blocked16": "blocks of 16",
}
_WORDS = dict.fromkeys(("ncw", "nchw", "ncdhw"), "row-major") | dict.fromkeys(("nwc", "nhwc", "ndhwc"), "channels last")


def computed_in(candidate: Candidate, why: str = "") -> str:
    """Of a step: the layouts it computes in; ``why`` where these are not the policy's."""
    layouts, *others = candidate.origin.split(", ")
    sides = " to ".join(_WISHES.get(side, side) for side in layouts.split(" to "))
    more = [re.sub(r"^choice (?=\d+$)", "oneDNN's choice no. ", other) for other in others]
    said = ", ".join([sides, *more, *(["sum in place"] if candidate.alias else [])])
    return f"{said}: {why}" if why else said


def no_kernel(layout: str) -> str:
    """Of a step that is not in the policy's layout."""
    return f"{layout} has only a reference implementation or none"


def entered(reader: str, desc: MemoryDesc, given: MemoryDesc) -> str:
    """Of an entry: its reader, and the layout given where that is another."""
    other = "" if given.readable_as(desc) else f", {CALLER} gives {_name(given)}"
    return f"{reader} reads {_name(desc)}{other}"


def reordered(writer: str, source: MemoryDesc, reader: str, desc: MemoryDesc) -> str:
    """Of a reorder: its two sides; a writer that is its own reader has no other yet."""
    wanted = f"{reader} {'wants' if reader == CALLER else 'reads'} {_name(desc)}"
    if writer == reader:
        wanted = f"the policy brings every result back to {_name(desc)}"
    return f"{writer} wrote {_name(source)}, {wanted}"


def only_reference(step: Step) -> str:
    """Of a step that runs a reference implementation."""
    return f"oneDNN has nothing faster for this {step.spec.kind} in any layout asked for"


def dropped(n_kernels: int, family: str) -> str:
    """Of an operator that ends a run of kernels in one family of layouts."""
    return f"drops a run of {n_kernels} kernel{'s' * (n_kernels > 1)} in {family} layout to plain"


def layout_words(desc: MemoryDesc) -> str:
    """A layout as people say it: ``blocks of 16``, ``channels last``, ``row-major``; others by their tag.

    Example:
        >>> from blocklayout import MemoryDesc
        >>> [layout_words(MemoryDesc((1, 16, 4, 4), "f32", tag)) for tag in ("nChw16c", "nhwc", "chwn")]
        ['blocks of 16', 'channels last', 'chwn']
    """
    name = desc.named("src")
    words = f"blocks of {desc.inner_blks[0]}" if desc.inner_idxs == (1,) else _WORDS.get(name, name)
    return words if desc.dtype == "f32" else f"{words} in {desc.dtype}"


def _name(desc: MemoryDesc) -> str:
    return desc.named("src") if desc.dtype == "f32" else f"{desc.named('src')} in {desc.dtype}"
