"""``blocklayout bench``: layout policies side by side on one model, other runtimes, or how many runs a second."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout import dnnl
from blocklayout.commands.against.charts import contest_charts, contest_table
from blocklayout.commands.against.contest import Contest, check_agreement, print_outcome
from blocklayout.commands.against.runtimes import chosen_runtimes
from blocklayout.commands.bench_page import BenchPage, Cell, Chart, Row, Table, add_html
from blocklayout.commands.comparing import Contender, Race, exceptions, plan_of, say_comparison
from blocklayout.commands.environment import command_text, describe_environment
from blocklayout.commands.feeds import feeds_of, n_images, open_model, save_source
from blocklayout.commands.options import add_model_options, load_options, positive, words
from blocklayout.commands.output import print_table, say, say_json, shown_progress
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import InputError
from blocklayout.plan import POLICIES
from blocklayout.timing import Spread

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from blocklayout.commands.comparing import Measurement
    from blocklayout.runtime import Session

    Feeds = Mapping[str, np.ndarray]

BASELINE = "auto"

TURN_S = 0.5
"""How long a turn of streams lasts, more or less."""

_STREAMS_HEADER = ("layout", "runs/s", "least-most", "images/s", "threads of a run")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = "Times are medians over the rounds; ratios are those of times taken in the same round."
    add_model_options(parser)
    parser.add_argument(
        "--policies", "--layout", type=words, metavar="NAME,NAME", help="by default all; or oneDNN tags"
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
    add_html(parser)


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    measure = _run_streams if args.streams else _run_against if args.against else _run_policies
    page = measure(args)
    if args.html:
        page.save(args.html)


def _run_against(args: argparse.Namespace) -> BenchPage:
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
    else:
        print_outcome(
            f"{opened.name}, {args.dtype}, {args.rounds} rounds, {n_threads} threads, {environment['cpu']}", outcome
        )
        for disagreement in disagreements:
            say(disagreement)
    one = {opened.name: outcome}
    notes = [*disagreements, *(failure.reason for failure in outcome.failures)]
    title = f"{opened.name}, {args.dtype}, beside other runtimes"
    return _page(args, title, environment, contest_charts(one), [contest_table(one)], notes)


def _run_policies(args: argparse.Namespace) -> BenchPage:
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
        say(
            f"{opened.name}: {args.rounds} rounds, each policy in turn with {BASELINE}\n"
            f"{environment['n_threads']} threads, {environment['isa']}, oneDNN {environment['oneDNN']}, "
            f"{environment['cpu']}\n"
        )
        say_comparison(measurements)
    title = f"{opened.name}, {args.dtype}, by layout policies"
    charts, tables = _policy_charts(measurements), [_policy_table(measurements)]
    return _page(args, title, environment, charts, tables, exceptions(measurements))


class Throughput(Struct, frozen=True):
    """Result of a policy: threads of each run, and runs and images a second over the turns."""

    policy: str
    n_threads: int
    runs_per_s: Spread
    images_per_s: Spread


def _run_streams(args: argparse.Namespace) -> BenchPage:
    """Measure policies one after the other, and print their throughput."""
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
        print_table(_STREAMS_HEADER, map(_stream_cells, rows), title=title)
        say("\nhow long a single run takes with all threads: without --streams")
    title = f"{opened.name}, {args.dtype}, {args.streams} runs at a time"
    return _page(args, title, environment, _stream_charts(rows))


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


def _stream_cells(row: Throughput) -> tuple[str, ...]:
    runs, images = row.runs_per_s, row.images_per_s
    spread = f"{runs.low:,.1f}-{runs.high:,.1f}"
    return row.policy, f"{runs.median:,.1f}", spread, f"{images.median:,.1f}", str(row.n_threads)


def _page(
    args: argparse.Namespace,
    title: str,
    environment: Mapping[str, Any],
    charts: Sequence[Chart],
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
) -> BenchPage:
    return BenchPage(title, command_text(), {**environment, "n_rounds": args.rounds}, charts, tables, notes)


def _policy_charts(measurements: Sequence[Measurement]) -> list[Chart]:
    times = [Row(each.plan.policy, each.time_ms) for each in measurements]
    ratios = [Row(each.plan.policy, each.ratio) for each in measurements]
    first = times[0].name
    ratio_chart = Chart(f"Time over {first}'s in the same round", "", ratios, baseline=first)
    return [ratio_chart, Chart("Time of a run", "ms", times)]


def _policy_table(measurements: Sequence[Measurement]) -> Table:
    columns: dict[str, Callable[[Measurement], Cell]] = {
        "layout": lambda each: each.plan.policy,
        "chosen": lambda each: each.plan.chosen,
        "predicted ms": lambda each: each.plan.cost_ns / 1e6,
        "reorders": lambda each: len(each.plan.reorders),
        "KiB moved": lambda each: each.plan.reorder_nbytes / 1024,
        "KiB of padding": lambda each: each.plan.padding_nbytes / 1024,
        "references": lambda each: len(each.plan.reference_steps),
        "plain": lambda each: len(each.plan.plain_steps),
        "differs by": lambda each: each.difference,
    }
    return Table("Plans", [*columns], [[cell(each) for cell in columns.values()] for each in measurements])


def _stream_charts(rows: Sequence[Throughput]) -> list[Chart]:
    runs = [Row(row.policy, row.runs_per_s) for row in rows]
    images = [Row(row.policy, row.images_per_s) for row in rows if row.images_per_s != row.runs_per_s]
    return [
        Chart("Runs a second", "runs/s", runs, better="more"),
        Chart("Images a second", "images/s", images, better="more"),
    ]
