"""``blocklayout show``: a page about a model's layouts, reorders, memory and times; or a picture of its policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.feeds import open_with_plan
from blocklayout.commands.options import add_model_options, add_pins, add_plan_options, load_options, natural
from blocklayout.commands.output import say, say_json, shown_progress
from blocklayout.plan import POLICIES
from blocklayout.runtime.report import check_name

if TYPE_CHECKING:
    import argparse

    from blocklayout.plan import Plan
    from blocklayout.runtime.report import Report


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_model_options(parser)
    add_pins(parser)
    add_plan_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the page, or with .svg a picture of all policies' runs (default: the model's name with .html)",
    )
    parser.add_argument(
        "--runs",
        type=natural,
        default=5,
        metavar="N",
        help="take medians of so many for measured times; 0 for predicted times alone (default: 5)",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.output:
        check_name(Path(args.output))
    report = _report(args)
    if args.json:
        say_json(report.to_dict())
        return
    path = Path(args.output or f"{report.record['plan']['model']}.html")
    report.save(path)
    say(f"{path}, {path.stat().st_size / 1e6:.2g} MB: open it in a browser")


def _report(args: argparse.Namespace) -> Report:
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened, feeds, saved = open_with_plan(args)
        race = Race(opened, feeds, args.threads, args.runs, tell, load_options(args) | {"pin": dict(args.pin)})
        if args.output and args.output.endswith(".svg"):
            first, *others = race.reports(_contenders(args, saved))
            return first.beside(*others)
        with race.session(Contender(args.layout, args.dtype, saved)) as session:
            tell(f"running {args.runs} times")
            return session.report(feeds if args.runs else None, n_runs=max(1, args.runs))


def _contenders(args: argparse.Namespace, saved: Plan | None) -> list[Contender]:
    """The policy that was asked for, or the saved plan, and all others."""
    first = Contender(args.layout, args.dtype, saved)
    shown = (args.layout or "auto") if saved is None else saved.policy
    dtype = args.dtype or (None if saved is None else saved.dtype)
    return [first, *(Contender(policy, dtype) for policy in POLICIES if policy != shown)]
