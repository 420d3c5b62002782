"""What does a session pay for extents it has not seen, and what is lost where it takes the layouts of others?

Each network is planned for its usual extents, and then for others: once by choosing layouts anew, once by taking those
of the first plan, as a session does. Seconds are the process's CPU time of planning alone. Costs of both plans are by
the same prices. A session that is loaded for the range of all these extents is then asked for each: these seconds are
all that a caller waits for, and beside them stands what making the primitives alone takes.

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
from typing import TYPE_CHECKING, Any, TypeVar

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.arguments import networks, numbers
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, model, zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.plan import Pricing, Request
from blocklayout.plan.make import make_plan
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blocklayout.ir import Program

_Made = TypeVar("_Made")

MODELS = ("squeezenet1_1", "mobilenet_v2", "resnet18", "resnet50", "googlenet", "densenet121", "efficientnet_b0")
HEADER = ("network", "batch", "size", "chosen s", "taken s", "cost of taken over chosen", "session s", "primitives s")


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
    return f"{value:.3f}" if isinstance(value, float) else "planned in loading" if value is None else str(value)


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
    waited = [
        Row.of(what, [row[f"{what}_s"] for row in of if row["session_s"] is not None], name)
        for name, of in by_model.items()
        for what in ("session", "primitives")
        if any(row["session_s"] is not None for row in of)
    ]
    return [
        Chart("Cost with layouts taken over, each batch and size a value", "", costs, baseline="layouts chosen anew"),
        Chart("CPU time of planning, each batch and size a value", "s", seconds),
        Chart("CPU time of a session for extents that are new to it", "s", waited),
    ]


def compared(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A network's plans for all extents."""
    costs = Pricing(args.threads, "cached", 1.0, lambda _: None).modelled()
    plan_of = partial(make_plan, request=Request(), costs=costs)
    usual = plan_of(program(name, 1, None))
    rows = []
    for batch in args.batches:
        for size in args.sizes:
            (chosen, chosen_s), (taken, taken_s) = (
                timed(partial(plan_of, program(name, batch, size), like=like)) for like in (None, usual)
            )
            ratio = taken.cost_ns / chosen.cost_ns
            row = {"model": name, "batch": batch, "size": size, "chosen_s": chosen_s, "taken_s": taken_s}
            rows.append(row | {"ratio": ratio})
    waits = session_seconds(name, [(row["batch"], row["size"]) for row in rows], args.threads)
    return [
        row | dict(zip(("session_s", "primitives_s"), each, strict=True)) for row, each in zip(rows, waits, strict=True)
    ]


def session_seconds(name: str, extents: Sequence[tuple[int, int]], n_threads: int) -> list[tuple[float | None, float]]:
    """CPU seconds of a session for each batch and size, and of its primitives; ``None`` for the largest extents."""
    free = zoo.build(name).to_onnx()
    del free.graph.value_info[:]
    [declared] = free.graph.input
    dims = declared.type.tensor_type.shape.dim
    usual = [dim.dim_value for dim in dims]
    for axis, dim in enumerate(dims):
        if axis != 1:
            dim.dim_param = f"axis{axis}"
    for output in free.graph.output:
        output.type.tensor_type.ClearField("shape")
    shapes = [(batch, usual[1], *[size] * len(usual[2:])) for batch, size in extents]
    ranges = tuple((min(each), max(each)) for each in zip(usual, *shapes, strict=True))
    session = bl.load(free, shapes={declared.name: ranges}, threads=n_threads, max_plans=len(shapes) + 2)
    found = []
    for shape in shapes:
        is_new = any(extent != most for extent, (_, most) in zip(shape, ranges, strict=True))
        plan, seconds = timed(partial(session.prepare, {declared.name: shape}))
        specs = dict.fromkeys(step.spec for step in plan.steps if isinstance(step.spec, dnnl.Spec))
        _, made = timed(partial(list, map(dnnl.Primitive, specs)))
        found.append((seconds if is_new else None, made))
    return found


def program(name: str, batch: int, size: int | None) -> Program:
    """A network's kernels."""
    return model.lower(model.legalize(model.simplify(zoo.build(name, batch=batch, size=size).to_graph())))


def timed(make: Callable[[], _Made]) -> tuple[_Made, float]:
    """What a function makes, and the CPU seconds that it takes."""
    begin = time.process_time()
    made = make()
    return made, time.process_time() - begin


if __name__ == "__main__":
    sys.exit(main())
