"""Are we faster than onnxruntime, OpenVINO and PyTorch, sooner, and with less memory?

Each network of the zoo (random weights) is written as an ONNX file. Every runtime that is installed loads it in a
process of its own, with default arguments but for the number of threads, and is stopped whenever it is not its turn.
All take turns, round after round, on random data, and outputs are compared. The ratio to ours is the median of those of
single rounds: above 1 the peer is slower.

    python bench/peers.py --models resnet50,squeezenet1_1 --rounds 7 --json out.json
    python bench/peers.py --dtypes f32,bf16 --batches 1,16 --picture docs/peers.svg
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

from blocklayout import dnnl, zoo
from blocklayout.commands.against.contest import Contest, check_agreement, print_outcome
from blocklayout.commands.against.runtimes import OUR_NAMES, RUNTIMES, chosen_runtimes
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import networks, numbers, positive, words
from blocklayout.commands.output import write_json
from blocklayout.model import write

if TYPE_CHECKING:
    from collections.abc import Sequence

MODELS = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "wide_resnet50_2", "resnext50_32x4d", "densenet121", "googlenet"),
    *("inception_v3", "mnasnet1_0", "mobilenet_v2", "shufflenet_v2_x1_0", "squeezenet1_1"),
)

PEERS = tuple(name for name in RUNTIMES if name not in OUR_NAMES)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network, and write JSON and a picture if asked to."""
    args = parse(argv)
    contests: list[dict[str, Any]] = []
    for dtype in args.dtypes:
        if dtype == "bf16" and not dnnl.has_bf16():
            print(f"bf16: not on this CPU ({dnnl.isa()})")
            continue
        for batch in args.batches:
            for name in args.models:
                contests.append(contest(name, dtype, batch, args))
                record = {"environment": describe_environment(args.threads), "contests": contests}
                write_json(args.json, record)  # as far as it is, since it takes long
    show(contests)
    if args.picture:
        draw(contests, args.picture)
    return 0


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
    parser.add_argument("--json", help="file to write")
    parser.add_argument("--picture", help="file to draw ratios, first results and memory in")
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
    record = {"model": name, "dtype": dtype, "batch": batch, "best_peer": outcome.best_peer_ratio}
    return record | outcome.to_dict()


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


def draw(contests: Sequence[dict[str, Any]], path: str) -> None:
    """Each runtime's time over ours, its first result and its memory, network by network."""
    from matplotlib.figure import Figure

    labels = [f"{each['model']} {each['dtype']} {each['batch']}" for each in contests]
    rows = [(row, place) for place, each in enumerate(contests) for row in each["results"]]
    figure = Figure(figsize=(14, 0.35 * len(labels) + 2), layout="tight")
    axes = figure.subplots(1, 3, sharey=True)
    quantities = (
        ("time over ours", lambda row: row["ratio"]["median"]),
        ("s to the first result", lambda row: row["first_s"]),
        ("MB above import", lambda row: row["resident_nbytes"] / 1e6),
    )
    for axis, (title, value_of) in zip(axes, quantities, strict=True):
        for name in dict.fromkeys(row["name"] for row, _ in rows):
            points = [(value_of(row), place) for row, place in rows if row["name"] == name]
            axis.semilogx(*zip(*points, strict=True), "o", label=name)
        axis.set_xlabel(title)
    axes[0].axvline(1.0, color="grey", lw=0.8)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].invert_yaxis()
    axes[-1].legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
