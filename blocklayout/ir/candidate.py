"""A candidate: one way to compute a group of kernels, with every layout decided."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.dnnl import is_reference

if TYPE_CHECKING:
    from blocklayout.ir.fused import ValueLayout
    from blocklayout.ir.recipe import RecipeStep
    from blocklayout.layout import MemoryDesc


class Candidate(Struct, frozen=True, dict=True):
    """One way to compute a group; data only.

    Attributes:
        sources: The layout demanded of each source, by operand.
        constants: The layout each constant is packed in, by operand.
        dst: The layout of the result.
        steps: Primitives in order, with resolved Specs; none for a view.
        temporaries: Buffers between the steps, by name.
        alias: The source operand whose buffer the result overwrites, if any.
        cost_ns: Estimated time of all steps.
        origin: The wish it comes from, such as ``any`` or ``blocked8``.
        rank: Which choice of the library's this is for the layouts that were asked for; 0 is its own favourite.
        others: The layouts of further results, by argument.
        slices: Operands, sources or temporaries, whose buffers are parts of the result's, and the bytes before
            each: the producer of such a source writes it there.
    """

    sources: tuple[tuple[str, ValueLayout], ...]
    constants: tuple[tuple[str, MemoryDesc], ...]
    dst: ValueLayout
    steps: tuple[RecipeStep, ...]
    temporaries: tuple[tuple[str, MemoryDesc], ...]
    alias: str | None
    cost_ns: float
    origin: str
    rank: int = 0
    others: tuple[tuple[str, MemoryDesc], ...] = ()
    slices: tuple[tuple[str, int], ...] = ()

    @cached_property
    def is_reference(self) -> bool:
        """Whether a step runs an unoptimised reference implementation."""
        return any(is_reference(step.spec.impl) for step in self.steps)

    @cached_property
    def source_descs(self) -> dict[str, ValueLayout]:
        """The layout demanded of each source, by operand."""
        return dict(self.sources)
