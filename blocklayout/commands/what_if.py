"""A model's plan made anew with other pins, compared with the plan that it has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from blocklayout.show.plan_record import changes_record
from blocklayout.timing import Spread, time_in_turn

if TYPE_CHECKING:
    from blocklayout.commands.comparing import Contender, Race
    from blocklayout.runtime import Session


class WhatIf(Struct, frozen=True):
    """Makes the plan of a model anew, with pins.

    Attributes:
        race: The model, what it is fed, and options.
        contender: Policy and data type.
        session: Of the plan that others are held against.
        n_runs: As ``--runs``; 0 for predicted times alone.
    """

    race: Race
    contender: Contender
    session: Session
    n_runs: int

    def __call__(self, pins: Mapping[str, str]) -> dict[str, Any]:
        """The record of the plan with these pins and no others, and what they change.

        Beside what a report has, it has ``changes`` and ``in_turn``: nanoseconds of a run before and after, each the
        median over rounds in which both had their turn, and the spread of their ratios; ``null`` without runs.

        Args:
            pins: Formats by kernels, nodes or values.

        Raises:
            BlockLayoutError: A name that there is not, a format that nothing offers.
        """
        with replace(self.race, options={**self.race.options, "pin": pins}).session(self.contender) as session:
            record = session.report(self.race.feeds if self.n_runs else None, n_runs=max(1, self.n_runs)).to_dict()
            return record | {
                "changes": changes_record(self.session.plans[-1], session.plans[-1]),
                "in_turn": self._in_turn(session),
            }

    def _in_turn(self, session: Session) -> dict[str, Any] | None:
        if not self.n_runs:
            return None
        runs = [partial(each.run, None, self.race.feeds) for each in (self.session, session)]
        times: list[list[float]] = time_in_turn(runs, self.n_runs)
        before, after = times
        return {
            "n_rounds": self.n_runs,
            "before_ns": Spread.of(before).median,
            "after_ns": Spread.of(after).median,
            "ratio": to_builtins(Spread.of_ratios(after, before)),
        }
