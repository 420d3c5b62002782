"""Formats that kernels are forced into, and formats that values must come in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.errors import LayoutError, PlanError
from blocklayout.ir import Fused, layout_name, preceding
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, Demand, ValueLayout
    from blocklayout.plan.candidates.tiles import Tile
    from blocklayout.plan.plan import Plan


def pins_by_tile(tiles: Sequence[Tile], pins: Sequence[Demand]) -> dict[str, Demand]:
    """The format that each pinned tile must write, by the tile's name; a PlanError for two formats of one tile."""
    owners = {kernel.name: tile.name for tile in tiles for kernel in tile.kernels}
    return preceding(pins, owners, "is pinned to")


def with_format(offered: Sequence[Candidate], pin: Demand) -> tuple[Candidate, ...]:
    """The candidates that write the demanded format, references only where nothing else does; else a PlanError."""
    found = [candidate for candidate in offered if is_in_format(candidate.dst, pin.wanted, str(pin))]
    if not found:
        layouts = ", ".join(dict.fromkeys(layout_name(candidate.dst) for candidate in offered))
        raise PlanError(f"{pin}: no primitive writes that here; offered are {layouts}")
    return tuple(candidate for candidate in found if not candidate.is_reference) or tuple(found)


def check_expectations(plan: Plan, expected: Sequence[Demand]) -> None:
    """Refuse a plan in which a value does not come in the format that was expected, by a PlanError."""
    for each in expected:
        desc = plan.format_of(each.name)
        if not is_in_format(desc, each.wanted, str(each)):
            raise PlanError(f"{each}: it comes as {desc.named('src')}{_written_by(plan, each.name)}")


def is_in_format(desc: ValueLayout, layout: str, asked: str) -> bool:
    """Whether a descriptor has a format, under any of its names.

    Raises:
        PlanError: There is no such format for these extents; the message begins with ``asked``.
    """
    if isinstance(desc, Fused):
        return False
    try:
        wanted = MemoryDesc(desc.dims, desc.dtype, layout)
    except LayoutError as error:
        raise PlanError(f"{asked}: {error}") from None
    return desc.physically_equal(wanted)


def _written_by(plan: Plan, value: str) -> str:
    """A value's writer, and the formats it could have written."""
    for choice in plan.choices:
        if value in (*choice.holds, choice.writes):
            what = f", written by {choice.kernel} ({', '.join(choice.chosen.impls) or 'a view'})"
            return f"{what}, which offers {', '.join(choice.layouts)}"
    return ""
