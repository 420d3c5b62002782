"""Policies side by side on one model: each in turn with the first."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field, to_builtins

from blocklayout.api import load
from blocklayout.commands.plan_facts import PlanFacts
from blocklayout.runtime.in_turn import Spread, time_in_turn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blocklayout.inspector.progress import Tell
    from blocklayout.model import Graph, OnnxModel
    from blocklayout.plan import Plan
    from blocklayout.runtime import Session

    Feeds = Mapping[str, np.ndarray]


class Contender(Struct, frozen=True):
    """A policy with the data type to compute in, or a plan made before.

    Attributes:
        policy: A policy or a oneDNN tag; if ``None``, that of ``plan``.
        dtype: Data type of the activations inside; if ``None``, that of ``plan``.
        plan: A saved one.
    """

    policy: str | None
    dtype: str | None = "f32"
    plan: Plan | None = None

    @property
    def name(self) -> str:
        """Its cells in the table."""
        return "saved plan" if self.plan is not None else f"{self.policy or 'auto'} {self.dtype or 'f32'}"


class Measurement(Struct, frozen=True):
    """Result of a policy.

    Attributes:
        facts: About its plan.
        time_ms: Milliseconds of one run, over the rounds.
        ratio: Its time over that of the first contender in the same round.
        difference: Largest difference from the first contender's outputs, over their largest value.
        outputs: By name.
    """

    facts: PlanFacts
    time_ms: Spread
    ratio: Spread
    difference: float
    outputs: Mapping[str, np.ndarray]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; without the outputs."""
        measured: dict[str, Any] = to_builtins(
            {"time_ms": self.time_ms, "ratio": self.ratio, "difference": self.difference}
        )
        return self.facts.to_dict() | measured


class Race(Struct, frozen=True):
    """One model, what it is fed, and how it is timed.

    Attributes:
        opened: The model.
        feeds: An array for each input.
        n_threads: Threads of a run; ``None`` for all that this process may use.
        n_rounds: How often each contender has its turn.
        tell: Told what is being done.
        options: Further arguments of :func:`~blocklayout.load`, the same for all.
    """

    opened: OnnxModel | Graph
    feeds: Feeds
    n_threads: int | None
    n_rounds: int
    tell: Tell
    options: Mapping[str, Any] = field(default_factory=dict)

    def session(self, contender: Contender) -> Session:
        """A contender, loaded and planned."""
        shapes = {name: array.shape for name, array in self.feeds.items()}
        session = load(
            self.opened,
            dtype=contender.dtype,
            layout=contender.policy,
            threads=self.n_threads,
            shapes=shapes,
            plan=contender.plan,
            progress=lambda stage: self.tell(f"{contender.name}: {stage}"),
            **self.options,
        )
        session.prepare(shapes, self.feeds)  # where contents decide extents, extents alone make no plan
        return session

    def _outputs(self, session: Session) -> list[np.ndarray]:
        """Row by row, also what comes in blocks."""
        return [np.asarray(output) for output in session.run(None, self.feeds)]

    def run(self, contenders: Sequence[Contender]) -> list[Measurement]:
        """Measure them all. At any time the first and one other are in memory.

        Raises:
            BlockLayoutError: One of them cannot be had.
        """
        first = self.session(contenders[0])
        expected = self._outputs(first)
        firsts, others = [], []
        for contender in contenders[1:]:
            session = self.session(contender)
            outputs = self._outputs(session)
            own, reference = self._times(contender, [session, first])
            firsts.append(reference)
            ratio = Spread.of(a / b for a, b in zip(own, reference, strict=True))
            others.append(_measurement(session, own, ratio, outputs, expected))
        if not firsts:
            firsts = self._times(contenders[0], [first])
        pooled = [value for values in firsts for value in values]
        return [_measurement(first, pooled, Spread(1.0, 1.0, 1.0), expected, expected), *others]

    def _times(self, contender: Contender, sessions: Sequence[Session]) -> list[list[float]]:
        self.tell(f"{contender.name}: measuring, {self.n_rounds} rounds")
        return time_in_turn([partial(session.run, None, self.feeds) for session in sessions], self.n_rounds)


def largest_difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference between two sets of arrays, each over its own largest value.

    Example:
        >>> largest_difference([np.array([1.0, 4.5])], [np.array([1.0, 5.0])])
        0.1
    """
    return max((_difference(a, b) for a, b in zip(outputs, expected, strict=True)), default=0.0)


def _difference(output: np.ndarray, expected: np.ndarray) -> float:
    if not expected.size:
        return 0.0
    wide, reference = output.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        difference = float(np.abs(wide - reference).max())
    return difference / (float(np.abs(reference).max()) or 1.0)


def _measurement(
    session: Session,
    times: Sequence[float],
    ratio: Spread,
    outputs: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
) -> Measurement:
    names = [info.name for info in session.get_outputs()]
    return Measurement(
        facts=PlanFacts.of(session.plan),
        time_ms=Spread.of(times).scaled(1e-6),
        ratio=ratio,
        difference=largest_difference(outputs, expected),
        outputs=dict(zip(names, outputs, strict=True)),
    )
