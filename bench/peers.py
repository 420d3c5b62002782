"""Are we faster than onnxruntime, OpenVINO and PyTorch, sooner, and with less memory?

Each network of the zoo (random weights) is written as an ONNX file. Every runtime that is installed loads it in a
process of its own, with default arguments but for the number of threads, and is stopped whenever it is not its turn.
All take turns, round after round, on random data, and outputs are compared. The ratio to ours is the median of those of
single rounds: above 1 the peer is slower.

    python bench/peers.py --models resnet50,squeezenet1_1 --rounds 7 --json out.json
    python bench/peers.py --batches 1,16 --json out.json --html out.html
    python bench/peers.py --measured out.json --picture docs/peers.svg
    python bench/peers.py --models squeezenet1_1 --size 64 --rounds 1

The picture needs matplotlib, which comes with the other runtimes by ``pip install blocklayout[bench]``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import convert, to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.arguments import networks, numbers
from bench.records import add_files, keep, machine_text, read_measured, write_page, write_picture
from blocklayout import dnnl, zoo
from blocklayout.commands.against.contest import (
    Contest,
    Outcome,
    check_agreement,
    contest_charts,
    contest_table,
    print_outcome,
)
from blocklayout.commands.against.runtimes import OUR_NAMES, RUNTIMES, chosen_runtimes
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive, words
from blocklayout.model import write
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matplotlib.figure import Figure

    from blocklayout.commands.against.contest import Result

MODELS = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "wide_resnet50_2", "resnext50_32x4d", "densenet121", "googlenet"),
    *("inception_v3", "mnasnet1_0", "mobilenet_v2", "shufflenet_v2_x1_0", "squeezenet1_1"),
)

PEERS = tuple(name for name in RUNTIMES if name not in OUR_NAMES)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "contests") or measure(args))
    contests = record["contests"]
    outcomes = {label(each): convert(each, Outcome) for each in contests}
    if args.measured:
        for title, outcome in outcomes.items():
            print_outcome(title, outcome)
    show(contests)
    notes = [failure.reason for outcome in outcomes.values() for failure in outcome.failures]
    charts, tables = contest_charts(outcomes), [contest_table(outcomes)]
    write_page(args, record, "Beside other runtimes", charts, tables, notes)
    write_picture(args, lambda: draw(outcomes, machine_text(record["environment"])))
    return 0


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All contests; JSON is written after each, since they take long."""
    contests: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "contests": contests}
    for dtype in args.dtypes:
        if dtype == "bf16" and not dnnl.has_bf16():
            print(f"bf16: not on this CPU ({dnnl.isa()})")
            continue
        for batch in args.batches:
            for name in args.models:
                contests.append(contest(name, dtype, batch, args))
                keep(args, record)
    return record


def label(contest: dict[str, Any]) -> str:
    """What was run: network, data type and batch."""
    return f"{contest['model']}, {contest['dtype']}, batch {contest['batch']}"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--against", type=words, default=("all",), help=f"{', '.join(PEERS)} (default: all)")
    parser.add_argument("--dtypes", type=words, default=("f32",), help="f32, bf16; the latter where the CPU can")
    parser.add_argument("--batches", type=numbers, default=(1,), help="such as 1,16")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each runtime (default: 7)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser, "ratios, first results and memory")
    return parser.parse_args(argv)


def contest(name: str, dtype: str, batch: int, args: argparse.Namespace) -> dict[str, Any]:
    """One network in every runtime."""
    built = zoo.build(name, batch=batch, size=args.size)
    graph = built.to_graph()
    feeds = random_feeds(graph)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        write(built, path)
        runner = Contest(path, feeds, args.threads, dtype, args.rounds, lambda _: None)
        outcome = runner.run(chosen_runtimes(args.against, dtype))
    print_outcome(f"{name}, {dtype}, batch {batch}", outcome)
    for disagreement in check_agreement(outcome.results, dtype):
        print(disagreement)
    sys.stdout.flush()
    peers = (result for result in outcome.results if result.name not in OUR_NAMES)
    best_peer = min((peer.ratio.median for peer in peers), default=None)
    record = {"model": name, "dtype": dtype, "batch": batch, "best_peer": best_peer}
    return record | to_builtins(outcome)


def show(contests: Sequence[dict[str, Any]]) -> None:
    """The geometric means."""
    for dtype, batch in dict.fromkeys((each["dtype"], each["batch"]) for each in contests):
        same = [each for each in contests if (each["dtype"], each["batch"]) == (dtype, batch)]
        ratios = {each["model"]: each["best_peer"] for each in same if each["best_peer"] is not None}
        if ratios:
            mean, least = statistics.geometric_mean(ratios.values()), min(ratios, key=ratios.__getitem__)
            print(
                f"{dtype}, batch {batch}: the best peer takes {mean:.3f} of our time (geometric mean over "
                f"{len(ratios)} networks); least {ratios[least]:.3f}, {least}"
            )


def draw(outcomes: Mapping[str, Outcome], machine: str) -> Figure:
    """Each runtime's time over ours, its first result and its memory, network by network."""
    from bench.drawing import Lane, draw_lanes, lanes_height, mark_one, new_figure

    common = common_end(outcomes)
    quantities: tuple[tuple[str, Callable[[Result], Spread]], ...] = (
        ("time over ours, same round", lambda row: row.ratio),
        ("seconds to the first result", lambda row: Spread.of([row.first_s])),
        ("MB after the first run", lambda row: Spread.of([row.resident_nbytes / 1e6])),
    )
    by_quantity = [
        {
            name.removesuffix(common): [Lane({row.name: value(row)}) for row in outcome.results]
            for name, outcome in outcomes.items()
        }
        for _, value in quantities
    ]
    figure = new_figure(10.0, lanes_height(by_quantity[0]) + 0.8)
    axes = figure.subplots(1, 3, sharey=True, width_ratios=(1.7, 1, 1))
    for number, (axis, groups) in enumerate(zip(axes, by_quantity, strict=True)):
        draw_lanes(axis, groups, is_named=number == 0, n_most=6 if number else 7)
        axis.set_xlabel(quantities[number][0])
    mark_one(axes[0], "to the right we are faster")
    figure.suptitle(f"{machine}{common}", x=0.01, ha="left", fontsize=10.0)
    return figure


def common_end(names: Iterable[str]) -> str:
    """What all names end in, from a comma on, such as ``, f32, batch 1``; empty where they differ."""
    ends = {name.partition(",")[1] + name.partition(",")[2] for name in names}
    return ends.pop() if len(ends) == 1 else ""


if __name__ == "__main__":
    sys.exit(main())
