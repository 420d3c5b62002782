"""How many images a second do our streams compute, beside OpenVINO and its hint for throughput?

Each network of the zoo (random weights) is written as an ONNX file. Both runtimes load it, each in a process of its own
that is stopped when it is not its turn. A turn is many runs, from when the first is submitted until the last is done;
turns alternate, and the ratio to ours is the median of those of single rounds: above 1 we compute more.

    python bench/throughput.py --models resnet50,mobilenet_v2 --rounds 7 --json out.json --html out.html
    python bench/throughput.py --streams 2,1
    python bench/throughput.py --tune-seconds 60
    python bench/throughput.py --models squeezenet1_1 --size 64 --rounds 1

OpenVINO comes with ``pip install blocklayout[bench]``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.arguments import networks, numbers
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, zoo
from blocklayout.commands.against.contest import Contest, check_agreement
from blocklayout.commands.against.runtimes import N_RUNS, openvino_by_hint, ours_in_streams
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive, seconds
from blocklayout.model import write
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.commands.against.contest import Result

MODELS = ("resnet50", "mobilenet_v2", "squeezenet1_1")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "contests") or measure_all(args))
    contests = record["contests"]
    if args.measured:
        for each in contests:
            show(label(each), each["results"])
    ratios = [each["ratio"] for each in contests if each["ratio"] is not None]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"{args.streams[0]} streams: {mean:.3f} of OpenVINO's images a second (geometric mean of {len(ratios)})")
    write_page(args, record, "Images a second", charts(contests))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All contests."""
    contests = [contest(name, batch, args) for batch in args.batches for name in args.models]
    return {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "contests": contests}


def label(contest: dict[str, Any]) -> str:
    """What was run: network, data type and batch."""
    return f"{contest['model']}, {contest['dtype']}, batch {contest['batch']}"


def charts(contests: Sequence[dict[str, Any]]) -> list[Chart]:
    """Images a second, and how many of ours there are for one of another's."""
    rows = [(label(one), each) for one in contests for each in one["results"]]
    first = contests[0]["results"][0]["name"]
    return [
        Chart(
            f"Images of {first} for one of each, in the same round",
            "",
            [Row.of(each["name"], each["ratio"], group) for group, each in rows],
            baseline=first,
        ),
        Chart(
            "Images a second",
            "images/s",
            [Row.of(each["name"], each["images_per_s"], group) for group, each in rows],
            better="more",
        ),
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--streams", type=numbers, default=(2,), help="ours, such as 2,1; the first is compared")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="of activations (default: f32)")
    parser.add_argument("--batches", type=numbers, default=(1,), help="such as 1,4 (default: 1)")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each (default: 7)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    parser.add_argument("--tune-seconds", type=seconds, help="measure costs for so long before; by default, not at all")
    add_files(parser)
    return parser.parse_args(argv)


def contest(name: str, batch: int, args: argparse.Namespace) -> dict[str, Any]:
    """One network in all that is compared."""
    built = zoo.build(name, batch=batch, size=args.size)
    graph = built.to_graph()
    feeds = random_feeds(graph)
    peer = openvino_by_hint()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        write(built, path)
        if args.tune_seconds:
            for streams in args.streams:
                tuned = {"threads": args.threads, "streams": streams, "tune_seconds": args.tune_seconds}
                bl.load(path, dtype=args.dtype, tune="measure", **tuned).close()
        runner = Contest(path, feeds, args.threads, args.dtype, args.rounds, lambda _: None)
        runtimes = [*map(ours_in_streams, args.streams), *([peer] if peer.is_installed else [])]
        outcome = runner.run(runtimes)
    rows = [row(result, batch) for result in outcome.results]
    show(f"{name}, {args.dtype}, batch {batch}, {args.threads} threads, {args.rounds} rounds", rows)
    for failure in outcome.failures:
        print(f"{failure.name}: {failure.reason}")
    for disagreement in check_agreement(outcome.results, args.dtype):
        print(disagreement)
    sys.stdout.flush()
    ratio = next((each["ratio"]["median"] for each in rows if each["name"] == peer.name), None)
    return {"model": name, "dtype": args.dtype, "batch": batch, "ratio": ratio, "results": rows}


def row(result: Result, batch: int) -> dict[str, Any]:
    """The record of a runtime."""
    record: dict[str, Any] = to_builtins(result)
    images_per_s = Spread.of(1e3 * N_RUNS * batch / ms for ms in result.time_ms.values)
    kept = {key: record[key] for key in ("name", "version", "ratio", "difference")}
    return kept | {"images_per_s": to_builtins(images_per_s)}


def show(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """A line for each runtime."""
    header = ("runtime", "version", "images/s", "ours over it", "least-most")
    cells = [
        (
            each["name"],
            each["version"],
            f"{each['images_per_s']['median']:.1f}",
            f"{each['ratio']['median']:.3f}",
            f"{each['ratio']['low']:.3f}-{each['ratio']['high']:.3f}",
        )
        for each in rows
    ]
    print_table(header, cells, title=title, text_columns=(0, 1))


if __name__ == "__main__":
    sys.exit(main())
