"""``--plan FILE``: a plan made before, and what it settles of a model's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.feeds import feeds_of, open_model
from blocklayout.errors import InputError, LayoutError, PlanError
from blocklayout.layout import FormatTag
from blocklayout.plan import Plan
from blocklayout.plan.plan import FREE

if TYPE_CHECKING:
    import argparse

    import numpy as np

    from blocklayout.layout import MemoryDesc
    from blocklayout.model import Graph, OnnxModel


def open_with_plan(args: argparse.Namespace) -> tuple[OnnxModel | Graph, dict[str, np.ndarray], Plan | None]:
    """The model, what it is fed, and the plan of ``--plan``, whose extents and formats hold where none are given.

    Raises:
        PlanError: No such file, or no plan.
        BlockLayoutError: The model or what it is fed is wrong; also where only the plan says so.
    """
    plan = Plan.load(args.plan) if args.plan is not None else None
    taken = _take_over(args, plan) if plan is not None else []
    try:
        opened = open_model(args)
        return opened, feeds_of(opened, args), plan
    except (InputError, LayoutError) as error:
        if not taken:
            raise
        raise PlanError(f"{args.plan}, which says {', '.join(taken)}, does not fit: {error}") from error


def _take_over(args: argparse.Namespace, plan: Plan) -> list[str]:
    """Complete the options from the plan; what was added, for messages."""
    if not args.io_layout:
        args.io_layout = list(plan.io_layout)
    given = {name for name, _ in (*args.shape, *args.input)}
    formats = dict(args.io_layout)
    # A scalar has one element of rank 1, too; and 1 is what a free first extent becomes anyway.
    known = [(name, desc) for name, desc in plan.inputs if name not in given and desc.dims != (1,)]
    added = [(name, _extents(desc, formats.get(name))) for name, desc in known]
    args.shape = [*args.shape, *added]
    return [f"{name}={'x'.join(map(str, shape))}" for name, shape in added]


def _extents(desc: MemoryDesc, layout: str | None) -> tuple[int, ...]:
    """As an array in that format has them."""
    tag = FormatTag.parse(layout) if layout not in (None, FREE) else None
    if tag is None or tag.inner_blks or tag.ndims != desc.ndims:
        return desc.dims
    return tuple(desc.dims[dim] for dim in tag.order)
