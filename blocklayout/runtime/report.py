"""A page about a session: its plans, and where the time of a run goes."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout.atomic_write import replacing
from blocklayout.dnnl.processor import cpu_name
from blocklayout.errors import InputError
from blocklayout.pages import html_page
from blocklayout.plan.report.record import plan_record

if TYPE_CHECKING:
    from blocklayout.plan import Machine, Plan
    from blocklayout.runtime.profile import Profile

SUFFIXES = (".html", ".svg")


class Report(Struct, frozen=True):
    """A plan, its reasons and its times, as a page for people and as a record for machines.

    In a notebook it is shown as the page.

    Attributes:
        record: All that the page shows, as values that JSON can hold.
    """

    record: dict[str, Any]

    @classmethod
    def of(cls, plan: Plan, machine: Machine, profile: Profile | None = None) -> Report:
        """The report of a plan.

        Args:
            plan: The plan.
            machine: Has the ceilings that steps are held against.
            profile: Times of its steps, if it was run.
        """
        record: dict[str, Any] = {
            "plan": plan_record(plan),
            "machine": _machine_record(plan, machine),
            "profile": None if profile is None else profile.to_dict(),
            "others": [],
        }
        return cls(record)

    def beside(self, *others: Report) -> Report:
        """This one, with the plans of others, such as those of other policies, to be shown beside its own.

        Args:
            others: Of the same model and extents.
        """
        shown = [{"plan": other.record["plan"], "profile": other.record["profile"]} for other in others]
        return Report(self.record | {"others": [*self.record["others"], *shown]})

    def to_dict(self) -> dict[str, Any]:
        """Every number on the page, for JSON."""
        return self.record

    def to_html(self) -> str:
        """The page: one document that loads nothing."""
        return html_page("network", f"{self.record['plan']['model']}: layouts", self.record)

    def to_svg(self) -> str:
        """A picture of the run: a strip for each policy, its steps as wide as their times, coloured by layout."""
        from blocklayout.pages.strips import strips_svg

        return strips_svg(self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, or the picture; a reader never sees half of it.

        Args:
            path: Ends in ``.html`` for the page, in ``.svg`` for the picture.

        Raises:
            InputError: The name ends in something else, or the file cannot be written.
        """
        target = Path(path)
        makers = {".html": self.to_html, ".svg": self.to_svg}
        check_name(target)
        try:
            with replacing(target) as beside:
                beside.write_text(makers[target.suffix](), encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"the page cannot be written to {target}: {reason}") from error

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.to_html())}" style="width:100%;height:44rem;border:0"></iframe>'

    def __repr__(self) -> str:
        plan = self.record["plan"]
        return f"<Report of {plan['model']}: {len(plan['kernels'])} kernels, {len(plan['steps'])} steps>"


def check_name(path: Path) -> None:
    """Refuse a name that does not say what to write.

    Raises:
        InputError: The message says what would be right.
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: give a name that ends in {' or '.join(SUFFIXES)}")


def _machine_record(plan: Plan, machine: Machine) -> dict[str, Any]:
    """The CPU's name, and ceilings: bytes and operations per nanosecond, of all threads together."""
    dtypes = dict.fromkeys(("f32", plan.dtype))
    record: dict[str, Any] = to_builtins(machine)
    peaks = {dtype: machine.peak_flops("", dtype) for dtype in dtypes}
    return record | {"peak_flops": peaks, "cpu": cpu_name()}
