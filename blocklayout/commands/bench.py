"""``blocklayout bench``: layout policies side by side on one model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from blocklayout.commands.options import add_command, add_model_options, load_options, positive, words
from blocklayout.commands.output import say, say_json
from blocklayout.errors import InputError

if TYPE_CHECKING:
    import argparse

    from blocklayout.commands.options import Subparsers

BASELINE = "auto"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "bench",
        run,
        "Time layout policies on one model, each in turn with auto.",
        "Times are medians over the rounds; ratios are those of times taken in the same round.",
    )
    add_model_options(parser)
    parser.add_argument(
        "--policies", "--layout", type=words, metavar="NAME,NAME", help="by default all; or oneDNN tags"
    )
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="data type of the activations inside")
    parser.add_argument(
        "--against",
        type=words,
        metavar="all|NAME,NAME",
        help="compare with other runtimes instead: onnxruntime, openvino, torch, torch-inductor; all are those "
        "that are installed",
    )
    parser.add_argument(
        "--streams",
        type=positive,
        metavar="N",
        help="tell instead how many runs a second there are with N at a time, of auto unless --policies says more",
    )
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="measurements of each (default: 7)")


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if args.streams:
        _run_streams(args)
    elif args.against:
        _run_against(args)
    else:
        _run_policies(args)


def _run_streams(args: argparse.Namespace) -> None:
    from blocklayout.commands.throughput import run_streams

    if args.against:
        raise InputError("--streams is about ours alone: leave out --against")
    run_streams(args, args.policies or (BASELINE,))


def _run_against(args: argparse.Namespace) -> None:
    from blocklayout import dnnl
    from blocklayout.commands.against.contest import Contest, check_agreement
    from blocklayout.commands.against.report import print_outcome
    from blocklayout.commands.against.runtimes import chosen_runtimes
    from blocklayout.commands.environment import describe_environment
    from blocklayout.commands.feeds import feeds_of, open_model
    from blocklayout.commands.sources import save_source
    from blocklayout.inspector.progress import shown_progress

    if args.policies or args.io_layout or args.tune == "measure":
        raise InputError("--against compares runtimes with their default arguments: leave out --policies and the like")
    runtimes = chosen_runtimes(args.against, args.dtype)
    n_threads = args.threads or dnnl.default_threads()
    with shown_progress("reading the model", is_quiet=args.json) as tell, tempfile.TemporaryDirectory() as folder:
        opened = open_model(args)
        feeds = feeds_of(opened, args)
        path = Path(folder, "model.onnx")
        save_source(args.model, {name: array.shape for name, array in feeds.items()}, path)
        outcome = Contest(path, feeds, n_threads, args.dtype, args.rounds, tell).run(runtimes)
    environment, disagreements = describe_environment(n_threads), check_agreement(outcome.results, args.dtype)
    if args.json:
        record = {"environment": environment, "n_rounds": args.rounds, "disagree": disagreements}
        say_json(record | outcome.to_dict())
        return
    title = f"{opened.name}, {args.dtype}, {args.rounds} rounds, {n_threads} threads, {environment['cpu']}"
    print_outcome(title, outcome)
    for disagreement in disagreements:
        say(disagreement)


def _run_policies(args: argparse.Namespace) -> None:
    from blocklayout.commands.comparing import Contender, Race
    from blocklayout.commands.comparison_text import say_comparison
    from blocklayout.commands.environment import describe_environment
    from blocklayout.commands.feeds import feeds_of, open_model
    from blocklayout.inspector.progress import shown_progress
    from blocklayout.plan import POLICIES

    policies = dict.fromkeys((BASELINE, *(args.policies or POLICIES)))
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        race = Race(opened, feeds_of(opened, args), args.threads, args.rounds, tell, load_options(args))
        measurements = race.run([Contender(policy, args.dtype) for policy in policies])
    environment = describe_environment(measurements[0].facts.n_threads)
    if args.json:
        rows = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, "n_rounds": args.rounds, "policies": rows})
        return
    say(
        f"{opened.name}: {args.rounds} rounds, each policy in turn with {BASELINE}\n"
        f"{environment['n_threads']} threads, {environment['isa']}, oneDNN {environment['oneDNN']}, "
        f"{environment['cpu']}\n"
    )
    say_comparison(measurements)
