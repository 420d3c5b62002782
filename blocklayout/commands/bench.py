"""``blocklayout bench``: layout policies side by side on one model, other runtimes, or how many runs a second."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout import dnnl
from blocklayout.commands.against.contest import Contest, check_agreement, contest_charts, contest_table, print_outcome
from blocklayout.commands.against.runtimes import chosen_runtimes
from blocklayout.commands.comparing import Contender, Race, plan_of
from blocklayout.commands.environment import command_text, describe_environment
from blocklayout.commands.feeds import feeds_of, n_images, open_model, save_source
from blocklayout.commands.options import add_details, add_model_options, load_options, policies, positive, words
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import InputError
from blocklayout.plan import POLICIES
from blocklayout.show.bench_page import BenchPage, Chart, Row, Table, add_html
from blocklayout.show.comparison import comparison_charts, comparison_table, exceptions_of, say_comparison
from blocklayout.show.output import print_table, say, say_json, shown_progress
from blocklayout.show.verdict import say_details, say_verdict
from blocklayout.show.words import counted, spread
from blocklayout.timing import Spread

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    import numpy as np

    from blocklayout.session import Session

    Feeds = Mapping[str, np.ndarray]
    _OfAPage = tuple[str, dict[str, Any], Sequence[Chart], Sequence[Table], Sequence[str]]

BASELINE = "auto"

TURN_S = 0.5
"""How long a turn of streams lasts, more or less."""

_STREAMS_HEADER = ("layout", "runs/s", "least-most", "images/s", "threads of a run")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "Times are medians over the rounds; ratios are those of times taken in the same round."
    add_model_options(parser)
    parser.add_argument(
        "--policies", "--layout", type=policies, metavar="NAME,NAME", help="by default all; or oneDNN tags"
    )
    parser.add_argument("--dtype", choices=PRIMITIVE_FLOATS, default="f32", help="data type of the activations inside")
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
    add_details(parser)
    add_html(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if (args.streams or args.against) and (args.steps or args.top or args.why):
        raise InputError("--steps, --top and --why are about layout policies: leave out --streams and --against")
    measure = _run_streams if args.streams else _run_against if args.against else _run_policies
    title, environment, charts, tables, notes = measure(args)
    if args.html:
        environment = {**environment, "n_rounds": args.rounds}
        BenchPage(title, command_text(), environment, charts, tables, notes).save(args.html)


def _run_against(args: argparse.Namespace) -> _OfAPage:
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
        say_json(record | to_builtins(outcome))
    else:
        print_outcome(
            f"{opened.name}, {args.dtype}, {args.rounds} rounds, {n_threads} threads, {environment['cpu']}", outcome
        )
        for disagreement in disagreements:
            say(disagreement)
    one = {opened.name: outcome}
    notes = [*disagreements, *(failure.reason for failure in outcome.failures)]
    title = f"{opened.name}, {args.dtype}, beside other runtimes"
    return title, environment, contest_charts(one), [contest_table(one)], notes


def _run_policies(args: argparse.Namespace) -> _OfAPage:
    policies = dict.fromkeys((BASELINE, *(args.policies or POLICIES)))
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        race = Race(opened, feeds_of(opened, args), args.threads, args.rounds, tell, load_options(args))
        measurements = race.run([Contender(policy, args.dtype) for policy in policies])
    environment = describe_environment(measurements[0].plan.n_threads)
    if args.json:
        rows = [measurement.to_dict() for measurement in measurements]
        say_json({"environment": environment, "n_rounds": args.rounds, "policies": rows})
    else:
        say_verdict(measurements[0].verdict.timed(measurements))
        say(
            f"\n{opened.name}: {counted(args.rounds, 'round')}, each policy in turn with {BASELINE}\n"
            f"{environment['n_threads']} threads, {environment['isa']}, oneDNN {environment['oneDNN']}, "
            f"{environment['cpu']}\n"
        )
        say_comparison(measurements)
        say_details(args, measurements[0].plans)
    title = f"{opened.name}, {args.dtype}, by layout policies"
    charts, tables = comparison_charts(measurements), [comparison_table(measurements)]
    return title, environment, charts, tables, exceptions_of(measurements)


class Throughput(Struct, frozen=True):
    """Runs a second with a policy, over the turns, and the threads of each run."""

    policy: str
    n_threads: int
    runs_per_s: Spread
    images_per_s: Spread


def _run_streams(args: argparse.Namespace) -> _OfAPage:
    if args.against:
        raise InputError("--streams is about ours alone: leave out --against")
    rows = []
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        feeds = feeds_of(opened, args)
        options = load_options(args) | {"streams": args.streams}
        race = Race(opened, feeds, args.threads, args.rounds, tell, options)
        for policy in args.policies or (BASELINE,):
            with race.session(Contender(policy, args.dtype)) as session:
                tell(f"{policy}: measuring, {args.rounds} rounds")
                runs_per_s = Spread.of(time_runs(session, feeds, args.rounds))
                n_threads = plan_of(session).n_threads
            rows.append(Throughput(policy, n_threads, runs_per_s, runs_per_s.scaled(n_images(feeds))))
    environment = describe_environment(rows[0].n_threads * args.streams)
    if args.json:
        record: dict[str, Any] = {"environment": environment, "n_streams": args.streams, "n_rounds": args.rounds}
        say_json(record | {"policies": [to_builtins(row) for row in rows]})
    else:
        title = f"{opened.name}, {args.dtype}, {args.streams} streams, {args.rounds} rounds, {environment['cpu']}"
        cells = [(r.policy, *spread(r.runs_per_s), spread(r.images_per_s)[0], str(r.n_threads)) for r in rows]
        print_table(_STREAMS_HEADER, cells, title=title)
        say("\nhow long a single run takes with all threads: without --streams")
    title = f"{opened.name}, {args.dtype}, {args.streams} runs at a time"
    runs = [Row(row.policy, row.runs_per_s) for row in rows]
    images = [Row(row.policy, row.images_per_s) for row in rows if row.images_per_s != row.runs_per_s]
    charts = [Chart("Runs a second", "runs/s", runs, better="more")]
    return title, environment, [*charts, Chart("Images a second", "images/s", images, better="more")], [], []


def time_runs(session: Session, feeds: Feeds, n_rounds: int) -> list[float]:
    """Runs a second, in each of some rounds: from when the first is submitted until the last is done."""
    _seconds(session, feeds, 2 * session.streams)
    n_runs = 4 * session.streams
    n_runs = max(n_runs, int(n_runs * TURN_S / _seconds(session, feeds, n_runs)))
    return [n_runs / _seconds(session, feeds, n_runs) for _ in range(n_rounds)]


def _seconds(session: Session, feeds: Feeds, n_runs: int) -> float:
    start = time.perf_counter()
    futures = [session.submit(feeds) for _ in range(n_runs)]
    wait(futures)
    took = time.perf_counter() - start
    futures[-1].result()  # where one is refused, all are
    return took
