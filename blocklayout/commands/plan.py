"""``blocklayout plan``: what a session of a model would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.options import add_command, add_model_options
from blocklayout.commands.output import say

if TYPE_CHECKING:
    import argparse

    from blocklayout.commands.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "plan",
        run,
        "Show the plan of a model: its steps, their layouts and implementations, and why each reorder is there.",
    )
    add_model_options(parser)
    parser.add_argument("--layout", default="auto", metavar="POLICY", help="a policy or a oneDNN tag (default: auto)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="data type of the activations inside")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from blocklayout.commands.comparing import Contender, Race
    from blocklayout.commands.feeds import feeds_of, open_model
    from blocklayout.inspector.progress import shown_progress

    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        race = Race(opened, feeds_of(opened, args), args.threads, 1, tell, dict(args.io_layout))
        plan = race.session(Contender(args.layout, args.dtype)).plan
    say(plan.to_json() if args.json else str(plan))
