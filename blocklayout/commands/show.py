"""``blocklayout show``: a page about a model's layouts, reorders, memory and times; or a picture of its policies."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.commands.comparing import Contender, race_of
from blocklayout.commands.feeds import asked_shapes
from blocklayout.commands.options import add_model_options, add_pins, add_plan_options, natural, policies
from blocklayout.errors import InputError, PlanError
from blocklayout.plan import POLICIES
from blocklayout.show.output import file_name, put, say, say_json, say_page, shown_progress
from blocklayout.show.report import Report, check_name, check_same_model, title_of

if TYPE_CHECKING:
    import argparse

    from blocklayout.commands.comparing import Race


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_model_options(parser)
    add_pins(parser)
    add_plan_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the page, or with .svg a picture of all policies' runs (default: the model's file's name with .html)",
    )
    parser.add_argument(
        "--runs",
        type=natural,
        default=5,
        metavar="N",
        help="take medians of so many for measured times; 0 for predicted times alone (default: 5)",
    )
    parser.add_argument(
        "--policies",
        type=policies,
        default=(),
        metavar="all|NAME,NAME",
        help="make the plans of these policies, or oneDNN tags, as well, to be shown side by side (default: all); "
        "they run in turn unless their weights are too much for the memory together",
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve the page to browsers on this machine, and make the plan anew with pins that are chosen there",
    )
    parser.add_argument("--port", type=natural, metavar="N", help="of --serve (default: one that is free)")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.serve:
        _serve(args)
        return
    if args.port is not None:
        raise InputError("--port is for --serve")
    target = Path(args.output or file_name(title_of(args.model) or "digits", ".html"))
    _check(args, target)
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        race, contender = race_of(args, tell, args.runs, pin=dict(args.pin))
        report = _report(args, race, contender, f"-o {args.output}" if target.suffix == ".svg" else "")
    if args.json:
        say_json(report.to_dict())
        return
    report.save(target)
    say_page(target)


def _check(args: argparse.Namespace, target: Path) -> None:
    """Look at where to write before there is much work to lose."""
    if args.output is None:
        if not args.json:
            check_same_model(target, args.model)
        return
    check_name(target)
    if not target.parent.is_dir():
        raise InputError(f"-o {target}: there is no folder {target.parent}")


def _report(args: argparse.Namespace, race: Race, first: Contender, of_whole: str) -> Report:
    """The report of a policy, beside those of ``--policies``; of a model in pieces, alone.

    A PlanError of such a model where ``--policies`` is given, or another option ``of_whole`` models.
    """
    shown = (first.policy or "auto") if first.plan is None else first.plan.policy
    dtype = first.dtype or (None if first.plan is None else first.plan.dtype)
    names = POLICIES if args.policies in ((), ("all",)) else dict.fromkeys(args.policies)
    own, *others = race.reports([first, *(Contender(name, dtype) for name in names if name != shown)])
    n_pieces, option = len(own.record["pieces"]), "--policies" if args.policies else of_whole
    if n_pieces and option:
        raise PlanError(f"{option}: the model is cut into {n_pieces} pieces, and has no plan of the whole")
    return own.beside(*others).from_source(args.model, asked_shapes(args), args.threads)


def _serve(args: argparse.Namespace) -> None:
    from blocklayout.commands.serving import PlanServer  # http.server takes 30 ms

    for option, given in (("-o", args.output), ("--json", args.json), ("--plan", args.plan)):
        if given:
            raise InputError(f"--serve makes plans anew and shows them in a browser: leave out {option}")
    with shown_progress("reading the model") as tell:
        race, contender = race_of(args, tell, args.runs, pin=dict(args.pin))
        report = _report(args, race, contender, "--serve")
        session = race.session(contender)
    what_if = partial(race.what_if, contender, session, report.record["plan"])
    page = Report(report.record | {"served": True}).to_html()
    with session, PlanServer(args.port or 0, page, what_if) as server:
        put(f"{server.address}\nopen it in a browser on this machine; Ctrl-C ends it\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
