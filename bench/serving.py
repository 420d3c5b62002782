"""How long do callers wait for an answer, at so much of what can be served at all, beside onnxruntime?

Each network of the zoo (random weights) is written as an ONNX file whose batch is free. Each runtime serves it in a
process of its own, one after the other. First 8 callers ask as fast as they are answered: that is its capacity. Then
requests are due at times that were drawn beforehand, at so many percent of that, whether or not answers come in time
(an open loop): by default as if each caller asked at equal intervals; ``--arrivals random`` is harder, since chance
brings crowds. What counts is the time from when a request was due until its answer is there.

A machine may become another one meanwhile: the CPUs of a virtual machine are moved, or shared with others. Then 80 %
of what it could do may be more than it can. So load is given in turns of 2 s, with the capacity measured before and
after each. Where the two differ by more than 15 %, the turn does not count and another is had, up to three times as
many as wanted; ``p99 of all`` has them all. Turns that count may have been on several machines, so to speak: what is
pooled are times in units of one answer at the turn's capacity, and milliseconds are those at the median capacity.

Two columns tell what is not the runtime's. ``at least`` is the 99th percentile over the median of a server that takes
the same time for every answer, so many at once as here, at the capacity that was measured: the queue alone.
``asked late`` is the 99th percentile of how late callers that were free asked: threads that compute had their CPU.

Both runtimes answer ``--streams`` requests at once on ``threads / streams`` threads each, in the order in which they
came; by default as many as there are threads, or callers if these are fewer. With one stream, callers of onnxruntime
run on their own threads instead, as its documentation has it.

    python bench/serving.py --models squeezenet1_1 --seconds 20 --rounds 3 --json serving.json
    python bench/serving.py --models resnet50 --batching 4,2 --loads 50,80,95
    python bench/serving.py --models mobilenet_v2 --streams 1 --arrivals random
    python bench/serving.py --models squeezenet1_1 --size 64 --seconds 0.2 --rounds 1

``--threads`` is for all of a runtime's runs together. onnxruntime comes with ``pip install blocklayout[bench]``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

import blocklayout as bl
from bench.arguments import networks, numbers
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive, seconds
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Ask = Callable[[int], object]

OURS, PEER = "blocklayout", "onnxruntime"
N_CALLERS = 8
TURN_S = 2.0
N_CAPACITY = 0.25
"""How long the capacity is measured, as a share of a turn."""
STEADY = 0.85
"""Capacities before and after a turn that counts are as this to 1 at least."""
N_TRIES = 3
"""Turns for each that is wanted."""

TIMES = ("p50_ms", "p99_ms", "p99_of_all_ms", "p99_late_ms", "least_ratio")

ARRIVALS = ("callers", "random", "even")
"""Each caller at equal intervals from a random time on; all at random times; all at equal intervals."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network, and write what is asked for."""
    args = parse(argv)
    if args.serve:
        print(json.dumps(serve(args)))
        return 0
    record = keep(args, read_measured(args, "results") or measure_all(args))
    for name in dict.fromkeys(row["model"] for row in record["results"]):
        show(name, [row for row in record["results"] if row["model"] == name])
    write_page(args, record, "Waiting for answers", [*charts(record["results"])])
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=("squeezenet1_1",), help="of the zoo")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--callers", type=positive, default=N_CALLERS, help=f"threads that ask (default: {N_CALLERS})")
    parser.add_argument("--loads", type=numbers, default=(50, 80, 95), help="percent of capacity (default: 50,80,95)")
    parser.add_argument("--arrivals", choices=ARRIVALS, default="callers", help="when requests are due")
    parser.add_argument("--seconds", type=seconds, default=10.0, help="at each load, in turns (default: 10)")
    parser.add_argument("--rounds", type=positive, default=3, help="turns of each runtime (default: 3)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    parser.add_argument("--streams", type=positive, help="answers at once (default: as many as threads or callers)")
    parser.add_argument("--batching", metavar="SIZE,MS", help="ours: the largest batch, and how long its first waits")
    parser.add_argument("--serve", nargs=2, metavar=("RUNTIME", "FILE"), help=argparse.SUPPRESS)
    add_files(parser)
    args = parser.parse_args(argv)
    args.streams = args.streams or min(args.threads, args.callers)
    return args


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks in all runtimes."""
    runtimes = [OURS, *([PEER] if find_spec(PEER) else [])]
    results = [row for name in args.models for row in measure(name, runtimes, args)]
    return {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}


def measure(name: str, runtimes: Sequence[str], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of one network: for each runtime and load the medians of rounds."""
    proto = zoo.build(name, batch=1, size=args.size).to_onnx()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(proto.SerializeToString())
        turns = {runtime: [] for runtime in runtimes}  # type: dict[str, list[dict[str, Any]]]
        for _ in range(args.rounds):
            for runtime in runtimes:
                turns[runtime].append(in_own_process(runtime, path, args))
    for runtime, rounds in turns.items():
        capacity = statistics.median(each["per_s"] for each in rounds)
        for place, load in enumerate(args.loads):
            at_load = [each["loads"][place] for each in rounds]
            times = {key: statistics.median(each[key] for each in at_load) for key in TIMES}
            counts = {key: sum(each[key] for each in at_load) for key in ("n", "n_turns", "n_steady")}
            row = {"model": name, "runtime": runtime, "per_s": capacity, "load": load, **times, **counts}
            yield row | {"rounds": at_load}


def in_own_process(runtime: str, path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """What this script says when it serves one runtime."""
    said = ("callers", "arrivals", "seconds", "threads", "streams", "batching")
    options = [f"--{name}={getattr(args, name)}" for name in said if getattr(args, name) is not None]
    loads = f"--loads={','.join(map(str, args.loads))}"
    command = [sys.executable, __file__, "--serve", runtime, str(path), loads, *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def serve(args: argparse.Namespace) -> dict[str, Any]:
    """Capacity, and times at each load, of one runtime in this process."""
    runtime, path = args.serve
    ask = (ours if runtime == OURS else onnxruntimes)(path, args)
    for number in range(2 * args.callers):
        ask(number)
    loads = [in_turns(ask, load, args) for load in args.loads]
    return {"per_s": statistics.median(each["per_s"] for each in loads), "loads": loads}


def in_turns(ask: Ask, load: int, args: argparse.Namespace) -> dict[str, Any]:
    """Times at a load, over as many turns as are wanted in which the machine stayed what it was."""
    turn_s = min(TURN_S, args.seconds)
    n_wanted = round(args.seconds / turn_s)
    capacities = [capacity(ask, N_CAPACITY * turn_s, args.callers)]
    turns: list[np.ndarray] = []
    late: list[np.ndarray] = []
    least: list[float] = []
    is_steady: list[bool] = []
    while sum(is_steady) < n_wanted and len(turns) < N_TRIES * n_wanted:
        before = capacities[-1]
        due = arrivals(load / 100 * before, turn_s, args)
        least.append(least_ratio(due, args.streams / before, args.streams))
        for kept, times in zip((turns, late), at_load(ask, due, args.callers), strict=True):
            kept.append(times)
        capacities.append(after := capacity(ask, N_CAPACITY * turn_s, args.callers))
        is_steady.append(min(before, after) >= STEADY * max(before, after))
    count = [place for place, steady in enumerate(is_steady) if steady] or range(len(turns))
    per_s = statistics.median(capacities[place] for place in count)
    p50, p99 = np.percentile(np.concatenate([turns[place] * capacities[place] for place in count]), (50, 99)) / per_s
    return {
        "per_s": per_s,
        "n": sum(len(turns[place]) for place in count),
        "p50_ms": 1e3 * float(p50),
        "p99_ms": 1e3 * float(p99),
        "p99_of_all_ms": 1e3 * float(np.percentile(np.concatenate(turns), 99)),
        "p99_late_ms": 1e3 * float(np.percentile(np.concatenate([[0.0], *(late[place] for place in count)]), 99)),
        "least_ratio": statistics.median(least[place] for place in count),
        "n_turns": len(turns),
        "n_steady": sum(is_steady),
    }


def ours(path: str, args: argparse.Namespace) -> Ask:
    """Submits, and waits for the answer."""
    batching = None
    if args.batching:
        size, delay_ms = args.batching.split(",")
        batching = int(size), float(delay_ms)
    session = bl.load(path, threads=args.threads, streams=args.streams, batching=batching)
    session.warm_up()
    [info] = session.get_inputs()
    images = random_images(info.shape or ())
    return lambda number: session.submit({info.name: images[number % len(images)]}).result()


def onnxruntimes(path: str, args: argparse.Namespace) -> Ask:
    """Runs on the caller's thread, or on that of a stream."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, args.threads // args.streams)  # 0 is all that there are
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    [info] = session.get_inputs()
    images = random_images(info.shape)

    def ask(number: int) -> object:
        return session.run(None, {info.name: images[number % len(images)]})

    if args.streams == 1:
        return ask
    pool = ThreadPoolExecutor(args.streams)
    return lambda number: pool.submit(ask, number).result()


def random_images(shape: Sequence[Any]) -> list[np.ndarray]:
    """Several, of batch 1."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, *shape[1:]), dtype=np.float32) for _ in range(4)]


def capacity(ask: Ask, seconds: float, n_callers: int) -> float:
    """Answers a second while every caller asks again at once."""
    end = time.monotonic() + seconds
    counts = [0] * n_callers

    def call(caller: int) -> None:
        while not counts[caller] or time.monotonic() < end:
            ask(caller)
            counts[caller] += 1

    start = time.monotonic()
    by_callers(call, n_callers)
    return sum(counts) / (time.monotonic() - start)


def at_load(ask: Ask, due: np.ndarray, n_callers: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds from when requests are due until they are answered, and how late callers asked that were free by then."""
    numbered = enumerate(due)
    start = time.monotonic() + 0.05
    times, late = np.zeros(len(due)), np.full(len(due), np.nan)

    def call(_: int) -> None:
        for number, after in numbered:  # whoever is free takes the next one
            wait_s = start + after - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
                late[number] = time.monotonic() - start - after
            ask(number)
            times[number] = time.monotonic() - start - after

    by_callers(call, n_callers)
    return times, late[~np.isnan(late)]


def least_ratio(due: np.ndarray, answer_s: float, n_streams: int) -> float:
    """The 99th percentile over the median, where every answer takes as long, so many at once, in order."""
    free = [0.0] * n_streams
    times = []
    for after in due:
        heapq.heapreplace(free, done := max(free[0], after) + answer_s)
        times.append(done - after)
    p50, p99 = np.percentile(times, (50, 99))
    return float(p99 / p50)


def arrivals(per_s: float, seconds: float, args: argparse.Namespace) -> np.ndarray:
    """When requests are due, in seconds."""
    rng, n = np.random.default_rng(1), max(args.callers, round(per_s * seconds))
    if args.arrivals == "random":
        return np.sort(rng.uniform(0, seconds, n))  # a Poisson process of so many
    if args.arrivals == "even":
        return np.arange(n) / per_s
    interval_s = args.callers / per_s
    begins = rng.uniform(0, interval_s, args.callers)
    return np.sort(np.add.outer(np.arange(n // args.callers) * interval_s, begins).ravel())


def by_callers(call: Callable[[int], None], n: int) -> None:
    """Call it on so many threads, and wait for them."""
    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(n)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


def show(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """A line for each runtime and load."""
    header = (
        *("runtime", "answers/s", "load", "requests", "median ms", "p99 ms", "p99 / median", "at least"),
        *("asked late ms", "turns", "p99 of all"),
    )
    cells = [
        (
            row["runtime"],
            f"{row['per_s']:.1f}",
            f"{row['load']} %",
            str(row["n"]),
            f"{row['p50_ms']:.2f}",
            f"{row['p99_ms']:.2f}",
            f"{row['p99_ms'] / row['p50_ms']:.2f}" if row["p50_ms"] else "",
            f"{row['least_ratio']:.2f}",
            f"{row['p99_late_ms']:.2f}",
            f"{row['n_steady']} of {row['n_turns']}",
            f"{row['p99_of_all_ms']:.2f}",
        )
        for row in rows
    ]
    print_table(header, cells, title=name, text_columns=(0,))


def charts(rows: Sequence[dict[str, Any]]) -> Iterator[Chart]:
    """The 99th percentile at each load."""
    for load in dict.fromkeys(row["load"] for row in rows):
        named = [(row, row["model"]) for row in rows if row["load"] == load]
        of_load = [Row.of(row["runtime"], [each["p99_ms"] for each in row["rounds"]], model) for row, model in named]
        yield Chart(f"99 of 100 answers came within, at {load} % of capacity", "ms", of_load)


if __name__ == "__main__":
    sys.exit(main())
