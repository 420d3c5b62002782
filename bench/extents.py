"""What does a session pay for extents it has not seen, and what is lost where it takes the layouts of others?

Each network is planned for its usual extents, and then for others: once by choosing layouts anew, once by taking those
of the first plan, as a session does. Seconds are the process's CPU time of planning alone. Costs of both plans are by
the same prices.

    python bench/extents.py --models squeezenet1_1,resnet18 --sizes 112,320 --json out.json --html out.html

Networks are those of ``blocklayout.zoo``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, model, zoo
from blocklayout.commands.bench_page import Chart, Row
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import networks, numbers, positive
from blocklayout.commands.output import print_table
from blocklayout.plan import Pricing, Request
from blocklayout.plan.make import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.ir import Program
    from blocklayout.plan import Plan

MODELS = ("squeezenet1_1", "mobilenet_v2", "resnet18", "resnet50", "googlenet", "densenet121", "efficientnet_b0")
HEADER = ("network", "batch", "size", "chosen s", "taken s", "cost of taken over chosen")


def main(argv: Sequence[str] | None = None) -> int:
    """Plan, print a table, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "rows") or measure_all(args))
    rows = record["rows"]
    write_page(args, record, "Plans for extents that were not seen before", charts(rows))
    print_table(HEADER, [tuple(cell(each) for each in row.values()) for row in rows])
    ratios = [row["ratio"] for row in rows]
    print(f"cost: {statistics.geometric_mean(ratios):.3f} (geometric mean), {max(ratios):.3f} at most")
    return 0


def cell(value: object) -> str:
    """A cell of the table."""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--sizes", type=numbers, default=(64, 112, 160, 320, 448), help="heights and widths")
    parser.add_argument("--batches", type=numbers, default=(1, 4), help="such as 1,4")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser)
    return parser.parse_args(argv)


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks."""
    rows = [row for name in args.models for row in compared(name, args)]
    return {"environment": describe_environment(args.threads), "rows": rows}


def charts(rows: Sequence[dict[str, Any]]) -> list[Chart]:
    """Costs and planning times of a network, each extent a value."""
    by_model = {name: [row for row in rows if row["model"] == name] for name in dict.fromkeys(r["model"] for r in rows)}
    costs = [Row.of(name, [row["ratio"] for row in of]) for name, of in by_model.items()]
    seconds = [
        Row.of(what, [row[f"{what}_s"] for row in of], name)
        for name, of in by_model.items()
        for what in ("chosen", "taken")
    ]
    return [
        Chart("Cost with layouts taken over, each batch and size a value", "", costs, baseline="layouts chosen anew"),
        Chart("CPU time of planning, each batch and size a value", "s", seconds),
    ]


def compared(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A network's plans for all extents."""
    costs = Pricing.of(args.threads, "cached", 1.0, lambda _: None).recorded()
    plan_of = partial(make_plan, request=Request(), costs=costs)
    usual = plan_of(program(name, 1, None))
    rows = []
    for batch in args.batches:
        for size in args.sizes:
            (chosen, chosen_s), (taken, taken_s) = (
                timed(partial(plan_of, program(name, batch, size), like=like)) for like in (None, usual)
            )
            ratio = taken.cost_ns / chosen.cost_ns
            rows.append(
                {"model": name, "batch": batch, "size": size, "chosen_s": chosen_s, "taken_s": taken_s, "ratio": ratio}
            )
    return rows


def program(name: str, batch: int, size: int | None) -> Program:
    """A network's kernels."""
    return model.lower(model.legalize(model.simplify(zoo.build(name, batch=batch, size=size).to_graph())))


def timed(make: partial[Plan]) -> tuple[Plan, float]:
    """A plan, and the CPU seconds of making it."""
    begin = time.process_time()
    plan = make()
    return plan, time.process_time() - begin


if __name__ == "__main__":
    sys.exit(main())
