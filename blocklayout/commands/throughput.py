"""``bench --streams``: how many runs a second, with so many on their way at a time."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import feeds_of, n_images, open_model
from blocklayout.commands.options import load_options
from blocklayout.commands.output import say, say_json
from blocklayout.inspector.progress import shown_progress
from blocklayout.inspector.tables import print_table
from blocklayout.runtime.in_turn import Spread

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    import numpy as np

    from blocklayout.runtime import Session

    Feeds = Mapping[str, np.ndarray]

TURN_S = 0.5
"""How long a turn lasts, more or less."""

_HEADER = ("layout", "runs/s", "least-most", "images/s", "threads of a run")


class Throughput(Struct, frozen=True):
    """Result of a policy.

    Attributes:
        policy: Its name.
        n_threads: Threads of each run.
        runs_per_s: Over the turns.
        images_per_s: The same, times the batch.
    """

    policy: str
    n_threads: int
    runs_per_s: Spread
    images_per_s: Spread


def run_streams(args: argparse.Namespace, policies: Sequence[str]) -> None:
    """Measure policies one after the other, and print what each did."""
    rows = []
    with shown_progress("reading the model", is_quiet=args.json) as tell:
        opened = open_model(args)
        feeds = feeds_of(opened, args)
        options = load_options(args) | {"streams": args.streams}
        race = Race(opened, feeds, args.threads, args.rounds, tell, options)
        for policy in policies:
            with race.session(Contender(policy, args.dtype)) as session:
                tell(f"{policy}: measuring, {args.rounds} rounds")
                runs_per_s = Spread.of(time_runs(session, feeds, args.rounds))
                n_threads = session.plan.n_threads
            rows.append(Throughput(policy, n_threads, runs_per_s, runs_per_s.scaled(n_images(feeds))))
    environment = describe_environment(rows[0].n_threads * args.streams)
    if args.json:
        record: dict[str, Any] = {"environment": environment, "n_streams": args.streams, "n_rounds": args.rounds}
        say_json(record | {"policies": [to_builtins(row) for row in rows]})
        return
    title = f"{opened.name}, {args.dtype}, {args.streams} streams, {args.rounds} rounds, {environment['cpu']}"
    print_table(_HEADER, map(_cells, rows), title=title)
    say("\nhow long a single run takes with all threads: without --streams")


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


def _cells(row: Throughput) -> tuple[str, ...]:
    runs, images = row.runs_per_s, row.images_per_s
    spread = f"{runs.low:,.1f}-{runs.high:,.1f}"
    return row.policy, f"{runs.median:,.1f}", spread, f"{images.median:,.1f}", str(row.n_threads)
