"""How far are prices from the times that steps take in place, inside of whole runs?

For each network there are plans by several policies. Their steps are timed in place, inside of whole runs; then the
same primitives are timed apart, as tuning does it: with random data and cold weights, each for itself or so many in
turn. Both are lower quartiles. What is estimated where nothing was measured stands beside them. Reported is the factor,
the median of price over time in place; the spread, the standard deviation of the logarithms of cost over time in
place, weighted by the time in place: 0.1 means that a cost is off by some 10 %, beyond what all have in common. What
they have in common is the bias, their weighted geometric mean. It takes a quiet machine: costs leave out what other
work disturbs, whole runs cannot.

    python bench/measuring.py --models googlenet,resnet18,efficientnet_b0,squeezenet1_1 --in-turn 1,64,512
    python bench/measuring.py --models squeezenet1_1 --size 32 --policies nhwc --in-turn 8 --runs 2

Nothing is kept in the store of costs. The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.arguments import networks, numbers
from bench.records import add_files, keep, read_measured, write_page, write_picture
from blocklayout import dnnl, zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import random_feeds
from blocklayout.commands.options import positive, words
from blocklayout.plan import Pricing
from blocklayout.plan.costs.measuring import SpecTimer
from blocklayout.plan.costs.tuning import N_IN_TURN
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from blocklayout.dnnl import Spec
    from blocklayout.session import Session

MODELS = ("googlenet", "resnet18", "efficientnet_b0", "squeezenet1_1")
POLICIES = ("any", "blocked", "nhwc", "plain")


@dataclass(frozen=True)
class InPlace:
    """A step inside of whole runs.

    Attributes:
        policy: Of its plan.
        kernel: Its own.
        spec: Its primitive.
        ns: What it takes there.
    """

    policy: str
    kernel: str
    spec: Spec
    ns: float


@dataclass(frozen=True)
class Agreement:
    """Costs of one kind next to times in place.

    Attributes:
        source: Where prices come from.
        n_steps: Steps whose cost is known: what other work disturbed has none.
        factor: Costs over times, the median.
        spread: Of the logarithms of cost over time, weighted by time.
        bias: Costs over times, the weighted geometric mean.
        rank: Correlation of the ranks of costs and times.
    """

    source: str
    n_steps: int
    factor: float
    spread: float
    bias: float
    rank: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = record["results"]
    show(results)
    write_page(args, record, "Costs measured apart, next to times in place", charts(results))
    write_picture(args, lambda: draw(results))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks."""
    results = []
    for name in args.models:
        results.append(measure(name, args))
        print(f"{name}: {results[-1]['n_steps']} steps", file=sys.stderr)
    return {"environment": describe_environment(args.threads), "n_runs": args.runs, "results": results}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--policies", type=words, default=POLICIES, help="whose plans' steps are compared")
    parser.add_argument("--in-turn", type=numbers, default=(1, N_IN_TURN), help="such as 1,64; 1 is each for itself")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--runs", type=positive, default=40, help="whole runs of each plan (default: 40)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser, "costs against times in place")
    return parser.parse_args(argv)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network: its steps in place, and their primitives apart."""
    graph = zoo.build(name, size=args.size).to_graph()
    feeds = random_feeds(graph)
    steps: list[InPlace] = []
    for policy in args.policies:
        session = bl.load(graph, layout=policy, threads=args.threads, tune="model")
        steps += steps_in_place(policy, session, feeds, args.runs)
    specs = list(dict.fromkeys(step.spec for step in steps))
    model = Pricing(args.threads, "model", 1.0, lambda _: None).modelled()
    costs = {f"{n} in turn": costs_apart(specs, n) for n in args.in_turn}
    costs["estimated"] = {spec: model.step_ns(spec) for spec in specs}
    return {
        "model": name,
        "policies": args.policies,
        "n_steps": len(steps),
        "n_specs": len(specs),
        "agreement": [asdict(agreement(steps, prices, source)) for source, prices in costs.items()],
        "steps": [
            {
                "policy": step.policy,
                "kernel": step.kernel,
                "kind": step.spec.kind,
                "impl": step.spec.impl,
                "ns": step.ns,
                "cost_ns": [prices.get(step.spec) for prices in costs.values()],
            }
            for step in steps
        ],
    }


def steps_in_place(policy: str, session: Session, feeds: Mapping[str, np.ndarray], n_runs: int) -> Iterator[InPlace]:
    """Time of each primitive of a plan inside of whole runs, host steps left out."""
    profiles = [session.profile(feeds, n_runs=1) for _ in range(n_runs)]
    runs = [[step.ns for step in each.steps if step.kind not in ("outside", "input")] for each in profiles]
    for step, *times in zip(session.plan.steps, *runs, strict=True):
        if isinstance(step.spec, dnnl.Spec):
            yield InPlace(policy, step.kernel, step.spec, sorted(times)[n_runs // 4])


def costs_apart(specs: Sequence[Spec], n_in_turn: int) -> dict[Spec, float]:
    """Nanoseconds of each primitive, so many in turn; without those that other work disturbed."""
    timer = SpecTimer()
    costs = {}
    for begin in range(0, len(specs), n_in_turn):
        turn = specs[begin : begin + n_in_turn]
        outcomes = zip(turn, timer.time_in_turn(turn), strict=True)
        costs |= {spec: outcome for spec, outcome in outcomes if not isinstance(outcome, Exception)}
    return costs


def agreement(steps: Sequence[InPlace], costs: Mapping[Spec, float], source: str) -> Agreement:
    """How far costs are from times in place."""
    pairs = [(costs[step.spec], step.ns) for step in steps if step.spec in costs]
    if not pairs:
        return Agreement(source, 0, *[float("nan")] * 4)
    cost, time = np.array(pairs).T
    logs = np.log(cost / time)
    mean = np.average(logs, weights=time)
    spread = np.sqrt(np.average((logs - mean) ** 2, weights=time))
    ranks = [np.argsort(np.argsort(values)) for values in (cost, time)]
    rank = np.corrcoef(*ranks)[0, 1] if len(pairs) > 1 else float("nan")
    factor = np.median(cost / time)
    return Agreement(source, len(pairs), float(factor), float(spread), float(np.exp(mean)), float(rank))


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    header = ("model", "prices", "steps", "of", "factor", "spread", "bias", "rank correlation")
    rows = [
        (
            result["model"],
            each["source"],
            str(each["n_steps"]),
            str(result["n_steps"]),
            f"{each['factor']:.3f}",
            f"{each['spread']:.3f}",
            f"{each['bias']:.3f}",
            f"{each['rank']:.3f}",
        )
        for result in results
        for each in result["agreement"]
    ]
    print_table(header, rows, title="costs measured apart, next to times in place")


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Costs over times in place, each step a value."""
    rows = []
    for result in results:
        for number, each in enumerate(result["agreement"]):
            known = [(step["cost_ns"][number], step["ns"]) for step in result["steps"]]
            ratios = [cost_ns / ns for cost_ns, ns in known if cost_ns is not None]
            rows += [Row.of(each["source"], ratios, result["model"])] if ratios else []
    return [Chart("Cost over time in place, each step a value", "", rows, baseline="time in place", better="")]


def draw(results: Sequence[dict[str, Any]]) -> Figure:
    """Costs against times in place, step by step; those measured with the most in turn."""
    from bench.drawing import names_above, new_figure, scatter

    clouds = {}
    for result in results:
        pairs = [(step["ns"] / 1e3, step["cost_ns"][-2]) for step in result["steps"]]
        known = [(us, cost_ns / 1e3) for us, cost_ns in pairs if cost_ns is not None]
        if known:
            clouds[result["model"]] = tuple(zip(*known, strict=True))
    figure = new_figure(6.0, 6.2)
    axis = figure.subplots()
    scatter(axis, clouds, [value for x, y in clouds.values() for value in (*x, *y)])
    axis.set_xlabel("us in place")
    axis.set_ylabel("us measured apart")
    names_above(axis, 4)
    return figure


if __name__ == "__main__":
    sys.exit(main())
