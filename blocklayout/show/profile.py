"""Where the time of a run goes: step by step, tied to the model's own nodes."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from blocklayout.atomic_write import replacing
from blocklayout.errors import InputError
from blocklayout.ir import HostSpec
from blocklayout.show.plan_text import primitive_name, short, step_layouts
from blocklayout.show.text_table import table

if TYPE_CHECKING:
    from blocklayout.plan import Entry, Machine, Plan, Step

Kind = Literal["work", "reorder", "input", "output", "fallback", "outside"]
KINDS: tuple[Kind, ...] = ("work", "reorder", "input", "output", "fallback", "outside")


class StepProfile(Struct, frozen=True):
    """One step of a run.

    Attributes:
        name: The kernel it belongs to; for a reorder the one that demands it.
        kind: ``work``; ``reorder`` between kernels; ``input`` and ``output``, reorders at the border; ``fallback``, a
            reference implementation or ``onnx.reference``; ``outside``, what is done before and behind the steps.
        nodes: Names of the model's nodes it computes.
        primitive: The primitive with its post-ops.
        impl: The implementation's name.
        layouts: What it reads and writes.
        ns: Nanoseconds; the median over runs.
        estimated_ns: What the plan expected.
        nbytes: Bytes it reads and writes, padding included.
        flops: Arithmetic operations of products and sums, 2 for each multiply-add.
        ceiling_share: How much of what this machine could do it reaches, by arithmetic or by traffic, whichever is
            more; ``None`` where there is neither.
        number: Which of the plan's steps it is; ``None`` for an input's reorder, and what is outside of steps.
    """

    name: str
    kind: Kind
    nodes: tuple[str, ...]
    primitive: str
    impl: str
    layouts: str
    ns: float
    estimated_ns: float
    nbytes: int
    flops: int
    ceiling_share: float | None
    number: int | None = None

    @property
    def gflops(self) -> float:
        """Billions of arithmetic operations a second."""
        return self.flops / self.ns if self.ns else 0.0


class Profile(Struct, frozen=True, dict=True):
    """A typical run: medians over some runs.

    Attributes:
        model: The model's name.
        n_runs: How many; 0 where times are predicted.
        steps: In the order in which they run; what is outside of them comes first.
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
        """Share of the time that is spent in steps that reach more than a share of their ceiling.

        Args:
            ceiling_share: Of what this machine could do, such as 0.8.
        """
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

    def __str__(self) -> str:
        return "\n".join(line.rstrip() for line in _lines(self))

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
        try:
            with replacing(Path(path)) as beside:
                beside.write_text(json.dumps(self.to_chrome_trace()) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"the trace cannot be written to {path}: {error.strerror or error}") from error


def check_n_runs(n_runs: int) -> None:
    """Refuse what is no number of runs.

    Raises:
        InputError: The message says what would be right.
    """
    if type(n_runs) is not int or n_runs < 1:
        raise InputError(f"n_runs={n_runs!r}: give an integer of at least 1")


def profile_of(plan: Plan, runs: Sequence[Sequence[int]], wall: Sequence[int], machine: Machine) -> Profile:
    """The profile of some runs of a plan.

    Args:
        plan: What ran.
        runs: For each run the nanoseconds of each entry, then of each step.
        wall: For each run all of its nanoseconds.
        machine: Has the ceilings.
    """
    pieces: list[Entry | Step] = [*plan.entries, *plan.steps]
    outside = statistics.median(whole - sum(times) for whole, times in zip(wall, runs, strict=True))
    medians = [statistics.median(times) for times in zip(*runs, strict=True)]
    numbers = [*[None] * len(plan.entries), *range(len(plan.steps))]
    timed = zip(pieces, medians, numbers, strict=True)
    steps = [_piece(piece, ns, machine, number) for piece, ns, number in timed if ns]
    first = StepProfile(
        "-", "outside", (), "checking the feed, binding, arrays for results", "", "", outside, 0, 0, 0, None
    )
    return Profile(plan.model, len(runs), (first, *steps))


def predicted_profile(plan: Plan, machine: Machine) -> Profile:
    """The profile that a plan expects: predicted times in the place of measured ones, of no runs.

    Args:
        plan: The plan.
        machine: Has the ceilings.
    """
    entries = (_piece(entry, entry.cost_ns, machine, None) for entry in plan.entries if entry.cost_ns)
    steps = (_piece(step, step.cost_ns, machine, number) for number, step in enumerate(plan.steps) if step.cost_ns)
    return Profile(plan.model, 0, (*entries, *steps))


def profile_of_call(name: str, by: str, times: Sequence[int]) -> StepProfile:
    """A node that is computed between plans.

    Args:
        name: The node's.
        by: What computes it.
        times: Nanoseconds of some runs.
    """
    kind: Kind = "work" if by == "numpy" else "fallback"
    return StepProfile(name, kind, (name,), by, by, "", statistics.median(times), 0, 0, 0, None)


def typical(profiles: Sequence[Profile]) -> Profile:
    """One profile of several of the same plan: medians over all, step by step."""
    times: dict[tuple[object, ...], list[float]] = {}
    for step in chain.from_iterable(each.steps for each in profiles):
        times.setdefault(_identity(step), []).append(step.ns)
    steps = tuple(_with_ns(step, statistics.median(times[_identity(step)])) for step in profiles[0].steps)
    return Profile(profiles[0].model, sum(each.n_runs for each in profiles), steps)


def _identity(step: StepProfile) -> tuple[object, ...]:
    """The same for a step of two profiles of one plan; reorders of one input differ in their layouts."""
    return step.kind, step.number, step.name, step.layouts


def _with_ns(step: StepProfile, ns: float) -> StepProfile:
    share = None if step.ceiling_share is None else step.ceiling_share * step.ns / ns
    return replace(step, ns=ns, ceiling_share=share)


def _piece(piece: Entry | Step, ns: float, machine: Machine, number: int | None) -> StepProfile:
    from blocklayout.plan import Step

    if not isinstance(piece, Step):
        layouts = f"{short(piece.source)} -> {short(piece.desc)}"
        share = _share(0, "", "", piece.nbytes_moved / machine.reorder_bandwidth, ns, machine)
        return StepProfile(
            piece.input, "input", (), "reorder", "", layouts, ns, piece.cost_ns, piece.nbytes_moved, 0, share
        )
    flops = 2 * piece.multiply_adds()
    bandwidth = machine.reorder_bandwidth if piece.is_reorder else machine.bandwidth
    dtype = "f32" if isinstance(piece.spec, HostSpec) or not piece.spec.has("src") else piece.spec.desc("src").dtype
    return StepProfile(
        name=piece.kernel,
        kind=_kind(piece),
        nodes=piece.nodes,
        primitive=primitive_name(piece),
        impl=piece.spec.impl,
        layouts=step_layouts(piece),
        ns=ns,
        estimated_ns=piece.cost_ns,
        nbytes=piece.nbytes_moved,
        flops=flops,
        ceiling_share=_share(flops, piece.spec.impl, dtype, piece.nbytes_moved / bandwidth, ns, machine),
        number=number,
    )


def _kind(step: Step) -> Kind:
    if step.is_reorder:
        return "output" if step.readers == ("the caller",) else "reorder"
    return "fallback" if step.is_plain or step.is_reference else "work"


def _share(flops: int, impl: str, dtype: str, traffic_ns: float, ns: float, machine: Machine) -> float | None:
    arithmetic_ns = flops / machine.peak_flops(impl, dtype) if flops else 0.0
    return max(arithmetic_ns, traffic_ns) / ns or None


_HEADER = (
    "kernel",
    "kind",
    "primitive",
    "implementation",
    "layouts",
    "us",
    "share",
    "GFLOP/s",
    "GB/s",
    "of ceiling",
    "nodes",
)


def _rows(profile: Profile) -> list[tuple[str, ...]]:
    return [
        (
            step.name,
            step.kind,
            step.primitive,
            step.impl,
            step.layouts,
            f"{step.ns / 1000:.1f}",
            f"{step.ns / profile.ns:.1%}",
            f"{step.gflops:.1f}" if step.flops else "",
            f"{step.nbytes / step.ns:.1f}" if step.nbytes else "",
            "" if step.ceiling_share is None else f"{step.ceiling_share:.0%}",
            ", ".join(step.nodes),
        )
        for step in profile.steps
    ]


def _lines(profile: Profile) -> Iterator[str]:
    yield f"a typical run of {profile.model}, of {profile.n_runs}: {profile.ns / 1e6:.3f} ms"
    shares = (f"{kind} {ns / 1e6:.3f} ms ({ns / profile.ns:.1%})" for kind, ns in profile.by_kind.items() if ns)
    yield ", ".join(shares)
    expected = [step for step in profile.steps if step.estimated_ns]
    if profile.n_runs and expected:
        share = sum(step.ns for step in expected) / sum(step.estimated_ns for step in expected)
        yield f"in place, steps took {share:.2f} times as long as estimated"
    yield from table(_HEADER, _rows(profile))


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
