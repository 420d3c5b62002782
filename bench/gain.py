"""How much do layouts gain: auto over plain, and over reordering around every operator?

The networks are those for which PyTorch's tutorial on channels-last reports gains of 26 to 76 % over row-major on Intel
Xeons. Each has a process of its own. There ``auto`` is timed in turn with ``plain`` (row-major from end to end), with
``per-op`` (reorders around every primitive, as frameworks do that propagate no layout) and with ``nhwc`` (channels-last
from end to end). A gain is the other's time over auto's in the same round, less one; reported are the median over the
rounds, the least and the most.

    python bench/gain.py --rounds 7 --json out.json --html out.html --picture docs/gain.svg
    python bench/gain.py --models resnet50,squeezenet1_1 --batch 16 --tune measure
    python bench/gain.py --models squeezenet1_1 --size 32 --rounds 1
    python bench/gain.py --measured first.json second.json --picture docs/gain.svg

The last shows in one table what was measured in several runs. The picture needs matplotlib.

Source: "Channels Last Memory Format in PyTorch", a tutorial of PyTorch, as of July 2025.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import convert

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.arguments import networks
from bench.records import add_files, keep, read_measured, write_page, write_picture
from blocklayout import dnnl, zoo
from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import json_text, print_table
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

MODELS = (
    *("alexnet", "densenet121", "densenet161", "densenet169", "googlenet", "inception_v3", "mnasnet0_5", "mnasnet1_0"),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d"),
    *("shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "squeezenet1_0", "squeezenet1_1", "vgg11", "vgg11_bn", "vgg13"),
    *("vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "wide_resnet50_2", "wide_resnet101_2"),
)
OTHERS = ("plain", "per-op", "nhwc")
REPORTED = (1.26, 1.76)
"""Times of row-major over those of channels-last, by the tutorial: the least and the most."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    if args.worker:
        sys.stdout.write(json_text(measure(args.models[0], args)))
        return 0
    if args.dtype == "bf16" and not dnnl.has_bf16():
        print(f"bf16: not on this CPU ({dnnl.isa()})")
        return 0
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = record["results"]
    show(results)
    write_page(args, record, "What layouts gain", charts(results))
    write_picture(args, lambda: draw(results))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    results: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}
    for name in args.models:
        results.append(measure_apart(name, args))
        print(f"{name}: {', '.join(f'{other} {text_of(results[-1], other)}' for other in OTHERS)}", flush=True)
        keep(args, record)
    return record


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; workers get their arguments by it too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo; by default those of the tutorial")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--batch", type=positive, default=1, help="images at a time (default: 1)")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--rounds", type=positive, default=7, help="measurements of each (default: 7)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    parser.add_argument("--tune", choices=("cached", "model", "measure"), default="cached", help="as for load")
    parser.add_argument("--tune-seconds", type=float, default=120.0, help="for each network (default: 120)")
    add_files(parser, "the ratios")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def measure_apart(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network, in a process of its own."""
    command = [sys.executable, __file__, "--worker", "--models", name, "--dtype", args.dtype]
    command += ["--batch", str(args.batch), "--rounds", str(args.rounds), "--threads", str(args.threads)]
    command += ["--tune", args.tune, "--tune-seconds", str(args.tune_seconds)]
    command += ["--size", str(args.size)] if args.size else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Work of a worker: auto, and each of the others in turn with it."""
    graph = zoo.build(name, batch=args.batch, size=args.size).to_graph()
    feeds = random_feeds(graph)
    options = {"tune": args.tune, "tune_seconds": args.tune_seconds}
    race = Race(graph, feeds, args.threads, args.rounds, lambda _: None, options)
    _, [auto, *others] = race.run([Contender(policy, args.dtype) for policy in ("auto", *OTHERS)])
    rows = {policy: row.to_dict() for policy, row in zip(OTHERS, others, strict=True)}
    return {"model": name, "batch": args.batch, "dtype": args.dtype, "auto": auto.to_dict(), "others": rows}


def gain(result: dict[str, Any], other: str) -> float:
    """How much longer the other takes than auto: 0.5 is half as long again."""
    return float(result["others"][other]["ratio"]["median"]) - 1


def text_of(result: dict[str, Any], other: str) -> str:
    """A gain with its spread, in percent."""
    ratio = result["others"][other]["ratio"]
    low, high = (f"{(ratio[end] - 1) * 100:+.0f}" for end in ("low", "high"))
    return f"{gain(result, other) * 100:+.0f} % ({low} to {high})"


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table, and what follows from it."""
    header = ("model", "auto ms", *(f"gain over {other}" for other in OTHERS))
    rows = [
        (
            result["model"],
            f"{result['auto']['time_ms']['median']:.2f}",
            *(text_of(result, other) for other in OTHERS),
        )
        for result in results
    ]
    print_table(header, rows, title="how much longer others take than auto")
    for other in OTHERS:
        gains = [gain(result, other) for result in results]
        mean = statistics.geometric_mean(1 + each for each in gains) - 1
        n_large = sum(1 + each >= REPORTED[0] for each in gains)
        print(
            f"over {other}: {mean:+.0%} (geometric mean); at least {REPORTED[0] - 1:+.0%} in {n_large} of {len(gains)}"
        )


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """The times of all, and those of the others over auto's."""
    ratios = [Row.of(name, row["ratio"], each["model"]) for each in results for name, row in each["others"].items()]
    times = [
        Row.of(name, row["time_ms"], each["model"])
        for each in results
        for name, row in {"auto": each["auto"], **each["others"]}.items()
    ]
    return [
        Chart("Time over auto's in the same round", "", ratios, baseline="auto"),
        Chart("Time of a run", "ms", times),
    ]


def draw(results: Sequence[dict[str, Any]]) -> Figure:
    """The times of the others over auto's, network by network, with the range that the tutorial reports."""
    from bench.drawing import LINE, QUIET, Lane, draw_lanes, lanes_height, mark_one, new_figure, write_above

    groups = {
        each["model"]: [Lane({name: convert(each["others"][name]["ratio"], Spread)}) for name in OTHERS]
        for each in results
    }
    figure = new_figure(8.0, lanes_height(groups) + 0.8)
    axis = figure.subplots()
    axis.axvspan(*REPORTED, color=LINE, alpha=0.5, lw=0, zorder=0.5)
    draw_lanes(axis, groups)
    mark_one(axis, "auto")
    write_above(axis, REPORTED[0], "row-major over channels-last, PyTorch's tutorial", QUIET)
    axis.set_xlabel("time over auto's in the same round")
    return figure


if __name__ == "__main__":
    sys.exit(main())
