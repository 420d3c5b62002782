"""Is ``auto`` the fastest of all policies, and do costs predict times?

Each network has a process of its own for each instruction set, data type and batch. There ``auto`` is planned by
measured costs (or, with ``--tune cached``, in an empty cache folder, as a first load by default arguments does), and
then timed in turn with each policy on random data: the ratio to auto is the median of those of single rounds, below 1
where the policy is faster. The plan of each is priced twice, by the model alone and as it was planned; how well prices
rank plans is reported as Spearman's correlation.

    python bench/planner.py --models resnet50,squeezenet1_1 --batches 1,8 --rounds 7
    python bench/planner.py --isa native,avx2 --dtypes f32,bf16 --json out.json --picture docs/predicted.svg
    python bench/planner.py --measured out.json --html out.html
    python bench/planner.py --tune cached --batches 1 --rounds 9
    python bench/planner.py --models digits --rounds 1 --tune-seconds 1

Networks are those of ``blocklayout.zoo``, and the embedded one (``digits``). The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.arguments import numbers
from bench.records import add_files, keep, read_measured, write_page, write_picture
from blocklayout import dnnl, zoo
from blocklayout.commands.comparing import Contender, Race
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive, words
from blocklayout.model import open_model
from blocklayout.plan import SIMPLE_POLICIES, TUNE_MODES
from blocklayout.plan.costs.model import CostModel
from blocklayout.plan.pricing import Pricing
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import json_text, print_table
from blocklayout.zoo import digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from blocklayout.model import Graph
    from blocklayout.plan import Plan

EMBEDDED = "digits"
NATIVE = "native"
MAX_ISA = "ONEDNN_MAX_CPU_ISA"
BASE = (
    *("squeezenet1_1", "mobilenet_v2", "mnasnet1_0", "shufflenet_v2_x1_0", "resnet18", "googlenet", "densenet121"),
    *("resnet50", "alexnet", "efficientnet_b0", "resnext50_32x4d", "inception_v3", "convnext_tiny", "vgg11", "unet"),
    "m5",
)
POLICIES = ("auto", *SIMPLE_POLICIES)
WITHIN = 1.02


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    if args.worker:
        sys.stdout.write(json_text(measure(args)))
        return 0
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = record["results"]
    show(results)
    if results:
        whole = {"environment": results[0]["environment"], **record}
        write_page(args, whole, "auto, and every policy", charts(results))
        write_picture(args, lambda: draw(results))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    results: list[dict[str, Any]] = []
    record = {"n_rounds": args.rounds, "results": results}
    for isa, dtype, batch, name in product(args.isa, args.dtypes, args.batches, args.models):
        results += measure_apart(name, isa, dtype, batch, args)
        keep(args, record)
    return record


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; workers get their arguments by it too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=words, default=BASE, help="of the zoo, or digits")
    parser.add_argument("--batches", type=numbers, default=(1, 8), help="such as 1,8")
    parser.add_argument("--isa", type=words, default=(NATIVE,), help=f"values of {MAX_ISA}, or {NATIVE}")
    parser.add_argument("--dtypes", type=words, default=("f32",), help="f32, bf16; the latter where the CPU can")
    parser.add_argument("--rounds", type=positive, default=5, help="measurements of each (default: 5)")
    parser.add_argument("--threads", type=positive, help="by default all that this process may use")
    parser.add_argument("--tune", choices=TUNE_MODES, default="measure", help="as for load (default: measure)")
    parser.add_argument("--tune-seconds", type=float, default=120.0, help="for each network (default: 120)")
    add_files(parser, "predicted against measured times")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    unknown = {*args.models} - {EMBEDDED, *zoo.names()}
    if unknown or {*args.dtypes} - {"f32", "bf16"}:
        parser.error(f"no such network or data type: {', '.join(sorted(unknown)) or ', '.join(args.dtypes)}")
    return args


def measure_apart(name: str, isa: str, dtype: str, batch: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One network, in a process of its own; nothing where the CPU cannot."""
    if dtype == "bf16" and not dnnl.has_bf16():
        print(f"{name} {dtype}: not on this CPU ({dnnl.isa()})")
        return []
    environ = dict(os.environ) if isa == NATIVE else os.environ | {MAX_ISA: isa.upper()}
    command = [sys.executable, __file__, "--worker", "--models", name, "--dtypes", dtype, "--batches", str(batch)]
    command += ["--rounds", str(args.rounds), "--tune", args.tune, "--tune-seconds", str(args.tune_seconds)]
    command += ["--threads", str(args.threads)] if args.threads else []
    with TemporaryDirectory() as folder:
        environ |= {"BLOCKLAYOUT_CACHE_DIR": folder} if args.tune == "cached" else {}
        done = subprocess.run(command, check=True, env=environ, stdout=subprocess.PIPE, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    print_row(result | {"isa_asked": isa})
    return [result | {"isa_asked": isa}]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Work of a worker: auto and every policy, each in turn with auto."""
    [name], [dtype], [batch] = args.models, args.dtypes, args.batches
    graph = open_network(name, batch)
    feeds = random_feeds(graph)
    options = {"tune": args.tune, "tune_seconds": args.tune_seconds}
    race = Race(graph, feeds, args.threads, args.rounds, lambda _: None, options)
    contenders = [Contender(policy, dtype) for policy in POLICIES]
    plans = {contender.policy: race.session(contender).plan for contender in contenders}
    _, rows = race.run(contenders)
    model = Pricing(plans["auto"].n_threads, "model", 1.0, lambda _: None).modelled()
    return {
        "model": name,
        "batch": batch,
        "dtype": dtype,
        "environment": describe_environment(plans["auto"].n_threads),
        "chosen": plans["auto"].chosen,
        "is_optimal": plans["auto"].is_optimal,
        "raced": plans["auto"].raced,
        "policies": {
            policy: row.to_dict() | {"modelled_ns": modelled_ns(plans[policy], model)}
            for policy, row in zip(POLICIES, rows, strict=True)
        },
    }


def modelled_ns(plan: Plan, model: CostModel) -> float:
    """The model's own price of a plan."""
    steps = sum(
        model.reorder_ns(dict(step.operands)["src"].desc, step.dst.desc)
        if step.is_reorder
        else model.step_ns(step.spec)
        for step in plan.steps
    )
    return steps + sum(model.reorder_ns(entry.source, entry.desc) for entry in plan.entries if entry.is_reorder)


def open_network(name: str, batch: int) -> Graph:
    """A network with a batch."""
    if name == EMBEDDED:
        opened = open_model(digits.model_bytes())
        from blocklayout.model import read

        return read(opened, {"image": (batch, 1, 8, 8)})
    return zoo.build(name, batch=batch).to_graph()


def print_row(result: dict[str, Any]) -> None:
    """One network's line, as soon as it is known."""
    ratios = ", ".join(f"{policy} {result['policies'][policy]['ratio']['median']:.3f}" for policy in SIMPLE_POLICIES)
    auto = result["policies"]["auto"]["time_ms"]["median"]
    where = f"{result['model']} {result['dtype']} batch {result['batch']} {result['isa_asked']}"
    print(f"{where}: auto ({result['chosen']}) {auto:.3f} ms; {ratios}", flush=True)


def best_policy(result: dict[str, Any]) -> tuple[str, float]:
    """The fastest simple policy, and its time over auto's."""
    ratios = {policy: result["policies"][policy]["ratio"]["median"] for policy in SIMPLE_POLICIES}
    name = min(ratios, key=ratios.__getitem__)
    return name, ratios[name]


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table, and what follows from it."""
    header = ("model", "batch", "isa", "dtype", "auto ms", "chosen", *SIMPLE_POLICIES, "best policy")
    rows = []
    for result in results:
        name, ratio = best_policy(result)
        cells = [f"{result['policies'][policy]['ratio']['median']:.3f}" for policy in SIMPLE_POLICIES]
        auto = f"{result['policies']['auto']['time_ms']['median']:.3f}"
        where = (result["model"], str(result["batch"]), result["environment"]["isa"], result["dtype"])
        rows.append((*where, auto, result["chosen"], *cells, f"{name} {ratio:.3f}"))
    print_table(header, rows, title="time over auto's: above 1 the policy is slower", text_columns=(0, 2, 3, 5, 11))
    ratios = [best_policy(result)[1] for result in results]
    n_good = sum(ratio * WITHIN >= 1 for ratio in ratios)
    wins = [result["model"] for result, ratio in zip(results, ratios, strict=True) if ratio >= 1.05]
    print(f"auto is the fastest or within 2 % of it in {n_good} of {len(ratios)}")
    print(f"at least 5 % faster than the best policy: {', '.join(wins) or 'none'}")
    for what, field in (("the model", "modelled_ns"), ("the plans' costs", "estimated_ns")):
        print(f"rank correlation of {what} with measured times: {correlation(results, field):.4f} across all plans, ")
        print(f"    {within_correlation(results, field):.3f} among the policies of one network (median)")


def points(results: Sequence[dict[str, Any]], field: str) -> tuple[list[float], list[float]]:
    """Predicted and measured milliseconds of every plan."""
    rows = [row for result in results for row in result["policies"].values()]
    return [row[field] / 1e6 for row in rows], [row["time_ms"]["median"] for row in rows]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks."""
    ranks = [np.argsort(np.argsort(values)) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def correlation(results: Sequence[dict[str, Any]], field: str) -> float:
    """Of ranks, over all plans."""
    return spearman(*points(results, field))


def within_correlation(results: Sequence[dict[str, Any]], field: str) -> float:
    """Of ranks, among the plans of one network; the median over networks."""
    return float(np.median([spearman(*points([result], field)) for result in results]))


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times of the policies, and their ratios to auto's."""
    rows = [
        (policy, row, f"{each['model']}, {each['dtype']}, batch {each['batch']}, {each['isa_asked']}")
        for each in results
        for policy, row in each["policies"].items()
    ]
    ratios = [Row.of(policy, row["ratio"], group) for policy, row, group in rows]
    times = [Row.of(policy, row["time_ms"], group) for policy, row, group in rows]
    return [
        Chart("Time over auto's in the same round", "", ratios, baseline="auto"),
        Chart("Time of a run", "ms", times),
    ]


def draw(results: Sequence[dict[str, Any]]) -> Figure:
    """Predicted against measured times, for the model and for the costs that plans were made by."""
    from bench.drawing import names_above, new_figure, scatter

    figure = new_figure(10.0, 5.2)
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    fields = (("the model", "modelled_ns"), ("the plans' costs", "estimated_ns"))
    values = [value for _, field in fields for both in points(results, field) for value in both]
    for axis, (title, field) in zip(axes, fields, strict=True):
        clouds = {
            policy: points([{"policies": {policy: each["policies"][policy]}} for each in results], field)[::-1]
            for policy in POLICIES
        }
        scatter(axis, clouds, values)
        axis.set_xlabel(f"measured ms; rank correlation of {title}: {correlation(results, field):.3f}")
        axis.set_ylabel(f"ms predicted by {title}")
    names_above(axes[0], len(POLICIES))
    return figure


if __name__ == "__main__":
    sys.exit(main())
