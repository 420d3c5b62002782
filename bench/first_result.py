"""How long does it take from the ONNX file to the first result, next to onnxruntime?

Each network of the zoo (random weights) is written as an ONNX file once. Then processes run in turn, round after round:
onnxruntime; blocklayout with an empty cache folder; blocklayout again, with the folder that the former left; and
blocklayout with a session that was saved beforehand. Each reports the seconds from before it imports its runtime, and
numpy, to its first result on random data: all but the interpreter's own start. The file was read just before, and lies
in memory. Told are medians, and medians of the ratios of single rounds with the least and the largest: below 1 we are
sooner.

    python bench/first_result.py --rounds 9 --json out.json
    python bench/first_result.py --models squeezenet1_1 --size 64 --rounds 1

Without onnxruntime, ratios are those to the first load.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dnnl, zoo
from blocklayout.commands.against.runtimes import OURS, RUNTIMES
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import SEED
from blocklayout.commands.options import networks, positive
from blocklayout.commands.output import json_text
from blocklayout.inspector.tables import print_table
from blocklayout.model import write
from blocklayout.runtime.racing import random_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Measure, print a table, and write JSON if asked to."""
    args = parse(argv)
    results = []
    for name in args.models:
        results.append(measure(name, args))
        print(f"{name}: done", file=sys.stderr)
    show(results)
    if args.json:
        record = {"environment": describe_environment(args.threads), "rounds": args.rounds, "results": results}
        Path(args.json).write_text(json_text(record) + "\n", encoding="utf-8")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each process (default: 7)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    parser.add_argument("--json", help="file to write")
    return parser.parse_args(argv)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network: seconds to the first result by each way, round after round."""
    built = zoo.build(name, **({"size": args.size} if args.size else {}))
    graph = built.to_graph()
    generator = np.random.default_rng(SEED)
    feeds = {info: random_array(graph.values[info].dtype, graph.shape(info), generator) for info in graph.inputs}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write(built, folder / "model.onnx")
        del built, graph
        np.savez(folder / "feeds.npz", *feeds.values(), names=np.array([*feeds], np.str_))
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
        self._run("saving", self.folder / "model.onnx", self.folder / "feeds.npz", self.folder / "model.session")

    def seconds(self, start: Start) -> float:
        """Seconds from the import to the first result."""
        if start.is_first:
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        model = self.folder / ("model.session" if start.is_saved else "model.onnx")
        model.read_bytes()
        line = self._run("worker", start.runtime, model, self.folder / "feeds.npz", self.folder / "outputs.npz")
        record: Mapping[str, Any] = json.loads(line)
        return float(record["first_s"])

    def _run(self, module: str, *arguments: object) -> str:
        command = [sys.executable, "-m", f"blocklayout.commands.against.{module}"]
        environ = os.environ | {"BLOCKLAYOUT_CACHE_DIR": str(self.folder / "cache")}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        return subprocess.run(
            [*command, *map(str, arguments), str(self.n_threads), "f32"],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        ).stdout


@dataclass(frozen=True)
class Ratio:
    """Ratios of single rounds."""

    median: float
    least: float
    largest: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        """Ours over theirs."""
        ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table, and put the ratios into the results."""
    rows = []
    for result in results:
        seconds = result["seconds"]
        base = seconds[STARTS[0].name]
        ratios = {name: Ratio.of(each, base) for name, each in seconds.items()}
        result["ratios"] = {name: asdict(ratio) for name, ratio in ratios.items()}
        rows += [
            (result["model"], name, f"{statistics.median(seconds[name]):.3f}", *_texts(ratio))
            for name, ratio in ratios.items()
        ]
    print_table(("model", "start", "s", f"over {STARTS[0].name}", "least", "largest"), rows, text_columns=(0, 1))


def _texts(ratio: Ratio) -> tuple[str, ...]:
    return tuple(f"{value:.2f}" for value in (ratio.median, ratio.least, ratio.largest))


if __name__ == "__main__":
    sys.exit(main())
