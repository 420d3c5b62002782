"""``--plan FILE``: a plan made before, and what it settles of a model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.layout import FormatTag
from blocklayout.plan.saved import open_plan

if TYPE_CHECKING:
    import argparse

    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Plan


def open_plan_file(args: argparse.Namespace) -> Plan | None:
    """The plan that ``--plan`` names, if it does; extents and formats that are not given become the plan's.

    Raises:
        PlanError: No such file, or no plan.
        LayoutError: The plan names a format that does not exist.
    """
    if args.plan is None:
        return None
    plan = open_plan(args.plan)
    if not args.io_layout:
        args.io_layout = list(plan.io_layout)
    given = {name for name, _ in (*args.shape, *args.input)}
    formats = dict(args.io_layout)
    for name, desc in plan.inputs:
        # A scalar has one element of rank 1, too; and 1 is what a free first extent becomes anyway.
        if name not in given and desc.dims != (1,):
            args.shape.append((name, _extents(desc, formats.get(name))))
    return plan


def _extents(desc: MemoryDesc, layout: str | None) -> tuple[int, ...]:
    """As an array in that format has them."""
    tag = FormatTag.parse(layout) if layout is not None else None
    if tag is None or tag.inner_blks or tag.ndims != desc.ndims:
        return desc.dims
    return tuple(desc.dims[dim] for dim in tag.order)
