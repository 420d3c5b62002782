"""``blocklayout plan``: what a session of a model would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.options import (
    add_command,
    add_model_options,
    add_named,
    add_plan_file,
    load_options,
    named_layout,
)
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
    add_named(
        parser,
        "--force",
        named_layout,
        "nChw8c",
        "what if: a format that the kernel, node or value of this name must come in",
    )
    add_named(
        parser,
        "--expect",
        named_layout,
        "channels_last",
        "refuse the plan unless the kernel, node or value of this name comes in this format",
    )
    parser.add_argument(
        "--on-layout-loss",
        choices=("warn", "raise"),
        help="warn of, or refuse, an operator that drops a run of blocked or channels-last layouts to plain",
    )
    parser.add_argument("--layout", metavar="POLICY", help="a policy or a oneDNN tag (default: auto)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), help="data type of the activations inside (default: f32)")
    parser.add_argument("--save", metavar="FILE", help="write the plan there, for --plan and bl.load(..., plan=FILE)")
    add_plan_file(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    from blocklayout.commands.comparing import Contender, Race
    from blocklayout.commands.plan_file import open_with_plan
    from blocklayout.inspector.progress import shown_progress

    asked = {"pin": dict(args.force), "expect": dict(args.expect), "on_layout_loss": args.on_layout_loss}
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened, feeds, saved = open_with_plan(args)
        race = Race(opened, feeds, args.threads, 1, tell, load_options(args) | asked)
        plan = race.session(Contender(args.layout, args.dtype, saved)).plan
    if args.save is not None:
        plan.save(args.save)
    if args.json:
        say(plan.to_json())
    else:
        say(plan.explain() if args.why else str(plan))
