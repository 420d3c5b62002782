"""``blocklayout run``: a model once, or the embedded one in every policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.commands.options import add_command, add_model_options, add_plan_file, positive, words

if TYPE_CHECKING:
    import argparse

    from blocklayout.commands.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "run",
        run,
        "Run a model and say what came out, how long it took and what its layouts cost.",
        "Without MODEL, the embedded digit classifier is run on its held-out images in every layout policy.",
    )
    add_model_options(parser)
    parser.add_argument("--layout", type=words, metavar="POLICY[,POLICY]", help="policies or oneDNN tags to run with")
    parser.add_argument("--dtype", choices=("f32", "bf16"), help="data type of the activations inside")
    add_plan_file(parser)
    parser.add_argument("--rounds", type=positive, default=5, metavar="N", help="measurements of each (default: 5)")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.model is None:
        from blocklayout.commands.run_digits import run_digits

        run_digits(args)
    else:
        from blocklayout.commands.run_model import run_model

        run_model(args)
