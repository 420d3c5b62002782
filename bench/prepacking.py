"""What does prepacking bring, alone: weights packed for each run, once for a session, or mapped from a saved one?

Each network of the zoo (random weights, random data) is planned once. The same plan then runs in three ways: its
weights are reordered before each run, by the library on all threads, as where an operator is handed row-major weights
every time; they are packed when the session is made; and they lie in the file of a saved session, mapped. All three
take turns in one process, round after round. Reported are medians of the fastest runs of a turn, and medians of the
ratios to a session's own weights in the same round, with the least and the largest. Weights that primitives read row by
row are not packed again.

    python bench/prepacking.py --rounds 9 --json out.json --html out.html
    python bench/prepacking.py --models vgg16 --dtype bf16 --batch 4
    python bench/prepacking.py --models squeezenet1_1 --size 64 --rounds 1
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.arguments import networks
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, model, zoo
from blocklayout.commands.comparing import largest_difference
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive
from blocklayout.layout import MemoryDesc
from blocklayout.loading.from_model import constants_of, known_outputs
from blocklayout.loading.saved_session import NoMaker
from blocklayout.runtime import PlanBook, ReadyPlan, Signature
from blocklayout.runtime.streams import Streams
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread, time_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blocklayout.plan import Plan

MODELS = ("resnet50", "mobilenet_v2", "densenet121", "googlenet", "squeezenet1_1", "vgg16")
WAYS = ("each run", "session", "mapped")
_MB = 1e6


class Packing:
    """The weights of a plan, row by row in the type in which they are packed, and the reorders that pack them.

    Attributes:
        packed: What was packed last, by buffer.
        nbytes: Of the weights that are reordered, row by row.
    """

    def __init__(self, plan: Plan, constants: Mapping[str, np.ndarray]) -> None:
        self.packed: dict[int, np.ndarray] = {}
        self.nbytes = 0
        reorders = []
        for item in plan.constants:
            dims, dtype = item.desc.dims, item.desc.dtype
            rows = bl.reorder(item.contents(constants[item.constant]).reshape(dims), MemoryDesc(dims, dtype))
            source = dnnl.Memory(rows.desc, rows.buffer)
            buffer = self.packed[item.buffer] = dnnl.aligned_empty(item.desc.nbytes)
            packed = dnnl.Memory(item.desc, buffer)
            primitive = dnnl.Primitive(dnnl.reorder(source.desc, item.desc, n_threads=plan.n_threads))
            step = primitive.bind({"src": source, "dst": packed})
            if source.desc.physically_equal(item.desc):
                dnnl.Executable([step], plan.n_threads).run()
            else:
                self.nbytes += source.nbytes
                reorders.append(step)
        self._executable = dnnl.Executable(reorders, plan.n_threads)

    def run(self) -> None:
        """Pack them all."""
        self._executable.run()


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    if args.dtype == "bf16" and not dnnl.has_bf16():
        print(f"bf16: not on this CPU ({dnnl.isa()})")
        return 0
    record = keep(args, read_measured(args, "results") or measure_all(args))
    show(record["results"])
    write_page(args, record, "Weights packed for each run, once, or mapped", charts(record["results"]))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    results: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}
    for name in args.models:
        results.append(measure(name, args))
        print(f"{name}: done", file=sys.stderr)
        keep(args, record)
    return record


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--batch", type=positive, default=1, help="images at a time (default: 1)")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each (default: 7)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser)
    return parser.parse_args(argv)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network in every way, in turn."""
    graph = zoo.build(name, batch=args.batch, size=args.size).to_graph()
    feeds = random_feeds(graph)
    session = bl.load(graph, threads=args.threads, dtype=args.dtype)
    program = model.lower(model.legalize(model.simplify(graph)))
    packing = Packing(session.plan, constants_of(program))
    ready = ReadyPlan(session.plan, packing.packed, known_outputs(program))
    signature = Signature(tuple(session.get_inputs()), tuple(session.get_outputs()))
    shapes = tuple((name, feed.shape) for name, feed in feeds.items())
    unpacked = PlanBook(signature, NoMaker(), plans=[(shapes, ready)], streams=Streams(1, args.threads))

    def pack_and_run() -> list[Any]:
        packing.run()
        return unpacked.run(None, feeds)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.session")
        session.save(path)
        calls: list[Callable[[], list[Any]]] = [pack_and_run]
        calls += [partial(each.run, None, feeds) for each in (session, bl.load(path))]
        expected, *others = ([np.asarray(output) for output in call()] for call in calls)
        difference = max(largest_difference(outputs, expected) for outputs in others)
        times = dict(zip(WAYS, time_in_turn(calls, args.rounds), strict=True))
    return {
        "model": name,
        "weights_nbytes": packing.nbytes,
        "difference": difference,
        "ms": {way: to_builtins(Spread.of(ns).scaled(1e-6)) for way, ns in times.items()},
        "ratios": {way: to_builtins(Spread.of_ratios(ns, times["session"])) for way, ns in times.items()},
    }


def show(results: Sequence[dict[str, Any]]) -> None:
    """A line for each network."""
    header = ("model", "packed MB", *(f"{way} ms" for way in WAYS), "each run over session", "mapped over session")
    rows = [
        (
            result["model"],
            f"{result['weights_nbytes'] / _MB:.1f}",
            *(f"{result['ms'][way]['median']:.2f}" for way in WAYS),
            *(_text(result["ratios"][way]) for way in WAYS if way != "session"),
        )
        for result in results
    ]
    print_table(header, rows, title="the same plan, with weights packed for each run, once, or mapped from a file")
    largest = max(result["difference"] for result in results)
    print(f"results differ by up to {largest:.1g}, relative to the largest value")


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times, and their ratios to a session's own weights."""
    times = [Row.of(way, spread, each["model"]) for each in results for way, spread in each["ms"].items()]
    ratios = [Row.of(way, spread, each["model"]) for each in results for way, spread in each["ratios"].items()]
    return [
        Chart("Time over that with the session's weights, in the same round", "", ratios, baseline="session"),
        Chart("Time of a run", "ms", times),
    ]


def _text(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"


if __name__ == "__main__":
    sys.exit(main())
