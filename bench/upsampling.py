"""Where pixels are repeated and then convolved: what does one deconvolution bring, and is it chosen where it pays?

Networks as generators and decoders are made of: a Relu, an enlargement to twice the height and width by nearest
neighbours, a convolution to half of the channels with a bias, and a Relu. Each is planned three times: with prices by
which deconvolutions are too cheap, so that the two are merged; with prices by which they are too dear; and by the
prices at hand. All three take turns, round after round, on data in the layout that their plans read. Reported are
medians of the fastest runs of a turn, and of the ratios to the plan with two steps in the same round.

    python bench/upsampling.py --json out.json --html out.html
    python bench/upsampling.py --batch 8 --without winograd
    python bench/upsampling.py --sizes 16x8 --rounds 1
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, model
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import extents, positive, words
from blocklayout.plan import Pricing, Request, make_plan
from blocklayout.plan.costs.model import CostModel, Price
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread, time_in_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.dnnl import Spec

SIZES = ((1024, 4), (512, 8), (256, 16), (128, 32), (64, 64), (32, 128))
FACTORS = {"merged": 0.2, "apart": 5.0, "auto": 1.0}
"""Of the prices of deconvolutions."""

FREE = {"x": "any", "y": "any"}


class Changed(CostModel, frozen=True, kw_only=True):
    """Costs with other prices of deconvolutions."""

    factor: float

    def price(self, spec: Spec) -> Price:
        ns, source = super().price(spec)
        return Price(ns * (self.factor if spec.kind == "deconvolution" else 1.0), source)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = record["results"]
    write_page(args, record, "Enlargement and convolution as one deconvolution", charts(results))
    header = ("batch, channels, extent", "apart us", "merged us", "merged over apart", "auto over apart", "auto is")
    rows = [
        (
            result["problem"],
            *(f"{result['us'][name]['median']:.0f}" for name in ("apart", "merged")),
            *("{median:.2f} ({low:.2f}-{high:.2f})".format(**result["ratios"][name]) for name in ("merged", "auto")),
            result["chosen"],
        )
        for result in results
    ]
    print_table(header, rows, title="twice the pixels and a convolution as one deconvolution, and as two steps")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=extents, nargs="+", default=SIZES, help="channels and extents, as 32x128")
    parser.add_argument("--batch", type=positive, default=1, help="images at a time (default: 1)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--kernel", type=positive, default=3, help="height and width of weights, odd (default: 3)")
    parser.add_argument("--without", type=words, default=(), help="code of ours to do without, such as winograd")
    parser.add_argument("--rounds", type=positive, default=9, help="turns of each (default: 9)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser)
    return parser.parse_args(argv)


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All sizes."""
    results = [measure(channels, extent, args) for channels, extent in args.sizes]
    return {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times, and their ratios to that of two steps."""
    times = [Row.of(name, spread, each["problem"]) for each in results for name, spread in each["us"].items()]
    ratios = [Row.of(name, spread, each["problem"]) for each in results for name, spread in each["ratios"].items()]
    return [
        Chart("Time over that of two steps, in the same round", "", ratios, baseline="apart"),
        Chart("Time of a run, by batch, channels and extent", "us", times),
    ]


def measure(channels: int, extent: int, args: argparse.Namespace) -> dict[str, Any]:
    """One network, planned in three ways."""
    rng = np.random.default_rng(0)
    dims = (args.batch, channels, extent, extent)
    b = bl.Builder()
    weights = rng.standard_normal((max(channels // 2, 1), channels, args.kernel, args.kernel), dtype=np.float32)
    bias = np.ones(len(weights), np.float32)
    b.output("y", b.input("x", dims).relu().upsample((1, 1, 2, 2)).conv(weights, bias, pads=args.kernel // 2).relu())
    program = model.lower(model.legalize(model.simplify(b.to_graph())))
    costs = Pricing(args.threads, "cached", 1.0, lambda _: None).modelled()
    request = Request(dtype=args.dtype, io_layout=FREE, without=frozenset(args.without))
    plans = {
        name: make_plan(program, request, Changed(costs.machine, factor=factor)) for name, factor in FACTORS.items()
    }
    data = rng.standard_normal(dims, dtype=np.float32)
    calls = []
    for plan in plans.values():
        session = bl.load(b, plan=plan)
        calls.append(partial(session.run, None, {"x": bl.reorder(data, dict(plan.inputs)["x"])}))
    times = dict(zip(FACTORS, time_in_turn(calls, args.rounds), strict=True))
    return {
        "problem": f"{args.batch}, {channels}, {extent}",
        "us": {name: to_builtins(Spread.of(ns).scaled(1e-3)) for name, ns in times.items()},
        "ratios": {name: to_builtins(Spread.of_ratios(ns, times["apart"])) for name, ns in times.items()},
        "chosen": " + ".join(step.spec.impl for step in plans["auto"].steps if "conv" in step.spec.kind),
    }


if __name__ == "__main__":
    sys.exit(main())
