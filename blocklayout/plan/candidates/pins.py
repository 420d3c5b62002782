"""The user's own demands: formats that kernels are forced into, and formats that values must come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from blocklayout.errors import LayoutError, PlanError, closest
from blocklayout.ir import Fused, layout_name
from blocklayout.layout import MemoryDesc

if TYPE_CHECKING:
    from blocklayout.ir import Candidate, ValueLayout
    from blocklayout.plan.candidates.fuse import Group
    from blocklayout.plan.plan import Plan


def pins_by_group(groups: Sequence[Group], pins: Mapping[str, str]) -> dict[str, str]:
    """The format that each pinned group must write, by the group's name.

    Args:
        groups: All groups.
        pins: Formats by the name of a kernel, of a node of the model, or of a value that is computed.

    Raises:
        PlanError: A name that nothing has, or two formats for one group.
    """
    owners = _owners(groups)
    found: dict[str, str] = {}
    for name, layout in pins.items():
        if name not in owners:
            raise PlanError(f"pin {name}={layout}: no kernel, node or value of that name; {closest(name, owners)}")
        group = owners[name]
        if found.setdefault(group, layout) != layout:
            raise PlanError(f"pin {name}={layout}: {group} computes it, and is pinned to {found[group]} already")
    return found


def _owners(groups: Sequence[Group]) -> dict[str, str]:
    """The group behind every name a user may know: values first, so that nodes and kernels take precedence."""
    owners: dict[str, str] = {}
    for group in groups:
        kernels = (group.main, *(follower.kernel for follower in group.followers))
        owners |= {kernel.dst.name: group.name for kernel in kernels}
    for group in groups:
        owners |= dict.fromkeys((*group.nodes, *(f.kernel.name for f in group.followers), group.name), group.name)
    return owners


def with_format(group: Group, offered: Sequence[Candidate], layout: str) -> tuple[Candidate, ...]:
    """The candidates that write the format a group is pinned to: references only where nothing else does.

    Raises:
        PlanError: None does, or there is no such format.
    """
    found = [candidate for candidate in offered if is_in_format(candidate.dst, layout, f"pin {group.name}={layout}")]
    if not found:
        layouts = ", ".join(dict.fromkeys(layout_name(candidate.dst) for candidate in offered))
        raise PlanError(f"pin {group.name}={layout}: no primitive writes that here; offered are {layouts}")
    return tuple(candidate for candidate in found if not candidate.is_reference) or tuple(found)


def check_expectations(plan: Plan, expected: Mapping[str, str]) -> None:
    """Refuse a plan in which a value does not come in the format that was expected.

    Args:
        plan: What was planned.
        expected: Formats by the name of a value, or of the kernel or node that computes it.

    Raises:
        PlanError: It comes in another, or nothing has the name.
    """
    values = {name: choice.writes for choice in plan.choices for name in (*choice.nodes, choice.kernel)}
    values |= {name: name for name in plan.formats}
    for name, layout in expected.items():
        if name not in values:
            raise PlanError(f"expect {name}={layout}: no value, kernel or node of that name; {closest(name, values)}")
        desc = plan.format_of(values[name])
        if not is_in_format(desc, layout, f"expect {name}={layout}"):
            raise PlanError(f"expect {name}={layout}: it comes as {desc.named('src')}{_written_by(plan, values[name])}")


def is_in_format(desc: ValueLayout, layout: str, asked: str) -> bool:
    """Whether a descriptor has a format, whatever that is called.

    Args:
        desc: What is looked at.
        layout: A oneDNN tag, ``channels_last`` or ``channels_first``.
        asked: Begins the message if there is no such format.

    Raises:
        PlanError: There is no such format for these extents.
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
