"""``blocklayout profile``: where the time of a run goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.comparing import race_of
from blocklayout.commands.options import add_details, add_model_options, add_plan_options, positive
from blocklayout.errors import InputError
from blocklayout.show.output import say, say_json, shown_progress
from blocklayout.show.verdict import say_verdict

if TYPE_CHECKING:
    import argparse

N_SHOWN = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_model_options(parser)
    add_plan_options(parser)
    parser.add_argument("--runs", type=positive, default=20, metavar="N", help="take medians of so many (default: 20)")
    add_details(parser, "show so many steps, those that take longest (default: 10)")
    parser.add_argument("--trace", metavar="FILE", help="write a trace there that chrome://tracing and Perfetto show")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        race, contender = race_of(args, tell, 1)
        session = race.session(contender)
        tell(f"running {args.runs} times")
        profile = session.profile(race.feeds, n_runs=args.runs)
    if args.trace is not None:
        try:
            profile.save_chrome_trace(args.trace)
        except InputError as error:
            raise InputError(f"--trace: {error}") from error
    if args.json:
        say_json(profile.to_dict())
        return
    if session.plans:
        say_verdict(session.verdict(profile))
    say(f"\n{profile.text(None if args.steps else args.top or N_SHOWN)}")
    for plan in session.plans if args.why else ():
        say(f"\n{plan.explain()}")
