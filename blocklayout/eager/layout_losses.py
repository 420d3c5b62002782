"""Reports of a call: which bytes are moved for a layout's sake, and which layout is not kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from blocklayout.ir.result_format import agree, is_plain
from blocklayout.layout_events import carry, report
from blocklayout.show.events import report_step_of

if TYPE_CHECKING:
    from blocklayout.eager.planning import Planned, Problem
    from blocklayout.layout import MemoryDesc
    from blocklayout.layout_events import EventKind
    from blocklayout.plan import Step


class _Report(Struct, frozen=True):
    """An event of each run; ``place`` is that of its time among a run's, if bytes move for it."""

    kind: EventKind
    result: MemoryDesc | None
    nbytes: int
    reason: str
    place: int | None = None


class Reports(Struct, frozen=True):
    """The events of each run of a plan.

    Attributes:
        operator: Its name.
        inputs: Its operands.
        events: In order.
        steps: The plan's.
        always_warns: Whether the caller is warned although nobody watches: a layout is lost.
    """

    operator: str
    inputs: tuple[MemoryDesc, ...]
    events: tuple[_Report, ...]
    steps: tuple[Step, ...]
    always_warns: bool

    def report(self, times: Sequence[int]) -> None:
        """Report a run to the watches around it.

        Args:
            times: Nanoseconds of each input's reorder, then of each step.

        Raises:
            WatchError: A watch raises.
        """
        carry(partial(self._report, times))()

    def _report(self, times: Sequence[int]) -> None:
        for event in self.events:
            report(
                event.kind,
                self.operator,
                self.inputs,
                event.result,
                nbytes=event.nbytes,
                ns=None if event.place is None else times[event.place],
                reason=event.reason,
                always_warns=event.kind == "loss",
            )
        for step, ns in zip(self.steps, times[len(times) - len(self.steps) :], strict=True):
            report_step_of(step, self.operator, ns)


def reports_of(problem: Problem, planned: Planned) -> Reports:
    """The events that a watch gets of each run of a plan."""
    descs = tuple(problem.descs.values())
    moves = [*_entries(problem, planned), *_steps(planned)]
    losses = [] if problem.memory_format else _losses(planned, descs[0], [move for move in moves if move.is_of_first])
    events = (*(move.report for move in moves), *losses)
    return Reports(problem.name, descs, events, planned.ready.plan.steps, always_warns=bool(losses))


class _Move(Struct, frozen=True):
    """Bytes that are brought from one layout to another."""

    src: MemoryDesc
    dst: MemoryDesc
    report: _Report
    is_of_first: bool
    """Whether they are the first operand's, or what is computed of it; not those of weights, say."""


def _entries(problem: Problem, planned: Planned) -> Iterator[_Move]:
    for place, entry in enumerate(planned.ready.plan.entries):
        src, dst = problem.descs[entry.input], entry.desc
        if not src.readable_as(dst):
            role = _role(entry.input, problem)
            reason = f"{entry.input} comes in {src.named(role)}, and {dst.named(role)} is read"
            kind: EventKind = "reorder" if src.is_dense else "copy"
            event = _Report(kind, dst, src.nbytes + dst.nbytes, reason, place)
            yield _Move(src, dst, event, entry.input == next(iter(problem.descs)))


def _role(name: str, problem: Problem) -> str:
    """In whose letters an operand's layout is named."""
    if name != "weights":
        return "src"
    return "grouped_weights" if problem.descs[name].ndims > problem.descs["x"].ndims else "weights"


def _steps(planned: Planned) -> Iterator[_Move]:
    """Those within the plan; what only gathers a part of a tensor is the operator's own work."""
    plan = planned.ready.plan
    for number, step in enumerate(plan.steps):
        operands = dict(step.operands)
        if step.is_reorder and operands["src"].desc.format_tag != operands["dst"].desc.format_tag:
            place = len(plan.entries) + number
            event = _Report("reorder", operands["dst"].desc, step.nbytes_moved, step.reason, place)
            yield _Move(operands["src"].desc, operands["dst"].desc, event, is_of_first=True)


def _losses(planned: Planned, given: MemoryDesc, moves: Sequence[_Move]) -> list[_Report]:
    """A layout that gives way to another, and one that nothing computes in."""
    found = [_Report("loss", each.desc, 0, each.reason) for each in planned.followed if each.reason]
    result = planned.followed[0].desc
    if found or is_plain(given):
        return found
    sizes = {given.n_elements, result.n_elements}
    passed = [desc for move in moves for desc in (move.src, move.dst) if desc.n_elements in sizes]
    others = [desc.named("src") for desc in passed if not (agree(given, desc) or agree(result, desc))]
    if not others and not any(step.is_plain for step in planned.ready.plan.steps):
        return found
    reason = f"nothing fast computes it in {given.tag}: it went through {others[0] if others else 'row-major'}"
    if is_plain(result):
        reason = f"its result is row-major, and {given.tag} is given up"
    return [_Report("loss", result, 0, reason)]
