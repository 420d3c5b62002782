"""Two neighbouring tiles as one: in one primitive, or by one operator.

The tile that the two would be is proposed for like any other. Each of its candidates is then parted into two, one for
each of the neighbours, so that one solve decides who covers what: the first's runs nothing, and its result is
:class:`Fused`, which only the second's reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from blocklayout.ir import Candidate, Fused, PostOpUse, Program, Role
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.recipes import renamed
from blocklayout.plan.candidates.tiles import Member, Tile, kernel_problem

FIRST = "first."
"""Begins the names of the first tile's operands among the second's."""


class Joined(NamedTuple):
    """The tile that two are together; the second alone reads the result of the first."""

    whole: Tile
    first: Tile
    second: Tile


def joined(program: Program, tiles: Sequence[Tile], dtype: str) -> list[Joined]:
    """All that two tiles of a program may be together, activations being ``dtype``."""
    handed_on = list(_handed_on(program, tiles))
    wholes = ((join(*two, dtype), *two) for join in (_with_depthwise, _merged) for two in handed_on)
    return [Joined(whole, first, second) for whole, first, second in wholes if whole is not None]


def _handed_on(program: Program, tiles: Sequence[Tile]) -> Iterator[tuple[Tile, Tile]]:
    """Every two tiles, of one precision, of which the second reads the first's result as ``src``, and nobody else."""
    producers = {tile.dst.name: tile for tile in tiles}
    n_readers = Counter(value.name for tile in tiles for value in tile.sources.values())
    n_readers.update(value.name for value in program.outputs)
    for second in tiles:
        src = second.sources.get("src")
        first = producers.get(src.name) if src is not None and n_readers[src.name] == 1 else None
        if first is not None and first.precision == second.precision:
            yield first, second


def _with_depthwise(first: Tile, second: Tile, dtype: str) -> Tile | None:
    """The second's convolution, a depthwise one, as a post-op of the first's, and its own post-ops behind that."""
    depthwise = second.main.operator.as_depthwise(kernel_problem(second.main, second.dtypes(dtype)[0], 1))
    if depthwise is None or not _is_simple(first) or not _is_simple(second):
        return None
    behind = (Member(second.main, "src", PostOpUse(depthwise), ""), *second.followers)
    n_before = len(first.followers)
    followers = (replace(each, prefix=f"post_{index}") for index, each in enumerate(behind, n_before))
    return Tile(first.main, (*first.followers, *followers), first.precision)


def _is_simple(tile: Tile) -> bool:
    """Whether nothing but its own primitive, and functions of its result, belong to it."""
    reads = [arg for arg, _ in tile.main.sources]
    is_one_of_two = tile.main.operator.role is Role.CHOOSER and reads == ["src"]
    return is_one_of_two and all(follower.use.operand is None for follower in tile.followers)


def _merged(first: Tile, second: Tile, dtype: str) -> Tile | None:
    """An operator that computes of the first's source what the second's computes of the first's result."""
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
    return replace(second, main=both)


def halves(two: Joined, whole: Candidate) -> tuple[Candidate, Candidate]:
    """A candidate for two tiles together as one for each of them."""
    tile, first, second = two
    src = cast("MemoryDesc", whole.source_descs["src"])  # nobody hands a fused value on to two
    fused = Fused(src.resized(first.dst.dims), whole.steps[0].spec.impl)
    if tile.depthwise is None:
        names = {"src": f"{FIRST}src"}
        taken_on = f"{whole.origin}, one with {first.name} as {type(tile.main.operator).__name__}"
    else:
        names = {operand: FIRST + operand for operand in (*first.sources, *first.constants)}
        names |= {tile.depthwise.operand(arg): arg for arg in second.constants}
        taken_on = f"one primitive with {first.name}"
    constants = [(names.get(operand, operand), desc) for operand, desc in whole.constants]
    covered = Candidate(
        sources=(("src", src),),
        constants=tuple((name.removeprefix(FIRST), desc) for name, desc in constants if name.startswith(FIRST)),
        dst=fused,
        origin=f"computed as one with {second.name}",
    )
    covering = replace(
        whole,
        sources=tuple((operand, fused if operand == "src" else desc) for operand, desc in whole.sources),
        constants=tuple((name, desc) for name, desc in constants if not name.startswith(FIRST)),
        made=tuple((arg, constant.made) for arg, constant in tile.constants.items() if constant.made is not None),
        steps=tuple(renamed(step, names) for step in whole.steps),
        origin=taken_on,
    )
    return covered, covering
