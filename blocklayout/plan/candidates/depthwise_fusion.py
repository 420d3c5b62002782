"""Pairs of convolutions in one primitive: the second, a depthwise one, takes over what the first would have stored.

Each of the two groups gets a candidate for it. That of the first runs nothing and gives its value in a layout that
nothing but the second's reads: no byte of it is ever stored, and no reorder leads to it or from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.ir import Candidate, Recipe, RecipeStep, Role, Wish, wished_desc
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.fuse import Follower, Group, kernel_problem, value_info
from blocklayout.plan.candidates.recipes import NOT_OFFERED

if TYPE_CHECKING:
    from blocklayout.ir import Program
    from blocklayout.plan.costs.model import Costs

FIRST = "first."
"""Begins the names of the first group's operands among the second's."""

HELD = "held"
"""The name of the layout in which the primitive holds the value between."""


class Pair(Struct, frozen=True):
    """Two groups that may be one primitive.

    Attributes:
        first: Its result is read by the second alone.
        second: A depthwise convolution with what follows it.
        depthwise: The second's convolution as a post-op of the first's.
    """

    first: Group
    second: Group
    depthwise: dnnl.DepthwiseConv


def find_pairs(program: Program, groups: Sequence[Group], dtype: str) -> list[Pair]:
    """The groups that may hand their results on, and those that take them over.

    Args:
        program: What they compute.
        groups: In order.
        dtype: Data type of activations.
    """
    producers = {group.dst.name: group for group in groups}
    n_readers: dict[str, int] = {value.name: 1 for value in program.outputs}
    for group in groups:
        for value in group.sources.values():
            n_readers[value.name] = n_readers.get(value.name, 0) + 1
    found = []
    for second in groups:
        depthwise = second.main.operator.as_depthwise(kernel_problem(second.main, dtype, 1))
        first = producers.get(second.sources["src"].name) if depthwise and len(second.sources) == 1 else None
        if depthwise and first and n_readers[first.dst.name] == 1 and _is_simple(first) and _is_simple(second):
            found.append(Pair(first, second, depthwise))
    return found


def _is_simple(group: Group) -> bool:
    """Whether nothing but its own primitive, and functions of its result, belong to it."""
    reads = [arg for arg, _ in group.main.sources]
    is_one_of_two = group.main.operator.role is Role.CHOOSER and reads == ["src"]
    return is_one_of_two and all(follower.use.operand is None for follower in group.followers)


def pair_candidates(
    pair: Pair, layouts: Sequence[str], dtype: str, costs: Costs
) -> Iterator[tuple[Candidate, Candidate]]:
    """A candidate of each group for every layout in which the library truly fuses them.

    Args:
        pair: The two groups.
        layouts: Names of the layouts to ask for.
        dtype: Data type of activations.
        costs: Prices the primitive.
    """
    for number, layout in enumerate(layouts):
        for resolved, recipe in _fused(pair, Wish(layout, layout), dtype, costs.machine.n_threads):
            yield _candidates(pair, resolved, recipe, _handed_on(pair, dtype, number), layout, costs)


def _fused(pair: Pair, wish: Wish, dtype: str, n_threads: int) -> Iterator[tuple[dnnl.Resolved, Recipe]]:
    problem = kernel_problem(pair.first.main, dtype, n_threads)
    post_ops = (*_post_ops(pair.first.followers), pair.depthwise, *_post_ops(pair.second.followers))
    try:
        recipe = pair.first.main.operator.lower(problem, wish, dnnl.Attr(post_ops=post_ops))
        if recipe is None or len(recipe.steps) != 1 or not isinstance(recipe.steps[0].spec, dnnl.Spec):
            return
        offered = dnnl.optimised(recipe.steps[0].spec)
    except NOT_OFFERED:
        return
    for resolved in offered:
        if not resolved.is_reference:  # the reference is two primitives in a row
            yield resolved, recipe


def _candidates(
    pair: Pair, resolved: dnnl.Resolved, recipe: Recipe, handed_on: MemoryDesc, layout: str, costs: Costs
) -> tuple[Candidate, Candidate]:
    spec, index = resolved.spec, len(pair.first.followers)
    renamed = {f"post_op_{index}_{name}": name for name in ("weights", "bias")}
    own = tuple((arg, operand if operand == "dst" else FIRST + operand) for arg, operand in recipe.steps[0].operands)
    taken = tuple((arg, name) for arg, name in renamed.items() if spec.has(arg))
    step = RecipeStep(spec, tuple(sorted((*own, *taken))), resolved.scratchpad_nbytes)
    held = wished_desc(layout, value_info(pair.first.dst, spec.desc("src").dtype))
    first = Candidate(
        sources=tuple((operand, spec.memory_desc(operand)) for operand in pair.first.sources),
        constants=tuple((operand, spec.memory_desc(operand)) for operand in pair.first.constants),
        dst=handed_on,
        steps=(),
        temporaries=((HELD, held),) if isinstance(held, MemoryDesc) else (),
        alias=None,
        cost_ns=0.0,
        origin=f"handed on to {pair.second.name}",
        rank=1,
    )
    second = Candidate(
        sources=tuple((operand, handed_on) for operand in pair.second.sources),
        constants=tuple((name, spec.memory_desc(arg)) for arg, name in taken),
        dst=spec.memory_desc("dst"),
        steps=(step,),
        temporaries=(),
        alias=None,
        cost_ns=costs.step_ns(spec),
        origin=f"one primitive with {pair.first.name}",
        rank=1,
    )
    return first, second


def _post_ops(followers: Sequence[Follower]) -> tuple[dnnl.PostOp, ...]:
    return tuple(follower.use.post_op for follower in followers)


def _handed_on(pair: Pair, dtype: str, number: int) -> MemoryDesc:
    """The layout of a value that is not stored; one for each layout that the two might be fused in."""
    dims = pair.first.dst.dims
    return MemoryDesc(dims, value_info(pair.first.dst, dtype).dtype, strides=(0,) * len(dims), offset=number)


def is_handed_on(desc: MemoryDesc) -> bool:
    """Whether a value of this layout is not stored: every element is said to be in one place."""
    return not desc.inner_blks and desc.n_elements > 1 and not any(desc.strides)
