"""Pairs of groups that are computed as one: in one primitive, or by one operator.

Each of the two groups gets a candidate for it. That of the first runs nothing, and its result is :class:`Fused`: only
that of the second reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import Candidate, Fused, Program, Recipe, RecipeStep, Role, Wish, wished_desc
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.fuse import Group, GroupMember, kernel_problem, value_info
from blocklayout.plan.candidates.recipes import NOT_OFFERED, renamed

FIRST = "first."
"""Begins the names of the first group's operands among the second's."""

_LEAST_CACHE_NBYTES = 256 << 10
"""Of a core's second-level cache, on any machine: the library fuses no two where what lies between is smaller than two
of them for each thread.

Source: ``depthwise_po_init`` of the pointwise convolutions in ``src/cpu/x64``, oneDNN v3.2.
"""


class Pair(Struct, frozen=True):
    """Two groups that may be one primitive: the second, a depthwise convolution, alone reads the first's result.

    Attributes:
        depthwise: The second's convolution as a post-op of the first's.
    """

    first: Group
    second: Group
    depthwise: dnnl.DepthwiseConv


class Merged(Struct, frozen=True):
    """Two groups that one operator may compute: the second alone reads the result of the first, a single kernel.

    Attributes:
        both: Computes of the first's source what the second computes of the first's result.
    """

    first: Group
    second: Group
    both: Group


def find_pairs(program: Program, groups: Sequence[Group], dtype: str) -> list[Pair | Merged]:
    """The groups of a program that may be one with their only reader, activations being ``dtype``."""
    handed_on = list(_handed_on(program, groups))
    fused = (_pair(first, second, dtype) for first, second in handed_on)
    merged = (_merged(first, second, dtype) for first, second in handed_on)
    return [pair for pairs in (fused, merged) for pair in pairs if pair is not None]


def _handed_on(program: Program, groups: Sequence[Group]) -> Iterator[tuple[Group, Group]]:
    """Every two groups, of one precision, of which the second reads the first's result as ``src``, and nobody else."""
    producers = {group.dst.name: group for group in groups}
    n_readers = Counter(value.name for group in groups for value in group.sources.values())
    n_readers.update(value.name for value in program.outputs)
    for second in groups:
        src = second.sources.get("src")
        first = producers.get(src.name) if src is not None and n_readers[src.name] == 1 else None
        if first is not None and first.precision == second.precision:
            yield first, second


def _pair(first: Group, second: Group, dtype: str) -> Pair | None:
    depthwise = second.main.operator.as_depthwise(kernel_problem(second.main, second.dtypes(dtype)[0], 1))
    return Pair(first, second, depthwise) if depthwise and _is_simple(first) and _is_simple(second) else None


def _is_simple(group: Group) -> bool:
    """Whether nothing but its own primitive, and functions of its result, belong to it."""
    reads = [arg for arg, _ in group.main.sources]
    is_one_of_two = group.main.operator.role is Role.CHOOSER and reads == ["src"]
    return is_one_of_two and all(follower.use.operand is None for follower in group.followers)


def _merged(first: Group, second: Group, dtype: str) -> Merged | None:
    one, two = first.main, second.main
    if first.followers or [arg for arg, _ in one.sources] != ["src"] or one.operator.role is Role.VIEW:
        return None
    problem, reading = (kernel_problem(kernel, second.dtypes(dtype)[0], 1) for kernel in (one, two))
    merged = one.operator.merged(problem, two.operator, reading)
    if merged is None:
        return None
    operator, made = merged
    constants = tuple((arg, replace(constant, made=made.get(arg))) for arg, constant in two.constants)
    sources = tuple((arg, one.sources[0][1] if arg == "src" else value) for arg, value in two.sources)
    both = replace(two, operator=operator, sources=sources, constants=constants)
    return Merged(first, second, replace(second, main=both))


def pair_candidates(
    pair: Pair, layouts: Sequence[str], dtype: str, n_threads: int
) -> Iterator[tuple[Candidate, Candidate]]:
    """A candidate of each group for every one of these layouts in which the library truly fuses them."""
    for layout in layouts:
        if wished_desc(layout, value_info(pair.first.dst, dtype)).nbytes <= 2 * _LEAST_CACHE_NBYTES * n_threads:
            continue
        for resolved, recipe in _offered(pair, Wish(layout, layout), dtype, n_threads):
            held = wished_desc(layout, value_info(pair.first.dst, resolved.spec.desc("src").dtype))
            if isinstance(held, MemoryDesc):
                yield _candidates(pair, resolved, recipe, Fused(held, resolved.spec.impl))


def _offered(pair: Pair, wish: Wish, dtype: str, n_threads: int) -> Iterator[tuple[dnnl.Resolved, Recipe]]:
    problem = kernel_problem(pair.first.main, dtype, n_threads)
    post_ops = (*_post_ops(pair.first.followers), pair.depthwise, *_post_ops(pair.second.followers))
    try:
        recipe = pair.first.main.operator.lower(problem, wish, dnnl.Attr(post_ops=post_ops))
        if recipe is None or len(recipe.steps) != 1 or not isinstance(recipe.steps[0].spec, dnnl.Spec):
            return
        spec = recipe.steps[0].spec
        offered = dnnl.optimised(spec) if dnnl.has_optimised(spec) else ()  # the reference is two primitives in a row
    except NOT_OFFERED:
        return
    for resolved in offered:
        yield resolved, recipe


def _candidates(pair: Pair, resolved: dnnl.Resolved, recipe: Recipe, fused: Fused) -> tuple[Candidate, Candidate]:
    spec, index = resolved.spec, len(pair.first.followers)
    renamed = {f"post_op_{index}_{name}": name for name in ("weights", "bias")}
    own = tuple((arg, operand if operand == "dst" else FIRST + operand) for arg, operand in recipe.steps[0].operands)
    taken = tuple((arg, name) for arg, name in renamed.items() if spec.has(arg))
    step = RecipeStep(spec, tuple(sorted((*own, *taken))), resolved.scratchpad_nbytes)
    first = Candidate(
        sources=tuple((operand, spec.memory_desc(operand)) for operand in pair.first.sources),
        constants=tuple((operand, spec.memory_desc(operand)) for operand in pair.first.constants),
        dst=fused,
        origin=f"handed on to {pair.second.name}",
        rank=1,
    )
    second = Candidate(
        sources=tuple((operand, fused) for operand in pair.second.sources),
        constants=tuple((name, spec.memory_desc(arg)) for arg, name in taken),
        dst=spec.memory_desc("dst"),
        steps=(step,),
        origin=f"one primitive with {pair.first.name}",
        rank=1,
    )
    return first, second


def _post_ops(followers: Sequence[GroupMember]) -> tuple[dnnl.PostOp, ...]:
    return tuple(follower.use.post_op for follower in followers)


def merged_candidates(pair: Merged, offered: Iterable[Candidate]) -> Iterator[tuple[Candidate, Candidate]]:
    """A candidate of each group for every candidate that both have as one group."""
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
            steps=tuple(renamed(step, {"src": f"{FIRST}src"}) for step in each.steps),
            origin=f"{each.origin}, one with {pair.first.name} as {type(pair.both.main.operator).__name__}",
        )
        yield first, second
