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
    return Telling(
        problem.name, descs, (*_entries(planned, direct), *_movers(planned), *_losses(planned, direct, descs))
    )


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


def _losses(planned: Planned, direct: Direct, descs: Sequence[MemoryDesc]) -> list[_Told]:
    """A layout that gives way to another, and one that nothing computes in."""
    found = [_Told("loss", each.desc, 0, each.reason) for each in planned.followed if each.reason]
    given, result = descs[0], planned.followed[0].desc
    if found or is_plain(given):
        return found
    moved = [desc for step in planned.ready.plan.steps if step.is_reorder for _, desc in step.spec.descs]
    moved += [read for came, read in direct.reorders.values() if came == given]
    sizes = {given.n_elements, result.n_elements}
    through = [desc.named("src") for desc in moved if desc.n_elements in sizes and not _alike(desc, given, result)]
    if not through and not any(step.is_plain for step in planned.ready.plan.steps):
        return found
    detour = f"nothing fast computes it in {given.tag}: it went through {through[0] if through else 'plain layout'}"
    return [_Told("loss", result, 0, f"{detour}, and {'is' if is_plain(result) else 'back to'} {result.tag}")]


def _alike(desc: MemoryDesc, *others: MemoryDesc) -> bool:
    return any(desc.dims == other.dims and desc.physically_equal(other.with_dtype(desc.dtype)) for other in others)
