"""A page about a session: its plans, and where the time of a run goes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout.atomic_write import replacing
from blocklayout.errors import InputError
from blocklayout.pages import html_page
from blocklayout.plan.report.record import plan_record
from blocklayout.runtime.profile import predicted_profile

if TYPE_CHECKING:
    from blocklayout.plan import Machine, Plan
    from blocklayout.runtime.profile import Profile


class Report(Struct, frozen=True):
    """A plan, its reasons and its times, as a page for people and as a record for machines.

    In a notebook it is shown as the page.

    Attributes:
        record: All that the page shows, as values that JSON can hold.
    """

    record: dict[str, Any]

    @classmethod
    def of(
        cls,
        plan: Plan,
        machine: Machine,
        profile: Profile | None = None,
        others: Sequence[Plan] = (),
        nodes: Sequence[dict[str, Any]] | None = None,
    ) -> Report:
        """The report of a plan.

        Args:
            plan: The plan.
            machine: Has the ceilings that steps are held against.
            profile: Times of its steps, if it was run.
            others: Plans of other policies to be shown beside it.
            nodes: Those of the model, if it is at hand.
        """
        record = {
            "plan": plan_record(plan),
            "machine": _machine_record(plan, machine),
            "profile": None if profile is None else profile.to_dict(),
            "others": [plan_record(other) for other in others],
            "predicted": predicted_profile(plan, machine).to_dict() if profile is None else None,
            "nodes": nodes,
            "source": None,
            "shapes": [],
            "threads": None,
        }
        return cls(record)

    def from_source(
        self, source: str | None, shapes: Mapping[str, Sequence[int]] | None = None, threads: int | None = None
    ) -> Report:
        """The same, with what its user asked for, so that the page can name a command that asks for more.

        Args:
            source: The model as a command line names it: a path, or ``zoo:resnet50`` and its like.
            shapes: Extents of inputs, where they were given.
            threads: Of a run, where they were given.
        """
        given = [{"name": name, "dims": list(shape)} for name, shape in (shapes or {}).items()]
        return Report(self.record | {"source": source, "shapes": given, "threads": threads})

    def to_dict(self) -> dict[str, Any]:
        """Every number on the page, for JSON."""
        return self.record

    def to_html(self) -> str:
        """The page: one document that loads nothing."""
        return html_page("network", f"{self.record['plan']['model']}: layouts", self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page; a reader never sees half of it.

        Raises:
            InputError: The file cannot be written.
        """
        target = Path(path)
        try:
            with replacing(target) as beside:
                beside.write_text(self.to_html(), encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"the page cannot be written to {target}: {reason}") from error

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.to_html())}" style="width:100%;height:44rem;border:0"></iframe>'

    def __repr__(self) -> str:
        plan = self.record["plan"]
        return f"<Report of {plan['model']}: {len(plan['kernels'])} kernels, {len(plan['steps'])} steps>"


def _machine_record(plan: Plan, machine: Machine) -> dict[str, Any]:
    """Ceilings: bytes and operations per nanosecond, of all threads together."""
    dtypes = dict.fromkeys(("f32", plan.dtype))
    record: dict[str, Any] = to_builtins(machine)
    return record | {"peak_flops": {dtype: machine.peak_flops("", dtype) for dtype in dtypes}}
