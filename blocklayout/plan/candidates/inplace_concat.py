"""Results whose sources are written where they belong, so that no byte moves."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder
from blocklayout.ir import Candidate, Program, RecipeStep, Role, wished_desc
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.fuse import Group, kernel_problem, value_info
from blocklayout.plan.candidates.recipes import NOT_OFFERED, resolved
from blocklayout.plan.place import ALIGNMENT


def writable_slices(
    program: Program, groups: Sequence[Group], dtype: str, layouts: Sequence[str]
) -> dict[str, frozenset[str]]:
    """For each group that may be nothing but its sources side by side, the operands that can be written in place.

    A value can be a slice of one result only, and neither the caller's input or output nor a view of other bytes.
    """
    produced = {value.name for group in groups if not group.is_view for value in group.dsts.values()}
    free = produced - _shown_to_the_caller(program, groups)
    found = {}
    for group in groups:
        if group.dst.name in free and _is_sliceable(group, group.dtypes(dtype)[0], layouts):
            names = [value.name for value in group.sources.values()]
            mine = [op for op, value in group.sources.items() if value.name in free and names.count(value.name) == 1]
            found[group.name] = frozenset(mine)
            free -= {group.sources[operand].name for operand in mine}
    return found


def _shown_to_the_caller(program: Program, groups: Sequence[Group]) -> set[str]:
    """Outputs, and the values that they are views of."""
    shown = {value.name for value in program.outputs}
    for group in reversed(groups):
        if group.is_view and group.dst.name in shown:
            shown |= {value.name for value in group.sources.values()}
    return shown


def _is_sliceable(group: Group, dtype: str, layouts: Sequence[str]) -> bool:
    if group.followers or group.constants or group.main.operator.role in (Role.VIEW, Role.PLAIN):
        return False
    problem = kernel_problem(group.main, dtype, 1)
    descs = (wished_desc(layout, problem.dst) for layout in layouts)
    return any(isinstance(d, MemoryDesc) and group.main.operator.slices(problem, d) is not None for d in descs)


def sliced_candidate(
    group: Group, layout: str | MemoryDesc, in_place: frozenset[str], dtype: str, n_threads: int
) -> Candidate | None:
    """A group of :func:`writable_slices`, its sources being slices of its result, if those are dense in this layout.

    The producers of the operands ``in_place`` write their slices themselves; the others are copied there.
    """
    dst = wished_desc(layout, value_info(group.dst, dtype))
    if not isinstance(dst, MemoryDesc) or not dst.is_dense:
        return None
    slices = group.main.operator.slices(kernel_problem(group.main, dtype, n_threads), dst)
    if slices is None or not has_reorder(dst.dtype) or any(nbytes % ALIGNMENT for _, nbytes in slices.values()):
        return None
    names = {operand: operand if operand in in_place else f"slice_{operand}" for operand in slices}
    copied = [(operand, desc) for operand, (desc, _) in slices.items() if operand not in in_place]
    try:
        steps = resolved(
            RecipeStep(dnnl.reorder(desc, desc, n_threads=n_threads), (("dst", names[operand]), ("src", operand)))
            for operand, desc in copied
        )
    except NOT_OFFERED:
        return None
    return Candidate(
        sources=tuple((operand, slices[operand][0]) for operand in group.sources),
        dst=dst,
        steps=tuple(steps),
        temporaries=tuple((names[operand], desc) for operand, desc in copied),
        origin="slices of the result",
        slices=tuple((names[operand], nbytes) for operand, (_, nbytes) in slices.items()),
    )
