"""A page about a session: its plan, or those of its pieces, and where the time of a run goes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, to_builtins

from blocklayout.atomic_write import save_text
from blocklayout.dnnl.processor import cpu_name
from blocklayout.errors import InputError, PlanError
from blocklayout.show.page import Page, html_page, record_in
from blocklayout.show.plan_record import changes_record, plan_record
from blocklayout.show.profile import predicted_profile
from blocklayout.show.strips import POLICY_WORDS, strips_svg

if TYPE_CHECKING:
    from blocklayout.plan import Machine, Plan
    from blocklayout.show.profile import Profile

SUFFIXES = (".html", ".svg")

_OF_ALL: dict[str, Any] = {
    "title": None,
    "source": None,
    "shapes": [],
    "threads": None,
    "others": [],
    "pieces": [],
    "served": False,
}
"""Not in the record of a piece."""


class Report(Page, frozen=True):
    """A plan, its reasons and its times, as a page for people and as a record for machines.

    In a notebook it is shown as the page.

    Attributes:
        record: All that the page shows, as values that JSON can hold.
    """

    record: dict[str, Any]

    @classmethod
    def of(
        cls, plan: Plan, machine: Machine, profile: Profile | None = None, nodes: Sequence[dict[str, Any]] | None = None
    ) -> Report:
        """The report of a plan, held against a machine's ceilings, with its times and the model's nodes, if any."""
        dtypes = dict.fromkeys(("f32", plan.dtype))
        peaks = {dtype: machine.peak_flops("", dtype) for dtype in dtypes}
        of_plan = {
            "plan": plan_record(plan),
            "machine": to_builtins(machine) | {"peak_flops": peaks, "cpu": cpu_name()},
            "profile": None if profile is None else profile.to_dict(),
            "predicted": predicted_profile(plan, machine).to_dict() if profile is None else None,
            "nodes": nodes,
        }
        return cls(of_plan | _OF_ALL)

    def from_source(
        self, source: str | None, shapes: Mapping[str, Sequence[int]] | None = None, threads: int | None = None
    ) -> Report:
        """The same with its user's options, so that the page can name a command line; its title is the file's name.

        ``source`` is the model's path, or ``zoo:resnet50`` and its like.
        """
        given = [{"name": name, "dims": list(shape)} for name, shape in (shapes or {}).items()]
        return Report(self.record | {"title": title_of(source), "source": source, "shapes": given, "threads": threads})

    @property
    def title(self) -> str:
        """The name of the model's file, or else the one in it."""
        return str(self.record["title"] or self.record["plan"]["model"])

    @classmethod
    def of_pieces(cls, pieces: Sequence[tuple[dict[str, Any], Report | None, float | None]]) -> Report:
        """The report of a model that is cut, the first piece that has a plan shown first; a PlanError where none has.

        Args:
            pieces: In the order in which they run: ``name``, ``by``, ``reason`` and ``notes`` of each, the report of
                its plan, if it has one, and otherwise its nanoseconds, if it was run.
        """
        planned = [report for _, report, _ in pieces if report is not None]
        if not planned:
            raise PlanError("no piece of this model has a plan yet: give a feed, or run once")
        return cls(planned[0].record | {"pieces": [record for piece in pieces for record in _piece_records(*piece)]})

    def timed(self, profile: Profile) -> Report:
        """The same with the times of runs, in place of predicted ones."""
        return Report(self.record | {"profile": profile.to_dict(), "predicted": None})

    def beside(self, *others: Report) -> Report:
        """This one, with the plans of others, such as those of other policies, and how they differ from its own.

        Args:
            others: Of the same model and extents.
        """
        shown = [
            {name: other.record[name] for name in ("plan", "profile", "predicted")}
            | {"changes": changes_record(self.record["plan"], other.record["plan"])}
            for other in others
        ]
        return Report(self.record | {"others": [*self.record["others"], *shown]})

    def to_dict(self) -> dict[str, Any]:
        """Every number on the page, for JSON."""
        return self.record

    def to_html(self) -> str:
        return html_page("network", f"{self.title}: layouts", self.record | {"policies": POLICY_WORDS})

    def to_svg(self) -> str:
        """A picture of the run: a strip for each policy, its steps as wide as their times, coloured by layout."""
        return strips_svg(self.record)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, or the picture; a reader never sees half of it.

        Args:
            path: Ends in ``.html`` for the page, in ``.svg`` for the picture.

        Raises:
            InputError: The name ends in something else, or the file cannot be written.
        """
        target = Path(path)
        check_name(target)
        save_text(target, self.to_svg() if target.suffix == ".svg" else self.to_html())

    def __repr__(self) -> str:
        plan = self.record["plan"]
        return f"<Report of {plan['model']}: {len(plan['kernels'])} kernels, {len(plan['steps'])} steps>"


def title_of(source: str | None) -> str | None:
    """The name of a model's file without its ending, or that of a network of the zoo.

    Example:
        >>> title_of("models/resnet.v1.onnx"), title_of("zoo:resnet50"), title_of(None)
        ('resnet.v1', 'resnet50', None)
    """
    if source is None or source.startswith("zoo:"):
        return source and source.removeprefix("zoo:")
    return Path(source).stem


class _Kept(Struct):
    """Of the record of a page: the model that it was made for."""

    source: str | None


def check_same_model(path: Path, source: str | None) -> None:
    """Raise an InputError where a file is there already, unless it is the page of the same model."""
    if not path.exists():
        return
    try:
        kept = msgspec.json.decode(record_in(path.read_text(encoding="utf-8")), type=_Kept).source
        if kept == source or (kept and source and Path(kept).resolve() == Path(source).resolve()):
            return
    except (OSError, ValueError, msgspec.DecodeError):
        pass
    raise InputError(f"{path} is there already, and is no page of {source or 'this model'}: name another by -o FILE")


def check_name(path: Path) -> None:
    """Raise an InputError unless the name is that of a page or a picture."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: give a name that ends in {' or '.join(SUFFIXES)}")


def _piece_records(piece: dict[str, Any], report: Report | None, ns: float | None) -> list[dict[str, Any]]:
    """A piece as the page has it; one that is cut itself, as its own pieces."""
    if report is not None and report.record["pieces"]:
        return list(report.record["pieces"])
    shown = report and {name: value for name, value in report.record.items() if name not in _OF_ALL}
    return [piece | {"ns": ns, "report": shown}]
