"""What a watch is told of a call: which bytes were moved for a layout's sake, and which layout was not kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blocklayout.eager.formats import is_plain
from blocklayout.watching import report

if TYPE_CHECKING:
    from blocklayout.eager.planning import Planned, Problem
    from blocklayout.layout import MemoryDesc
    from blocklayout.runtime.direct import Direct
    from blocklayout.watching import EventKind


@dataclass(frozen=True)
class _Told:
    """One thing to tell of each run; ``places`` are those of its times, all of the run's if empty."""

    kind: EventKind
    result: MemoryDesc | None
    nbytes: int
    reason: str
    places: tuple[int, ...] = ()


@dataclass(frozen=True)
class Telling:
    """What is told of a call.

    Attributes:
        operator: Its name.
        inputs: Its operands.
        events: Each once a run.
    """

    operator: str
    inputs: tuple[MemoryDesc, ...]
    events: tuple[_Told, ...]

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to tell."""
        return not self.events

    @property
    def always_warns(self) -> bool:
        """Whether the caller is warned although nobody watches: a layout is lost."""
        return any(event.kind == "loss" for event in self.events)

    def tell(self, times: Sequence[int]) -> None:
        """Tell it of a run.

        Args:
            times: Nanoseconds of each input's reorder, then of each step.

        Raises:
            WatchError: A watch raises.
        """
        for event in self.events:
            report(
                event.kind,
                self.operator,
                self.inputs,
                event.result,
                nbytes=event.nbytes,
                ns=sum(times[place] for place in event.places) if event.places else sum(times),
                reason=event.reason,
                always_warns=event.kind == "loss",
            )


def telling_of(problem: Problem, planned: Planned, direct: Direct | None) -> Telling:
    """What is to be told of each run of a plan."""
    descs = tuple(problem.descs.values())
    if direct is None:
        return Telling(problem.name, descs, ())
    return Telling(problem.name, descs, (*_entries(planned, direct), *_movers(planned), *_losses(planned, descs)))


def _entries(planned: Planned, direct: Direct) -> list[_Told]:
    told = []
    for place, entry in enumerate(planned.ready.plan.entries):
        if entry.input in direct.reorders:
            given, read = direct.reorders[entry.input]
            kind: EventKind = "reorder" if given.is_dense else "copy"
            reason = f"{entry.input} comes in {given.tag}, and {read.tag} is read"
            told.append(_Told(kind, read, given.nbytes + read.nbytes, reason, (place,)))
    return told


def _movers(planned: Planned) -> list[_Told]:
    plan = planned.ready.plan
    return [
        _Told("reorder", step.dst.desc, step.nbytes_moved, step.reason, (len(plan.entries) + number,))
        for number, step in enumerate(plan.steps)
        if step.is_reorder
    ]


def _losses(planned: Planned, descs: Sequence[MemoryDesc]) -> list[_Told]:
    """A layout that gives way to another, and one that nothing computes in."""
    found = [_Told("loss", each.desc, 0, each.reason) for each in planned.followed if each.reason]
    if found or all(map(is_plain, descs)):
        return found
    plan = planned.ready.plan
    results = {result.buffer for result in plan.results}
    returned = [step for step in plan.steps if step.is_reorder and step.dst.buffer in results]
    if not returned and not any(step.is_plain for step in plan.steps):
        return found
    through = dict(returned[0].operands)["src"].desc.named("src") if returned else "plain layout"
    wanted = planned.followed[0].desc
    reason = f"nothing fast computes it in {descs[0].tag}: it went through {through}, and back to {wanted.tag}"
    return [_Told("loss", wanted, plan_nbytes(planned), reason)]


def plan_nbytes(planned: Planned) -> int:
    """Bytes that the steps of a plan move for a layout's sake."""
    return sum(step.nbytes_moved for step in planned.ready.plan.steps if step.is_reorder)
