"""``blocklayout plan``: what a session of a model would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.options import add_command, add_model_options, load_options, named_layout
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
    parser.add_argument(
        "--why",
        action="store_true",
        help="what else each kernel could have been, what each reorder is good for, where runs of a layout end",
    )
    parser.add_argument(
        "--force",
        action="append",
        default=[],
        type=named_layout,
        metavar="NAME=nChw8c",
        help="what if: a format that the kernel, node or value of this name must come in",
    )
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        type=named_layout,
        metavar="NAME=channels_last",
        help="refuse the plan unless the kernel, node or value of this name comes in this format",
    )
    parser.add_argument(
        "--on-layout-loss",
        choices=("warn", "raise"),
        help="warn of, or refuse, an operator that drops a run of blocked or channels-last layouts to plain",
    )
    parser.add_argument("--layout", default="auto", metavar="POLICY", help="a policy or a oneDNN tag (default: auto)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="data type of the activations inside")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from blocklayout.commands.comparing import Contender, Race
    from blocklayout.commands.feeds import feeds_of, open_model
    from blocklayout.inspector.progress import shown_progress

    asked = {"pin": dict(args.force), "expect": dict(args.expect), "on_layout_loss": args.on_layout_loss}
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        race = Race(opened, feeds_of(opened, args), args.threads, 1, tell, load_options(args) | asked)
        plan = race.session(Contender(args.layout, args.dtype)).plan
    if args.json:
        say(plan.to_json())
    else:
        say(plan.explain() if args.why else str(plan))
