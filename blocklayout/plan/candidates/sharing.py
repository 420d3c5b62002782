"""Results that share memory with sources, so that no byte moves: sums over a source, concatenations around sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blocklayout import dnnl
from blocklayout.dtypes import has_reorder
from blocklayout.ir import Candidate, Program, RecipeStep, Role, wished_desc
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.joined import Joined
from blocklayout.plan.candidates.recipes import NOT_OFFERED, resolved
from blocklayout.plan.candidates.tiles import Tile, kernel_problem, value_info
from blocklayout.plan.place import ALIGNMENT


def shareable(
    program: Program, tiles: Sequence[Tile], joined: Sequence[Joined], dtype: str, layouts: Sequence[str]
) -> dict[str, frozenset[str]]:
    """For each tile whose result may share memory with sources, the operands with which it may.

    Args:
        program: Which values the caller owns.
        tiles: All tiles, in order.
        joined: Those that two of them may be together.
        dtype: Data type of activations.
        layouts: Names of the layouts that kernels are asked for.
    """
    slices = _writable_slices(program, tiles, dtype, layouts)
    return slices | _overwritable(program, tiles, joined, slices)


def _writable_slices(
    program: Program, tiles: Sequence[Tile], dtype: str, layouts: Sequence[str]
) -> dict[str, frozenset[str]]:
    """For each tile that may be nothing but its sources side by side, the operands that can be written in place.

    A value can be a slice of one result only, and neither the caller's input or output nor a view of other bytes.
    """
    produced = {value.name for tile in tiles if not tile.is_view for value in tile.dsts.values()}
    free = produced - _shown_to_the_caller(program, tiles)
    found = {}
    for tile in tiles:
        if tile.dst.name in free and _is_sliceable(tile, tile.dtypes(dtype)[0], layouts):
            names = [value.name for value in tile.sources.values()]
            mine = [op for op, value in tile.sources.items() if value.name in free and names.count(value.name) == 1]
            found[tile.name] = frozenset(mine)
            free -= {tile.sources[operand].name for operand in mine}
    return found


def _shown_to_the_caller(program: Program, tiles: Sequence[Tile]) -> set[str]:
    """Outputs, and the values that they are views of."""
    shown = {value.name for value in program.outputs}
    for tile in reversed(tiles):
        if tile.is_view and tile.dst.name in shown:
            shown |= {value.name for value in tile.sources.values()}
    return shown


def _is_sliceable(tile: Tile, dtype: str, layouts: Sequence[str]) -> bool:
    if tile.followers or tile.constants or tile.main.operator.role in (Role.VIEW, Role.PLAIN):
        return False
    problem = kernel_problem(tile.main, dtype, 1)
    descs = (wished_desc(layout, problem.dst) for layout in layouts)
    return any(isinstance(d, MemoryDesc) and tile.main.operator.slices(problem, d) is not None for d in descs)


def _overwritable(
    program: Program, tiles: Sequence[Tile], joined: Sequence[Joined], slices: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """For each tile that may be a sum over a source, that operand: a residual that nobody reads later.

    Only the first post-op may be a sum in place, and never onto a value that the caller owns, that a view shares, that
    may be a slice of another result, or that the same primitive still reads.
    """
    last_reader: dict[str, str] = {}
    taken_over = {two.second.name: two.first for two in joined}
    kept = {value.name for value in (*program.inputs, *program.outputs)}
    for tile in tiles:
        names = [value.name for value in tile.sources.values()]
        late = [value.name for value in taken_over[tile.name].sources.values()] if tile.name in taken_over else []
        last_reader |= dict.fromkeys([*names, *late], tile.name)
        if tile.is_view:
            kept |= {*names, tile.dst.name}
        kept |= {tile.sources[operand].name for operand in slices.get(tile.name, ())}
    found = {}
    for tile in tiles:
        if not tile.followers or not tile.followers[0].use.is_sum:
            continue
        first = tile.followers[0]
        operand = first.operand(first.use.operand or "")
        value = tile.sources.get(operand)
        if value is None or value.name in kept or last_reader[value.name] != tile.name:
            continue
        if sum(source is value for source in tile.sources.values()) == 1:
            found[tile.name] = frozenset({operand})
    return found


def sliced_candidate(
    tile: Tile, layout: str | MemoryDesc, shared: frozenset[str], dtype: str, n_threads: int
) -> Candidate | None:
    """A tile's sources as slices of its result, if it is nothing but these, and they are dense in this layout.

    The producers of ``shared`` operands write their slices themselves; the others are copied there.
    """
    dst = wished_desc(layout, value_info(tile.dst, dtype))
    if tile.followers or not isinstance(dst, MemoryDesc) or not dst.is_dense:
        return None
    slices = tile.main.operator.slices(kernel_problem(tile.main, dtype, n_threads), dst)
    if slices is None or not has_reorder(dst.dtype) or any(nbytes % ALIGNMENT for _, nbytes in slices.values()):
        return None
    names = {operand: operand if operand in shared else f"slice_{operand}" for operand in slices}
    copied = [(operand, desc) for operand, (desc, _) in slices.items() if operand not in shared]
    try:
        steps = resolved(
            RecipeStep(dnnl.reorder(desc, desc, n_threads=n_threads), (("dst", names[operand]), ("src", operand)))
            for operand, desc in copied
        )
    except NOT_OFFERED:
        return None
    return Candidate(
        sources=tuple((operand, slices[operand][0]) for operand in tile.sources),
        dst=dst,
        steps=tuple(steps),
        temporaries=tuple((names[operand], desc) for operand, desc in copied),
        origin="slices of the result",
        slices=tuple((names[operand], nbytes) for operand, (_, nbytes) in slices.items()),
    )
