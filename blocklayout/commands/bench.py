"""``blocklayout bench``: layout policies side by side on one model, other runtimes, or how many runs a second."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, to_builtins

from blocklayout import dnnl
from blocklayout.commands.against.contest import Contest, check_agreement, contest_charts, contest_table, print_outcome
from blocklayout.commands.against.runtimes import chosen_runtimes
from blocklayout.commands.comparing import Contender, Race, plan_of
from blocklayout.commands.environment import command_text, describe_environment
from blocklayout.commands.feeds import feeds_of, model_named, n_images, open_model
from blocklayout.commands.options import add_details, add_model_options, load_options, policies, positive, words
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import InputError
from blocklayout.loading.options import positive as positive_number
from blocklayout.loading.options import silent
from blocklayout.loading.zoo_names import source_named
from blocklayout.model import open_model as open_source
from blocklayout.model import write
from blocklayout.plan import POLICIES
from blocklayout.plan.policies import checked_policy
from blocklayout.plan.request import computed_dtype
from blocklayout.show.bench_page import BenchPage, Chart, Row, add_html
from blocklayout.show.comparison import Measurement, comparison_charts, comparison_table, exceptions_of, say_comparison
from blocklayout.show.output import kept_output, print_table, put, say, say_json, shown_progress
from blocklayout.show.verdict import say_details, say_verdict
from blocklayout.show.words import counted, spread
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike

    from blocklayout.api import Source
    from blocklayout.commands.against.contest import Outcome
    from blocklayout.commands.against.runtimes import PeerName, Runtime
    from blocklayout.plan.policies import PolicyName
    from blocklayout.plan.request import ComputedDtype
    from blocklayout.session import Session

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


class Benchmark(BenchPage, frozen=True):
    """Measurements of one model: printed as ``blocklayout bench`` prints them, and a page of charts in a notebook.

    Attributes:
        records: One for each policy or runtime: its times in milliseconds, ratios with their spread, and more.
        text: As the command prints it.
    """

    records: Sequence[Mapping[str, Any]] = ()
    text: str = ""

    def __str__(self) -> str:
        """As the command prints it."""
        return self.text

    def frame(self) -> Any:
        """The records as a pandas DataFrame, with a column for each number; an ImportError without pandas."""
        import pandas as pd  # type: ignore[import-untyped,unused-ignore]  # where a user has it

        return pd.json_normalize([dict(record) for record in self.records])


def bench(
    model: Source,
    feed: Feeds | None = None,
    *,
    against: PeerName | Sequence[PeerName] | None = None,
    layouts: Sequence[PolicyName | str] = POLICIES,
    dtype: ComputedDtype | DTypeLike = "f32",
    threads: int | None = None,
    rounds: int = 7,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Benchmark:
    """Time a model in several layouts, or beside other runtimes: each in turn with the first.

    Args:
        model: An ONNX file, its bytes, a ``ModelProto``, a Builder, or ``zoo:NAME``.
        feed: Arrays by input; others are random, of the extents that the model or ``shapes`` state.
        against: Other runtimes in place of layouts: ``onnxruntime``, ``openvino``, ``torch``, ``torch-inductor``, or
            ``all`` that are installed. Each runs in a process of its own, with its default arguments.
        layouts: Policies and oneDNN tags, as ``layout`` of :func:`blocklayout.load`; ``auto`` is always the first.
        dtype: Data type of the activations inside.
        threads: By default as many as this process may use.
        rounds: Measurements of each.
        shapes: Extents of inputs that the model leaves free.

    Returns:
        The measurements: to print, to save or show as a page, or as ``records`` and ``frame()``.

    Raises:
        InputError: An argument is wrong, or a runtime is not installed.
        ModelError: The model cannot be read.
        PlanError: No such policy or data type.
        UnsupportedError: It cannot run here.

    Example:
        >>> from blocklayout.zoo import digits
        >>> found = bench(digits.model_bytes(), layouts=["nhwc"], rounds=1)
        >>> [record["policy"] for record in found.records]
        ['auto', 'nhwc']
    """
    dtype, arrays = computed_dtype(dtype), {name: np.asarray(array) for name, array in (feed or {}).items()}
    positive_number("rounds", rounds)
    extents = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    source: Any = model.SerializeToString() if hasattr(model, "SerializeToString") else model
    source = source_named(source, extents | {name: array.shape for name, array in arrays.items()})
    opened = open_source(source)
    feeds = feeds_of(opened, argparse.Namespace(input=(), shape=extents.items(), io_layout=()), arrays)
    if against is None:
        race = Race(opened, feeds, threads, rounds, silent)
        return _of_policies(race, [checked_policy(each) for each in layouts], dtype)[0]
    runtimes = chosen_runtimes([against] if isinstance(against, str) else against, dtype)
    with tempfile.TemporaryDirectory() as folder:
        contest = Contest(_file_of(source, folder), feeds, threads or dnnl.default_threads(), dtype, rounds, silent)
        return _of_runtimes(opened.name, contest, runtimes)[0]


def run(args: argparse.Namespace) -> None:
    """Run the command."""
    if (args.streams or args.against) and (args.steps or args.top or args.why):
        raise InputError("--steps, --top and --why are about layout policies: leave out --streams and --against")
    measure = _run_streams if args.streams else _run_against if args.against else _run_policies
    found = measure(args)
    if args.html:
        found.save(args.html)


def _run_against(args: argparse.Namespace) -> Benchmark:
    if args.policies or args.io_layout or args.tune == "measure":
        raise InputError("--against compares runtimes with their default arguments: leave out --policies and the like")
    runtimes = chosen_runtimes(args.against, args.dtype)
    n_threads = args.threads or dnnl.default_threads()
    with shown_progress("reading the model", is_quiet=args.json) as tell, tempfile.TemporaryDirectory() as folder:
        opened = open_model(args)
        feeds = feeds_of(opened, args)
        source = model_named(args.model, {name: array.shape for name, array in feeds.items()})
        contest = Contest(_file_of(source, folder), feeds, n_threads, args.dtype, args.rounds, tell)
        found, outcome, disagreements = _of_runtimes(opened.name, contest, runtimes)
    if args.json:
        record = {"environment": found.environment, "n_rounds": args.rounds, "disagree": disagreements}
        say_json(record | to_builtins(outcome))
    else:
        put(found.text)
    return found


def _file_of(source: Any, folder: str) -> Path:
    """An ONNX file of a model: its own, or one that is written into the folder."""
    if isinstance(source, str | os.PathLike):
        return Path(source)
    path = Path(folder, "model.onnx")
    if isinstance(source, bytes):
        path.write_bytes(source)
    else:
        write(source, path)
    return path


def _of_runtimes(name: str, contest: Contest, runtimes: Sequence[Runtime]) -> tuple[Benchmark, Outcome, Sequence[str]]:
    outcome = contest.run(runtimes)
    environment = describe_environment(contest.n_threads)
    disagreements = check_agreement(outcome.results, contest.dtype)
    with kept_output() as texts:
        rounds, threads = f"{contest.n_rounds} rounds", f"{contest.n_threads} threads"
        print_outcome(f"{name}, {contest.dtype}, {rounds}, {threads}, {environment['cpu']}", outcome)
        for disagreement in disagreements:
            say(disagreement)
    one = {name: outcome}
    found = Benchmark(
        f"{name}, {contest.dtype}, beside other runtimes",
        command_text(),
        environment | {"n_rounds": contest.n_rounds},
        contest_charts(one),
        [contest_table(one)],
        [*disagreements, *(failure.reason for failure in outcome.failures)],
        to_builtins(outcome.results),
        "".join(texts),
    )
    return found, outcome, disagreements


def _run_policies(args: argparse.Namespace) -> Benchmark:
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        race = Race(opened, feeds_of(opened, args), args.threads, args.rounds, tell, load_options(args))
        found, measurements = _of_policies(race, args.policies or POLICIES, args.dtype)
    if args.json:
        say_json({"environment": found.environment, "n_rounds": args.rounds, "policies": found.records})
    else:
        put(found.text)
        say_details(args, measurements[0].plans)
    return found


def _of_policies(race: Race, policies: Sequence[str], dtype: str) -> tuple[Benchmark, Sequence[Measurement]]:
    name = race.opened.name
    verdict, measurements = race.run([Contender(policy, dtype) for policy in dict.fromkeys((BASELINE, *policies))])
    environment = describe_environment(measurements[0].plan.n_threads)
    with kept_output() as texts:
        say_verdict(verdict.timed(measurements))
        say(
            f"\n{name}: {counted(race.n_rounds, 'round')}, each policy in turn with {BASELINE}\n"
            f"{environment['n_threads']} threads, {environment['isa']}, oneDNN {environment['oneDNN']}, "
            f"{environment['cpu']}\n"
        )
        say_comparison(measurements)
    found = Benchmark(
        f"{name}, {dtype}, by layout policies",
        command_text(),
        environment | {"n_rounds": race.n_rounds},
        comparison_charts(measurements),
        [comparison_table(measurements)],
        exceptions_of(measurements),
        [measurement.to_dict() for measurement in measurements],
        "".join(texts),
    )
    return found, measurements


class Throughput(Struct, frozen=True):
    """Runs a second with a policy, over the turns, and the threads of each run."""

    policy: str
    n_threads: int
    runs_per_s: Spread
    images_per_s: Spread


def _run_streams(args: argparse.Namespace) -> Benchmark:
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
    runs = [Row(row.policy, row.runs_per_s) for row in rows]
    images = [Row(row.policy, row.images_per_s) for row in rows if row.images_per_s != row.runs_per_s]
    charts = [
        Chart("Runs a second", "runs/s", runs, better="more"),
        Chart("Images a second", "images/s", images, better="more"),
    ]
    title = f"{opened.name}, {args.dtype}, {args.streams} runs at a time"
    return Benchmark(title, command_text(), environment | {"n_rounds": args.rounds}, charts, records=to_builtins(rows))


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
