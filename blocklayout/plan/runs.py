"""Runs of kernels in one layout: where they end, and which operator ended them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from blocklayout.errors import LayoutLossWarning, PlanError
from blocklayout.ir import Fused, layout_name, readable_as
from blocklayout.plan.reasons import CALLER, dropped

if TYPE_CHECKING:
    from blocklayout.ir import ValueLayout
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan.plan import Plan

LossMode = Literal["warn", "raise"]
LOSS_MODES = ("warn", "raise")

PLAIN = "plain"
CHANNELS_LAST = "channels last"
BLOCKED = "blocked"


def family(desc: ValueLayout) -> str | None:
    """Plain, channels last or blocked; ``None`` where the layout makes no difference, or is another.

    Example:
        >>> from blocklayout import MemoryDesc
        >>> [family(MemoryDesc((1, 16, 4, 4), "f32", tag)) for tag in ("nchw", "nhwc", "nChw8c")]
        ['plain', 'channels last', 'blocked']
        >>> family(MemoryDesc((1, 16, 1, 1))) is None
        True
    """
    if isinstance(desc, Fused) or not 3 <= desc.ndims <= 5:
        return None
    is_plain, is_last = desc.is_contiguous(), desc.is_contiguous("channels_last")
    if desc.inner_blks:
        return None if desc.readable_as(type(desc)(desc.dims, desc.dtype)) else BLOCKED
    if is_plain == is_last:
        return None
    return PLAIN if is_plain else CHANNELS_LAST


class RunEnd(Struct, frozen=True):
    """A reader that does not go on in the layout of a run.

    Attributes:
        value: The value it reads, as the run wrote it.
        desc: The layout the run wrote it in.
        reader: The kernel, or ``the caller``.
        reads: The layout it reads the value in.
        writes: The layout of its result; ``None`` for the caller.
        offers: The layouts of its result that were on offer.
    """

    value: str
    desc: MemoryDesc
    reader: str
    reads: ValueLayout
    writes: ValueLayout | None
    offers: tuple[str, ...]

    @property
    def is_loss(self) -> bool:
        """Whether an operator drops to plain."""
        return self.writes is not None and PLAIN in (family(self.reads), family(self.writes))


class Run(Struct, frozen=True):
    """Kernels that hand each other values in one family of layouts.

    Attributes:
        family: ``blocked`` or ``channels last``.
        kernels: In order.
        ends: The readers with which it ends.
    """

    family: str
    kernels: tuple[str, ...]
    ends: tuple[RunEnd, ...]


def find_runs(plan: Plan) -> list[Run]:
    """The runs of a plan, in the order they begin."""
    writers = {choice.writes: choice.kernel for choice in plan.rationale.choices}
    families = {choice.kernel: family(choice.chosen.dst) for choice in plan.rationale.choices}
    heads: dict[str, str] = {}
    for choice in plan.rationale.choices:
        kind = families[choice.kernel]
        before = [
            heads[writers[value]]
            for value, reads in zip(choice.reads, choice.chosen.sources, strict=True)
            if value in writers
            and kind in (BLOCKED, CHANNELS_LAST)
            and families[writers[value]] == kind
            and readable_as(plan.formats[value], reads)
        ]
        heads[choice.kernel] = before[0] if before else choice.kernel
        for other in before[1:]:
            heads = {kernel: before[0] if head == other else head for kernel, head in heads.items()}
    return list(_runs(plan, heads, families))


def _runs(plan: Plan, heads: Mapping[str, str], families: Mapping[str, str | None]) -> Iterator[Run]:
    for head in dict.fromkeys(heads.values()):
        kind = families[head]
        if kind in (BLOCKED, CHANNELS_LAST):
            members = tuple(kernel for kernel, other in heads.items() if other == head)
            yield Run(kind, members, tuple(_ends(plan, set(members), heads, head)))


def _ends(plan: Plan, members: set[str], heads: Mapping[str, str], head: str) -> Iterator[RunEnd]:
    written = {choice.writes for choice in plan.rationale.choices if choice.kernel in members}
    for choice in plan.rationale.choices:
        for value, reads in zip(choice.reads, choice.chosen.sources, strict=True):
            if value in written and heads[choice.kernel] != head:
                yield RunEnd(value, plan.formats[value], choice.kernel, reads, choice.chosen.dst, choice.layouts)
    for result in plan.results:
        if result.name in written and result.desc is not None:
            yield RunEnd(result.name, plan.formats[result.name], CALLER, result.desc, None, ())


def check_losses(plan: Plan, mode: LossMode | None) -> None:
    """Warn of operators that drop a blocked or channels-last run to plain, or refuse the plan.

    Raises:
        PlanError: ``mode`` is neither, or is ``raise`` and a run is lost; the message names the operator, and
            its inputs' shapes, strides and types.
    """
    if mode is None:
        return
    if mode not in LOSS_MODES:
        raise PlanError(f"on_layout_loss={mode!r}: give one of {', '.join(LOSS_MODES)}, or nothing")
    losses = [(run, end) for run in find_runs(plan) for end in run.ends if end.is_loss]
    if not losses:
        return
    message = "; ".join(loss_text(plan, run, end) for run, end in losses)
    if mode == "raise":
        raise PlanError(message)
    warnings.warn(message, LayoutLossWarning, stacklevel=2)


def loss_text(plan: Plan, run: Run, end: RunEnd) -> str:
    """The operator with which a run ends, and its inputs."""
    choice = next(choice for choice in plan.rationale.choices if choice.kernel == end.reader)
    reads = [(value, plan.formats[value]) for value in choice.reads]
    inputs = ", ".join(f"{value} {desc} strides {desc.strides}" for value, desc in reads)
    return (
        f"{end.reader} ({choice.operator}) {dropped(len(run.kernels), run.family)}: "
        f"it is given {inputs}, reads {layout_name(end.reads)} and writes {layout_name(choice.chosen.dst)}"
    )
