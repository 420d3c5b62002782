"""``blocklayout profile``: where the time of a run goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.options import (
    add_command,
    add_model_options,
    add_plan_file,
    load_options,
    positive,
)
from blocklayout.commands.output import json_text, say
from blocklayout.errors import InputError

if TYPE_CHECKING:
    import argparse

    from blocklayout.commands.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "profile",
        run,
        "Time each step of a model: its implementation, layouts and bytes, and how near it is to what the machine can.",
    )
    add_model_options(parser)
    parser.add_argument("--layout", metavar="POLICY", help="a policy or a oneDNN tag (default: auto)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), help="data type of the activations inside (default: f32)")
    add_plan_file(parser)
    parser.add_argument("--runs", type=positive, default=20, metavar="N", help="take medians of so many (default: 20)")
    parser.add_argument("--trace", metavar="FILE", help="write a trace there that chrome://tracing and Perfetto show")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from blocklayout.commands.comparing import Contender, Race
    from blocklayout.commands.plan_file import open_with_plan
    from blocklayout.inspector.progress import shown_progress

    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened, feeds, saved = open_with_plan(args)
        race = Race(opened, feeds, args.threads, 1, tell, load_options(args))
        session = race.session(Contender(args.layout, args.dtype, saved))
        tell(f"running {args.runs} times")
        profile = session.profile(feeds, n_runs=args.runs)
    if args.trace is not None:
        try:
            profile.save_chrome_trace(args.trace)
        except OSError as error:
            raise InputError(f"--trace {args.trace}: {error.strerror or error}") from error
    say(json_text(profile.to_dict()) if args.json else str(profile))
