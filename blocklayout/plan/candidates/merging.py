"""Pairs of kernels that one operator computes: the second's alternative reads what the first would have read.

As where two primitives are fused, each of the two groups gets a candidate for it. That of the first runs nothing, and
its result is :class:`Fused`: only that of the second reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from blocklayout.ir import Candidate, Fused, RecipeStep, Role
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.depthwise_fusion import FIRST, handed_on
from blocklayout.plan.candidates.fuse import Group, kernel_problem

if TYPE_CHECKING:
    from blocklayout.ir import Program


class Merged(Struct, frozen=True):
    """Two groups that may be one.

    Attributes:
        first: One kernel, whose result is read by the second alone.
        second: What follows it.
        both: Computes what the second does of what the first reads.
    """

    first: Group
    second: Group
    both: Group


def find_merged(program: Program, groups: Sequence[Group], dtype: str) -> list[Merged]:
    """The pairs that one operator computes.

    Args:
        program: What the groups compute.
        groups: In order.
        dtype: Data type of activations.
    """
    found = []
    for first, second in handed_on(program, groups):
        one, two = first.main, second.main
        if first.followers or [arg for arg, _ in one.sources] != ["src"] or one.operator.role is Role.VIEW:
            continue
        problems = (kernel_problem(kernel, second.dtypes(dtype)[0], 1) for kernel in (one, two))
        merged = one.operator.merged(next(problems), two.operator, next(problems))
        if merged is not None:
            operator, made = merged
            constants = tuple((arg, replace(constant, made=made.get(arg))) for arg, constant in two.constants)
            sources = tuple((arg, one.sources[0][1] if arg == "src" else value) for arg, value in two.sources)
            both = replace(two, operator=operator, sources=sources, constants=constants)
            found.append(Merged(first, second, replace(second, main=both)))
    return found


def merged_candidates(pair: Merged, offered: Iterable[Candidate]) -> Iterator[tuple[Candidate, Candidate]]:
    """A candidate of each group for every way to compute both.

    Args:
        pair: The two groups.
        offered: The candidates of both as one group.
    """
    made = tuple((arg, constant.made) for arg, constant in pair.both.constants.items() if constant.made is not None)
    for each in offered:
        src = each.source_descs["src"]
        if not isinstance(src, MemoryDesc):
            continue
        fused = Fused(src.resized(pair.first.dst.dims), each.steps[0].spec.impl)
        first = Candidate(
            sources=(("src", src),), dst=fused, origin=f"handed on to {pair.second.name}, which reads what it reads"
        )
        second = replace(
            each,
            sources=tuple((operand, fused if operand == "src" else desc) for operand, desc in each.sources),
            made=made,
            steps=tuple(map(_of_first, each.steps)),
            origin=f"{each.origin}, one with {pair.first.name} as {type(pair.both.main.operator).__name__}",
        )
        yield first, second


def _of_first(step: RecipeStep) -> RecipeStep:
    """A step that reads the first group's source instead of the second's."""
    operands = ((arg, f"{FIRST}src" if operand == "src" else operand) for arg, operand in step.operands)
    return replace(step, operands=tuple(operands))
