"""How long does it take from the ONNX file to the first result, next to onnxruntime?

Each network of the zoo (random weights) is written as an ONNX file once. Then processes run in turn, round after round:
onnxruntime; blocklayout with an empty cache folder; blocklayout again, with the folder that the former left; and
blocklayout with a session that was saved beforehand. Each reports the seconds from before it imports its runtime, and
numpy, to its first result on random data: all but the interpreter's own start. The file was read just before, and lies
in memory. Reported are medians, and medians of the ratios of single rounds with the least and the largest: below 1 we
are sooner.

    python bench/first_result.py --rounds 9 --json out.json --html out.html
    python bench/first_result.py --models squeezenet1_1 --size 64 --rounds 1

Without onnxruntime, ratios are those to the first load.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.arguments import networks
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, zoo
from blocklayout.commands.against.contest import WORKER, save_feeds
from blocklayout.commands.against.runtimes import OURS, RUNTIMES
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive
from blocklayout.model import write
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread, TurnProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

MODELS = ("resnet50", "mobilenet_v2", "densenet121", "googlenet", "squeezenet1_1", "vgg16")
PEER = "onnxruntime"


@dataclass(frozen=True)
class Start:
    """A way to a first result.

    Attributes:
        name: Its name in the table.
        runtime: Of the process.
        is_saved: Whether it loads a saved session.
        is_first: Whether the cache folder is emptied before.
    """

    name: str
    runtime: str = OURS
    is_saved: bool = False
    is_first: bool = False


STARTS = (
    *((Start(PEER, PEER),) if RUNTIMES[PEER].is_installed else ()),
    Start("first load", is_first=True),
    Start("second load"),
    Start("saved session", is_saved=True),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    record = read_measured(args, "results") or measure_all(args)
    show(record["results"])
    write_page(args, keep(args, record), "The first result in a fresh process", charts(record["results"]))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks."""
    results = []
    for name in args.models:
        results.append(measure(name, args))
        print(f"{name}: done", file=sys.stderr)
    return {"environment": describe_environment(args.threads), "rounds": args.rounds, "results": results}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each process (default: 7)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser)
    return parser.parse_args(argv)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network: seconds to the first result by each way, round after round."""
    built = zoo.build(name, size=args.size)
    graph = built.to_graph()
    feeds = random_feeds(graph)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write(built, folder / "model.onnx")
        del built, graph
        save_feeds(feeds, folder / "feeds.npz")
        runner = Runner(folder, args.threads)
        runner.save()
        rounds = [{start.name: runner.seconds(start) for start in STARTS} for _ in range(args.rounds)]
    return {"model": name, "seconds": {start.name: [each[start.name] for each in rounds] for start in STARTS}}


@dataclass(frozen=True)
class Runner:
    """Runs processes, each to its first result.

    Attributes:
        folder: With the model, and what it is fed.
        n_threads: Of a run.
    """

    folder: Path
    n_threads: int

    def save(self) -> None:
        """Save the session that is loaded later; all modules are compiled to bytecode by then, as if installed."""
        self._report("save", self.folder / "model.onnx", self.folder / "model.session")

    def seconds(self, start: Start) -> float:
        """Seconds from the import to the first result."""
        if start.is_first:
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        model = self.folder / ("model.session" if start.is_saved else "model.onnx")
        model.read_bytes()
        return float(self._report(start.runtime, model, self.folder / "outputs.npz")["first_s"])

    def _report(self, runtime: str, model: Path, result: Path) -> Any:
        arguments = ["-m", WORKER, runtime, model, self.folder / "feeds.npz", result, self.n_threads, "f32"]
        # An installed package has its bytecode.
        environ = {"BLOCKLAYOUT_CACHE_DIR": str(self.folder / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
        with TurnProcess(runtime, arguments, environ, sleeps=False) as process:
            return process.report


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table, and put the ratios into the results."""
    rows = []
    for result in results:
        seconds = result["seconds"]
        base = next(iter(seconds.values()))
        ratios = {name: Spread.of_ratios(each, base) for name, each in seconds.items()}
        result["ratios"] = to_builtins(ratios)
        rows += [
            (result["model"], name, f"{statistics.median(seconds[name]):.3f}", *_texts(ratio))
            for name, ratio in ratios.items()
        ]
    first = next(iter(results[0]["seconds"]))
    print_table(("model", "start", "s", f"over {first}", "least", "largest"), rows, text_columns=(0, 1))


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Seconds, and their ratios to the first way."""
    first = next(iter(results[0]["seconds"]))
    seconds = [Row.of(name, values, each["model"]) for each in results for name, values in each["seconds"].items()]
    ratios = [Row.of(name, spread, each["model"]) for each in results for name, spread in each["ratios"].items()]
    return [
        Chart(f"Seconds over those of {first} in the same round", "", ratios, baseline=first),
        Chart("From the import to the first result", "s", seconds),
    ]


def _texts(ratio: Spread) -> tuple[str, ...]:
    return tuple(f"{value:.2f}" for value in (ratio.median, ratio.low, ratio.high))


if __name__ == "__main__":
    sys.exit(main())
