"""Policies side by side on one model, each in turn with the first."""

from __future__ import annotations

import warnings
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from blocklayout.api import load
from blocklayout.commands.feeds import open_with_plan
from blocklayout.commands.options import load_options
from blocklayout.errors import BlockLayoutWarning, PlanError
from blocklayout.plan.portfolio import UNIFORM_POLICIES
from blocklayout.resource_limits import memory_nbytes
from blocklayout.runtime import ContentsNeededError
from blocklayout.show.comparison import Measurement, clearly_fastest
from blocklayout.show.plan_record import changes_record
from blocklayout.timing import Spread, time_in_turn

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from blocklayout.model import Graph, OnnxModel
    from blocklayout.plan import Plan
    from blocklayout.session import Session
    from blocklayout.show.output import Tell
    from blocklayout.show.report import Report
    from blocklayout.show.verdict import Verdict

    Feeds = Mapping[str, np.ndarray]

_MOST_OF_MEMORY = 1 / 4
"""The largest part of the machine's memory for the weights of all sessions that run in turn."""


def race_of(args: argparse.Namespace, tell: Tell, n_rounds: int, **options: Any) -> tuple[Race, Contender]:
    """The model with its options, as a command line has them, and the policy or saved plan that it asks for."""
    opened, feeds, saved = open_with_plan(args)
    race = Race(opened, feeds, args.threads, n_rounds, tell, load_options(args) | options)
    return race, Contender(args.layout, args.dtype, saved)


def plan_of(session: Session) -> Plan:
    """The plan of a session, for its numbers, or all steps of one in pieces; a PlanError where there are none."""
    if session.pieces is None:
        return session.plans[-1]
    if not session.plans:
        raise PlanError("nothing of this model is planned: numpy computes all of it; print(session.pieces)")
    first, *others = session.plans
    rows = [(plan.entries, plan.steps, plan.values, plan.exceptions) for plan in (first, *others)]
    entries, steps, values, exceptions = (tuple(chain.from_iterable(parts)) for parts in zip(*rows, strict=True))
    why = replace(first.rationale, exceptions=exceptions)
    return replace(first, entries=entries, steps=steps, values=values, rationale=why)


class Contender(Struct, frozen=True):
    """A policy, or a oneDNN tag, with the data type to compute in; of a saved plan both are its own if ``None``."""

    policy: str | None
    dtype: str | None = "f32"
    plan: Plan | None = None

    @property
    def name(self) -> str:
        """Its cells in the table."""
        return "saved plan" if self.plan is not None else f"{self.policy or 'auto'} {self.dtype or 'f32'}"


class Race(Struct, frozen=True):
    """One model, its feeds, and how it is timed; ``options`` are further arguments of :func:`~blocklayout.load`."""

    opened: OnnxModel | Graph
    feeds: Feeds
    n_threads: int | None
    n_rounds: int
    tell: Tell
    options: Mapping[str, Any] = field(default_factory=dict)

    def session(self, contender: Contender) -> Session:
        """A contender, loaded and planned."""
        shapes = {name: array.shape for name, array in self.feeds.items()}
        options = {**self.options, "shapes": shapes | self.options.get("shapes", {})}
        session = load(
            self.opened,
            dtype=contender.dtype,
            layout=contender.policy,
            threads=self.n_threads,
            plan=contender.plan,
            progress=lambda stage: self.tell(f"{contender.name}: {stage}"),
            **options,
        )
        try:
            session.prepare(shapes, self.feeds)  # where contents decide extents, extents alone make no plan
        except ContentsNeededError:
            if session.pieces is None:
                raise
        if session.pieces is not None:
            session.run(None, self.feeds)  # which plans the pieces whose extents data decide
        return session

    def _outputs(self, session: Session) -> list[np.ndarray]:
        """Row by row, blocked outputs too."""
        return [np.asarray(output) for output in session.run(None, self.feeds)]

    def run(self, contenders: Sequence[Contender]) -> tuple[Verdict, list[Measurement]]:
        """The verdict on the first by prices, and times of all; at any time the first and one other are in memory."""
        first = self.session(contenders[0])
        expected = self._outputs(first)
        firsts: list[list[float]] = []
        others: list[Measurement] = []
        for contender in contenders[1:]:
            session = self.session(contender)
            outputs = self._outputs(session)
            own, reference = self._times(contender, [session, first])
            firsts.append(reference)
            others.append(_measurement(session, own, Spread.of_ratios(own, reference), outputs, expected))
        if not firsts:
            firsts = self._times(contenders[0], [first])
        self._settle(first, contenders[0], others)
        pooled = [value for values in firsts for value in values]
        of_first = _measurement(first, pooled, Spread(1.0, 1.0, 1.0), expected, expected)
        return first.verdict(), [of_first, *others]

    def _settle(self, session: Session, contender: Contender, others: Sequence[Measurement]) -> None:
        """Have later loads take a policy that was faster than ``auto``, beyond the spread."""
        uniform = (each for each in others if each.plan.policy in UNIFORM_POLICIES)
        best = clearly_fastest(each for each in uniform if each.plan.dtype == contender.dtype)
        if contender.policy != "auto" or contender.plan is not None or best is None:
            return
        self.tell(f"{contender.name}: {best.plan.policy} is faster, and taken from now on")
        session.settle(self.feeds, best.plan.policy, best.ratio.median)

    def reports(self, contenders: Sequence[Contender]) -> list[Report]:
        """A report of each: medians of a run in every round, in turn; predicted times if there are no rounds.

        Where their weights would take much of the memory together, the first alone is run. Of a model that is cut into
        pieces there is the report of the first alone.
        """
        from blocklayout.show.profile import typical

        feeds = self.feeds if self.n_rounds else None
        with ExitStack() as opened:
            first = opened.enter_context(self.session(contenders[0]))
            own = first.report(feeds, n_runs=1)
            is_cut = first.pieces is not None
            weights_nbytes = own.record["plan"]["memory"]["weights_nbytes"]
            if is_cut or not self.n_rounds or weights_nbytes * len(contenders) > _MOST_OF_MEMORY * memory_nbytes():
                if self.n_rounds > 1:
                    self.tell(f"running {self.n_rounds} times")
                    own = first.report(feeds, n_runs=self.n_rounds)
                return [own, *(self._planned(each) for each in (() if is_cut else contenders[1:]))]
            with _quiet():
                sessions = [first, *(opened.enter_context(self.session(each)) for each in contenders[1:])]
            found = [own, *(session.report(feeds, n_runs=1) for session in sessions[1:])]
            self.tell(f"running {self.n_rounds} times each, in turn")
            rounds = [[each.profile(self.feeds, n_runs=1) for each in sessions] for _ in range(self.n_rounds)]
        return [each.timed(typical(runs)) for each, runs in zip(found, zip(*rounds, strict=True), strict=True)]

    def _planned(self, contender: Contender) -> Report:
        """The report of one that is not run."""
        with _quiet(), self.session(contender) as session:
            return session.report()

    def what_if(
        self, contender: Contender, session: Session, before: Mapping[str, Any], pins: Mapping[str, str], tell: Tell
    ) -> dict[str, Any]:
        """The record of the plan with these pins and no others, and the differences.

        Beside a report's record it has ``changes`` from the session's plan, whose record is ``before``, and
        ``in_turn``: nanoseconds before and after, medians over rounds in which both had their turn, and the spread of
        their ratios; ``null`` without runs.
        """
        n_runs = self.n_rounds
        with replace(self, options={**self.options, "pin": pins}, tell=tell).session(contender) as pinned:
            tell(f"running {n_runs} times, beside the plan before" if n_runs else "comparing")
            record = pinned.report(self.feeds if n_runs else None, n_runs=max(1, n_runs)).to_dict()
            in_turn = None
            if n_runs:
                runs = [partial(each.run, None, self.feeds) for each in (session, pinned)]
                own, others = time_in_turn(runs, n_runs)
                in_turn = {
                    "n_rounds": n_runs,
                    "before_ns": Spread.of(own).median,
                    "after_ns": Spread.of(others).median,
                    "ratio": to_builtins(Spread.of_ratios(others, own)),
                }
            return record | {"changes": changes_record(before, record["plan"]), "in_turn": in_turn}

    def _times(self, contender: Contender, sessions: Sequence[Session]) -> list[list[float]]:
        self.tell(f"{contender.name}: measuring, {self.n_rounds} rounds")
        return time_in_turn([partial(session.run, None, self.feeds) for session in sessions], self.n_rounds)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings: they are of plans that stand beside the one that was asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BlockLayoutWarning)
        yield


def largest_difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference between two sets of arrays, each over its own largest value; NaN is equal to NaN.

    Example:
        >>> largest_difference([np.array([1.0, 4.5, np.nan])], [np.array([1.0, 5.0, np.nan])])
        0.1
    """
    return max((_difference(a, b) for a, b in zip(outputs, expected, strict=True)), default=0.0)


def _difference(output: np.ndarray, expected: np.ndarray) -> float:
    wide, reference = output.astype(np.float64), expected.astype(np.float64)
    differs = (wide != reference) & ~(np.isnan(wide) & np.isnan(reference))
    if not differs.any():
        return 0.0
    with np.errstate(invalid="ignore"):  # infinity less infinity
        difference = float(np.abs(wide - reference)[differs].max())
    return difference / (float(np.fmax.reduce(np.abs(reference), axis=None)) or 1.0)


def _measurement(
    session: Session,
    times: Sequence[float],
    ratio: Spread,
    outputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> Measurement:
    names = [info.name for info in session.get_outputs()]
    return Measurement(
        plan=plan_of(session),
        plans=session.plans if session.pieces is not None else session.plans[-1:],
        time_ms=Spread.of(times).scaled(1e-6),
        ratio=ratio,
        difference=largest_difference(outputs, expected),
        outputs=dict(zip(names, outputs, strict=True)),
    )
