"""How much does a neighbour on the machine cost, and how much does it cost to wait politely?

Each network of the zoo (random weights) is run by each runtime in processes of its own: alone, beside a busy loop, as
two copies at once, as four sessions of one process called at once, and right after onnxruntime has run in another
process. Ours is run with its own team of threads, and with libgomp's for several of its spin counts. All take turns,
round after round; a run's time is the mean over a turn, since what neighbours cost lies in the slow ones, and the first
0.1 s of a turn do not count (but right after another runtime, they are what counts). Reported are the median of the
rounds, and for each row how much of the CPUs' time the host of a virtual machine took away meanwhile.

    python bench/neighbours.py --rounds 3 --json out.json --html out.html
    python bench/neighbours.py --models mobilenet_v2 --layout auto --spin-counts 300000
    python bench/neighbours.py --models squeezenet1_1 --size 64 --rounds 1 --seconds 0.1

The fair share beside a busy loop: of THREADS + 1 threads that want the CPUs, each gets the same, so that a run takes
(THREADS + 1) / THREADS of its time alone. Half of the machine, for each of two copies: its time on half of the threads;
alone, and where the other half of the machine is busy, too: two copies of half the threads at once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.arguments import networks, numbers
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, zoo
from blocklayout.commands.against.runtimes import OURS, RUNTIMES
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive, words
from blocklayout.model import read, write
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import TurnProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MODELS = ("squeezenet1_1", "mobilenet_v2", "resnet50")
SPIN_COUNTS = (1, 1000, 10000, 300000)
"""Of libgomp; the last is about what it takes by itself."""

WARM_S = 0.1
N_SESSIONS = 4

ROWS = (
    "alone",
    "half the threads",
    "two of half the threads",
    "two copies",
    "beside a busy loop",
    "four sessions",
    "after onnxruntime",
)


@dataclass(frozen=True)
class Column:
    """A runtime, and how its threads wait.

    Attributes:
        name: Printed.
        runtime: One of ``RUNTIMES``.
        environ: What its processes are started with.
    """

    name: str
    runtime: str
    environ: Mapping[str, str]


class Copy(TurnProcess):
    """A process that runs a model when it is asked to, and waits for the next line otherwise."""

    def __init__(self, column: Column, model: Path, args: argparse.Namespace) -> None:
        command = [__file__, "--serve", column.runtime, model, args.layout, args.threads]
        super().__init__(column.name, command, column.environ, sleeps=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network, and write what is asked for."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--serve"]:
        return serve(*arguments[1:])
    args = parse(arguments)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    if args.measured:
        for result in record["results"]:
            show(result, record["environment"]["n_threads"])
    write_page(args, record, "Neighbours on the machine", charts(record["results"]))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    os.environ.pop("GOMP_SPINCOUNT", None)  # each column has its own, or none
    results: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "layout": args.layout}
    record |= {"results": results}
    for name in args.models:
        results.append(measure(name, args))
        show(results[-1], args.threads)
        keep(args, record)
    return record


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """A chart for each network, by what there is beside it."""
    return [
        Chart(
            f"{each['model']}: time of a run",
            "ms",
            [Row.of(name, values, row) for row, of in each["rounds_ms"].items() for name, values in of.items()],
        )
        for each in results
    ]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--layout", default="nhwc", help="of ours, with costs by the model alone (default: nhwc)")
    parser.add_argument("--peers", type=words, default=("onnxruntime", "openvino"), help="those that are installed")
    parser.add_argument("--spin-counts", type=numbers, default=SPIN_COUNTS, help="of libgomp, such as 1,1000")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=3, help="turns of each runtime (default: 3)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn (default: 0.5)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser)
    return parser.parse_args(argv)


def columns(args: argparse.Namespace) -> list[Column]:
    """Ours by its team, by libgomp, and the peers."""
    by_libgomp = [
        Column(f"libgomp {count}", OURS, {"BLOCKLAYOUT_TEAM": "0", "GOMP_SPINCOUNT": str(count)})
        for count in args.spin_counts
    ]
    peers = [Column(name, name, {}) for name in args.peers if name in RUNTIMES and RUNTIMES[name].is_installed]
    return [Column("team", OURS, {"BLOCKLAYOUT_TEAM": "1"}), *by_libgomp, *peers]


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network in every runtime and neighbourhood."""
    times: dict[str, dict[str, list[float]]] = {row: {} for row in ROWS}
    stolen: dict[str, list[float | None]] = {row: [] for row in ROWS}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        path = Path(folder, "model.onnx")
        built = zoo.build(name, size=args.size)
        write(built, path)
        pairs = {}
        for column in columns(args):
            pairs[column.name] = [stack.enter_context(Copy(column, path, args)) for _ in range(2)]
        other = pairs.get("onnxruntime", [None])[0]
        for _ in range(args.rounds):
            for row in ROWS:
                before = cpu_ticks()
                for column_name, (copy, second) in pairs.items():
                    if row != "after onnxruntime" or (other is not None and other is not copy):
                        ms = time_in(row, copy, second, other, args.seconds)
                        times[row].setdefault(column_name, []).append(ms)
                stolen[row].append(share_stolen(before, cpu_ticks()))
    medians = {row: {column: statistics.median(each) for column, each in of.items()} for row, of in times.items()}
    return {"model": name, "ms": medians, "rounds_ms": times, "rounds_stolen": stolen}


def cpu_ticks() -> list[int]:
    """How the time of all CPUs was spent: user, nice, system, idle, iowait, irq, softirq, steal; empty if unknown."""
    try:
        return [int(ticks) for ticks in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    except OSError:
        return []


def share_stolen(before: Sequence[int], after: Sequence[int]) -> float | None:
    """Of the CPUs' time in between, what the host of this virtual machine took for others; ``None`` if unknown."""
    spent = [late - early for early, late in zip(before, after, strict=True)]
    return spent[-1] / sum(spent) if any(spent) else None


def time_in(row: str, copy: Copy, second: Copy, other: Copy | None, seconds: float) -> float:
    """Milliseconds of a run in a neighbourhood; of two copies, of the slower one."""
    warm_s = min(WARM_S, seconds)
    if row == "beside a busy loop":
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
            ms = _asked([copy], "alone", warm_s, seconds)
            busy.kill()
        return ms
    if row == "two copies":
        return _asked([copy, second], "alone", warm_s, seconds)
    if row == "two of half the threads":
        return _asked([copy, second], "half the threads", warm_s, seconds)
    if row == "after onnxruntime" and other is not None:
        _asked([other], "alone", 0, warm_s)
        return _asked([copy], "alone", 0, warm_s)
    return _asked([copy], row, warm_s, seconds)


def _asked(copies: Sequence[Copy], way: str, warm_s: float, seconds: float) -> float:
    for copy in copies:
        copy.ask(f"{way},{warm_s},{seconds}")
    return max(copy.answer()["ms"] for copy in copies)


def show(result: dict[str, Any], n_threads: int) -> None:
    """Print the table, and how ours stands."""
    ms = result["ms"]
    names = [*ms["alone"]]
    stolen = {row: [share for share in shares if share is not None] for row, shares in result["rounds_stolen"].items()}
    rows = [
        [
            row,
            *(f"{ms[row][name]:.2f}" if name in ms[row] else "-" for name in names),
            f"{statistics.fmean(stolen[row]):.1%}" if stolen[row] else "-",
        ]
        for row in ROWS
    ]
    print_table(("ms a run", *names, "stolen"), rows, title=result["model"], text_columns=(0,))
    alone, beside, copies = (ms[row]["team"] for row in ("alone", "beside a busy loop", "two copies"))
    libgomp = [value for name, value in ms["alone"].items() if name.startswith("libgomp")]
    verdicts = [f"alone {alone / min(libgomp):.3f} of libgomp's best"] if libgomp else []
    verdicts.append(f"beside a busy loop {beside / (alone * (n_threads + 1) / n_threads):.3f} of the fair share")
    half, halves = (ms[row]["team"] for row in ("half the threads", "two of half the threads"))
    verdicts.append(f"two copies {copies / half:.3f} of half the machine, {copies / halves:.3f} of two halves at once")
    print(f"team: {', '.join(verdicts)}")
    sys.stdout.flush()


def serve(runtime: str, model: str, layout: str, threads: str) -> int:
    """Run the model as lines say, until none comes in."""
    n_threads = {"alone": int(threads), "half the threads": max(1, int(threads) // 2)}
    runs: dict[str, list[Callable[[], object]]] = {}

    def begin(way: str) -> None:
        n_sessions = N_SESSIONS if way == "four sessions" else 1
        runs[way] = [opened(runtime, model, layout, n_threads.get(way, int(threads))) for _ in range(n_sessions)]
        for run in runs[way]:
            run()

    for way in n_threads:  # before anything is timed
        begin(way)
    print("{}", flush=True)
    for line in sys.stdin:
        way, warm_s, seconds = line.split(",")
        if way not in runs:
            begin(way)
        mean_ms(runs[way], float(warm_s))
        print(json.dumps({"ms": mean_ms(runs[way], float(seconds))}), flush=True)
    return 0


def opened(runtime: str, model: str, layout: str, n_threads: int) -> Callable[[], object]:
    """A run of the model on random data."""
    session = bl.load(model, threads=n_threads, layout=layout, tune="model") if runtime == OURS else None
    signature = read(model)
    feeds = random_feeds(signature)
    if session is not None:
        return partial(session.run, None, feeds)
    peer = RUNTIMES[runtime]
    return partial(peer.open(peer.start(), model, n_threads, "f32"), feeds)


def mean_ms(runs: Sequence[Callable[[], object]], seconds: float) -> float:
    """The mean of runs that begin within so many seconds; each of ``runs`` is called by a thread of its own."""
    times: list[float] = []

    def call(run: Callable[[], object]) -> None:
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            run()
            times.append(time.perf_counter() - start)

    if len(runs) == 1:
        call(runs[0])
    else:
        callers = [threading.Thread(target=call, args=(run,)) for run in runs]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    return 1e3 * statistics.fmean(times) if times else 0.0


if __name__ == "__main__":
    sys.exit(main())
