"""Where the time of a run goes: step by step, tied to the model's own nodes."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from blocklayout.atomic_write import save_text
from blocklayout.dnnl import Spec
from blocklayout.errors import InputError
from blocklayout.plan.reasons import CALLER
from blocklayout.show.names import layout, primitive_name, step_layouts
from blocklayout.show.words import counted, percent, scaled_time, table, us
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from blocklayout.plan import Entry, Machine, Plan, Step

Kind = Literal["work", "reorder", "input", "output", "fallback", "outside"]
KINDS: tuple[Kind, ...] = ("work", "reorder", "input", "output", "fallback", "outside")


class StepProfile(Struct, frozen=True):
    """One step of a run.

    Attributes:
        name: The kernel it belongs to; for a reorder the one that demands it.
        kind: ``work``; ``reorder`` between kernels; ``input`` and ``output``, reorders at the border; ``fallback``, a
            reference implementation or ``onnx.reference``; ``outside``, the time before and behind the steps.
        nodes: Names of the model's nodes it computes.
        primitive: The primitive with its post-ops.
        impl: The implementation's name.
        layouts: Those it reads and writes.
        ns: Nanoseconds; the median over runs.
        estimated_ns: The plan's estimate.
        nbytes: Bytes it reads and writes, padding included.
        flops: Arithmetic operations of products and sums, 2 for each multiply-add.
        ceiling_share: Share of this machine's ceiling that it reaches, by arithmetic or by traffic, whichever is
            more; ``None`` where there is neither.
        number: Which of the plan's steps it is; ``None`` for an input's reorder, and for the time outside of steps.
        low_ns: Nanoseconds of the run in which it took least.
        high_ns: Of the one in which it took most.
    """

    name: str
    kind: Kind
    nodes: tuple[str, ...]
    primitive: str
    impl: str
    layouts: str
    ns: float
    estimated_ns: float = 0
    nbytes: int = 0
    flops: int = 0
    ceiling_share: float | None = None
    number: int | None = None
    low_ns: float = 0
    high_ns: float = 0

    @property
    def gflops(self) -> float:
        """Billions of arithmetic operations a second."""
        return self.flops / self.ns if self.ns else 0.0


class Profile(Struct, frozen=True, dict=True):
    """A typical run: medians over some runs.

    Attributes:
        model: The model's name.
        n_runs: How many; 0 where times are predicted.
        steps: In the order in which they run; the time outside of them comes first.
    """

    model: str
    n_runs: int
    steps: tuple[StepProfile, ...]

    @property
    def ns(self) -> float:
        """Nanoseconds of all of it."""
        return sum(step.ns for step in self.steps)

    @cached_property
    def by_kind(self) -> dict[Kind, float]:
        """Nanoseconds of each kind of steps."""
        return {kind: sum(step.ns for step in self.steps if step.kind == kind) for kind in KINDS}

    def share_above(self, ceiling_share: float) -> float:
        """Share of the time that is spent in steps that reach more than a share of their ceiling, such as 0.8."""
        return self._share_of_time(step for step in self.steps if (step.ceiling_share or 0.0) > ceiling_share)

    @property
    def share_without_ceiling(self) -> float:
        """Share of the time in which no step runs whose arithmetic or traffic is known."""
        return self._share_of_time(step for step in self.steps if step.ceiling_share is None)

    @property
    def prediction(self) -> tuple[float, float] | None:
        """Measured times over predicted ones: their geometric mean, and how far they typically are from it.

        The second is a factor of at least 1, the geometric standard deviation. ``None`` where no step has both times.
        """
        timed = [step for step in self.steps if self.n_runs and step.ns > 0 and step.estimated_ns > 0]
        logs = [math.log(step.ns / step.estimated_ns) for step in timed]
        return (math.exp(statistics.fmean(logs)), math.exp(statistics.pstdev(logs))) if logs else None

    def _share_of_time(self, steps: Iterable[StepProfile]) -> float:
        return sum(step.ns for step in steps) / self.ns if self.ns else 0.0

    def text(self, top: int | None = None) -> str:
        """The steps as a table, those that take longest first; all of them, or the first few."""
        return "\n".join(_lines(self, top))

    def __str__(self) -> str:
        return self.text()

    def to_dict(self) -> dict[str, Any]:
        """For JSON; ``above_80`` is :meth:`share_above` of 0.8."""
        record: dict[str, Any] = to_builtins(self)
        return record | {
            "ns": self.ns,
            "by_kind": self.by_kind,
            "above_80": self.share_above(0.8),
            "without_ceiling": self.share_without_ceiling,
            "prediction": self.prediction,
        }

    def to_chrome_trace(self) -> dict[str, Any]:
        """The typical run as a trace that ``chrome://tracing`` and Perfetto show; times are in microseconds."""
        return {"traceEvents": list(_events(self)), "displayTimeUnit": "ns", "otherData": {"model": self.model}}

    def save_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_chrome_trace` as JSON; a reader never sees half of it.

        Raises:
            InputError: It cannot be written.
        """
        save_text(path, json.dumps(self.to_chrome_trace()) + "\n", "trace")


def check_n_runs(n_runs: int) -> None:
    """Raise an InputError unless this is a number of runs."""
    if type(n_runs) is not int or n_runs < 1:
        raise InputError(f"n_runs={n_runs!r}: give an integer of at least 1")


def profile_of(plan: Plan, runs: Sequence[Sequence[int]], wall: Sequence[int], machine: Machine) -> Profile:
    """The profile of some runs of a plan, held against the ceilings of a machine.

    ``runs`` has for each run the nanoseconds of each entry, then of each step, ``wall`` all of its nanoseconds.
    """
    outside = Spread.of(whole - sum(times) for whole, times in zip(wall, runs, strict=True))
    first = StepProfile(
        *("-", "outside", (), "checking the feed, binding, arrays for results", "", "", outside.median),
        low_ns=outside.low,
        high_ns=outside.high,
    )
    return Profile(plan.model, len(runs), (first, *_steps(plan, [*map(Spread.of, zip(*runs, strict=True))], machine)))


def predicted_profile(plan: Plan, machine: Machine) -> Profile:
    """The profile that a plan expects: predicted times in the place of measured ones, of no runs."""
    costs = [*(entry.cost_ns for entry in plan.entries), *(step.cost_ns for step in plan.steps)]
    return Profile(plan.model, 0, tuple(_steps(plan, [Spread(cost, cost, cost) for cost in costs], machine)))


def profile_of_call(name: str, by: str, times: Sequence[int]) -> StepProfile:
    """A node that is computed between plans, by ``numpy`` or ``onnx.reference``, in some nanoseconds."""
    took = Spread.of(times)
    kind: Kind = "work" if by == "numpy" else "fallback"
    return StepProfile(name, kind, (name,), by, by, "", took.median, low_ns=took.low, high_ns=took.high)


def typical(profiles: Sequence[Profile]) -> Profile:
    """One profile of several of the same plan: medians over all, step by step."""
    found: dict[tuple[object, ...], list[StepProfile]] = {}
    for step in chain.from_iterable(each.steps for each in profiles):
        found.setdefault(_identity(step), []).append(step)
    steps = []
    for step in profiles[0].steps:
        same = found[_identity(step)]
        ns = statistics.median(each.ns for each in same)
        share = None if step.ceiling_share is None else step.ceiling_share * step.ns / ns
        low_ns, high_ns = min(each.low_ns for each in same), max(each.high_ns for each in same)
        steps.append(replace(step, ns=ns, ceiling_share=share, low_ns=low_ns, high_ns=high_ns))
    return Profile(profiles[0].model, sum(each.n_runs for each in profiles), tuple(steps))


def _identity(step: StepProfile) -> tuple[object, ...]:
    """The same for a step of two profiles of one plan; reorders of one input differ in their layouts."""
    return step.kind, step.number, step.name, step.layouts


def _steps(plan: Plan, times: Sequence[Spread], machine: Machine) -> Iterator[StepProfile]:
    """Entries, then steps, that take any time."""
    parts = [(_of_entry(entry), entry.nbytes_moved / machine.reorder_bandwidth) for entry in plan.entries]
    parts += [(_of_step(number, step), _least_ns(step, machine)) for number, step in enumerate(plan.steps)]
    for (part, least_ns), took in zip(parts, times, strict=True):
        if ns := took.median:
            share = least_ns / ns or None
            yield replace(part, ns=ns, ceiling_share=share, low_ns=took.low, high_ns=took.high)


def _of_entry(entry: Entry) -> StepProfile:
    layouts = f"{layout(entry.source)} -> {layout(entry.desc)}"
    return StepProfile(entry.input, "input", (), "reorder", "", layouts, 0.0, entry.cost_ns, entry.nbytes_moved)


def _of_step(number: int, step: Step) -> StepProfile:
    return StepProfile(
        *(step.kernel, _kind(step), step.nodes, primitive_name(step), step.spec.impl, step_layouts(step)),
        *(0.0, step.cost_ns, step.nbytes_moved, 2 * step.multiply_adds()),
        number=number,
    )


def _kind(step: Step) -> Kind:
    if step.is_reorder:
        return "output" if step.readers == (CALLER,) else "reorder"
    return "fallback" if step.is_plain or step.is_reference else "work"


def _least_ns(step: Step, machine: Machine) -> float:
    """Nanoseconds that this machine takes at best, by arithmetic or by traffic, whichever is more."""
    traffic_ns = step.nbytes_moved / (machine.reorder_bandwidth if step.is_reorder else machine.bandwidth)
    flops = 2 * step.multiply_adds()
    if not flops:
        return traffic_ns
    dtype = step.spec.desc("src").dtype if isinstance(step.spec, Spec) and step.spec.has("src") else "f32"
    return max(flops / machine.peak_flops(step.spec.impl, dtype), traffic_ns)


_HEADER = ("kernel", "kind", "computed by", "layouts", "us", "share", "GFLOP/s", "GB/s", "of ceiling", "nodes")


def _row(step: StepProfile, whole_ns: float) -> tuple[str, ...]:
    how = "\n".join(dict.fromkeys(filter(None, (step.primitive, step.impl))))
    return (
        *(step.name, step.kind, how, step.layouts, us(step.ns), percent(step.ns / whole_ns)),
        f"{step.gflops:.1f}" if step.flops else "",
        f"{step.nbytes / step.ns:.1f}" if step.nbytes else "",
        "" if step.ceiling_share is None else percent(step.ceiling_share),
        ", ".join(step.nodes),
    )


def _lines(profile: Profile, top: int | None) -> Iterator[str]:
    yield f"a typical run of {profile.model}, of {profile.n_runs}: {scaled_time(profile.ns)}"
    kinds = [(kind, ns) for kind, ns in profile.by_kind.items() if ns]
    yield ", ".join(f"{kind} {scaled_time(ns)} ({percent(ns / profile.ns)})" for kind, ns in kinds)
    expected = [step for step in profile.steps if step.estimated_ns]
    if profile.n_runs and expected:
        share = sum(step.ns for step in expected) / sum(step.estimated_ns for step in expected)
        yield f"in place, steps took {share:.2f} times as long as estimated"
    steps = sorted(profile.steps, key=attrgetter("ns"), reverse=True)
    rows = [_row(step, profile.ns) for step in steps[:top]]
    yield from table(_HEADER, rows, numbers=range(4, 9), spare=(9, 7, 6, 1))
    if others := steps[len(rows) :]:
        rest_ns = sum(step.ns for step in others)
        yield f"and {counted(len(others), 'step')} more: {scaled_time(rest_ns)} ({percent(rest_ns / profile.ns)})"


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    begin_ns = 0.0
    for step in profile.steps:
        args = {name: value for name, value in to_builtins(step).items() if name not in ("name", "kind", "ns")}
        yield {
            "name": step.name if step.kind != "outside" else step.primitive,
            "cat": step.kind,
            "ph": "X",
            "ts": begin_ns / 1000,
            "dur": step.ns / 1000,
            "pid": 0,
            "tid": 0,
            "args": args,
        }
        begin_ns += step.ns
