"""Where does channels-last win, tie and lose against blocked and plain, operator by operator?

Each family of operators runs at several sizes, all of its tensors in one layout: row-major (plain), channels-last
(nhwc), and the largest block of the CPU (8, or 16 with AVX-512). Of the implementations on offer in a layout the
fastest counts, reference ones (``ref``) only where there is no other. Times are those that the planner measures: random
data, cold weights, all layouts of an operator in turn; what other work disturbs does not count. Channels-last wins
where it is more than 5 % faster than the better of the others, the median over rounds.

    python bench/operators.py --rounds 5 --json out.json --html out.html --picture docs/operators.svg
    python bench/operators.py --families convolution,pooling --batch 16 --dtype bf16
    python bench/operators.py --sizes 16x14 --rounds 1

The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from msgspec import convert, to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.operator_problems import SIZES, Problem, problems
from bench.records import add_files, keep, read_measured, write_page, write_picture
from blocklayout import Builder, dnnl, model
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import extents, positive, words
from blocklayout.dnnl import Spec, is_reference
from blocklayout.errors import DisturbedError, DnnlError, UnsupportedError
from blocklayout.ir import TensorInfo, Wish, wished_desc
from blocklayout.layout import MemoryDesc
from blocklayout.plan import Machine
from blocklayout.plan.candidates.recipes import TileRecipes
from blocklayout.plan.candidates.tiles import fuse, value_info
from blocklayout.plan.costs.measuring import SpecTimer
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure

    from blocklayout.ir import BaseOperator

PLAIN, NHWC = "plain", "channels_last"
MARGIN = 1.05
MAX_ATTEMPTS = 3

Way = tuple[Spec, ...]
"""Primitives in a row that compute an operator."""


@dataclass(frozen=True)
class Timed:
    """An operator in one layout.

    Attributes:
        impl: Implementations, one for each primitive; none where the layout is not offered.
        is_reference: Whether one of them is a reference.
        us: Microseconds, over the rounds; ``None`` if other work has disturbed all of them.
        rounds: The same, by the number of the round.
    """

    impl: str
    is_reference: bool
    us: Spread | None
    rounds: Mapping[int, float]


NOT_OFFERED = Timed("", is_reference=False, us=None, rounds={})


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write what is asked for."""
    args = parse(argv)
    if args.dtype == "bf16" and not dnnl.has_bf16():
        print(f"bf16: not on this CPU ({dnnl.isa()})")
        return 0
    record = keep(args, read_measured(args, "operators") or measure_all(args))
    rows = record["operators"]
    show(rows, record["reorders"])
    write_page(args, record, "Operators in each layout", charts(rows, record["reorders"]))
    write_picture(args, lambda: draw(rows))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All operators, and the reorders between the layouts."""
    layouts = (PLAIN, NHWC, Machine(dnnl.isa(), args.threads).block_names[0])
    timer = SpecTimer()
    rows = []
    for problem in problems(args.batch, args.sizes):
        if any(word in problem.family for word in args.families):
            rows.append(as_record(measured(problem, layouts, timer, args)))
            print(f"{problem.name}: {rows[-1]['verdict']}", file=sys.stderr)
    reorders = [as_record(row) for size in args.sizes for row in measured_reorders(size, layouts, timer, args)]
    record = {"environment": describe_environment(args.threads), "dtype": args.dtype, "n_rounds": args.rounds}
    return record | {"operators": rows, "classes": classes(rows), "reorders": reorders}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", type=words, default=("",), help="words that names of families contain")
    parser.add_argument("--sizes", type=sizes, default=SIZES, help="channels and extents of images: 32x112,512x7")
    parser.add_argument("--batch", type=positive, default=1, help="images at a time (default: 1)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--rounds", type=positive, default=3, help="measurements of each (default: 3)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser, "the ratios")
    return parser.parse_args(argv)


def shown(layout: str) -> str:
    """A layout's name for people."""
    return "nhwc" if layout == NHWC else layout


def sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Channels and extents such as ``32x112,512x7``."""
    found = [extents(word) for word in words(text)]
    if any(len(size) != 2 or size[0] % 8 or min(size) < 2 for size in found):
        raise argparse.ArgumentTypeError(f"{text!r}: give channels, a multiple of 8, and extents, such as 32x112,512x7")
    return tuple((channels, extent) for channels, extent in found)


def ways(problem: Problem, layout: str, dtype: str, n_threads: int) -> list[Way]:
    """Implementations offered with every tensor in one layout."""
    if problem.ask is not None:
        try:
            source = wished_desc(layout, TensorInfo(problem.dims, dtype))
            return [(dnnl.resolve(problem.ask(source).replace(n_threads=n_threads)).spec,)]
        except (DnnlError, UnsupportedError):
            return []
    b = Builder(opset=21)  # the first with group normalisation
    b.output("y", problem.build(b, b.input("x", problem.dims)))
    program = model.lower(model.legalize(model.simplify(b.to_graph())))
    descs = {value.name: wished_desc(layout, value_info(value, dtype)) for value in program.inputs}
    moves: list[Spec] = []
    found: list[Way] = [()]
    for tile in fuse(program, dtype, n_threads):
        if tile.is_view:
            src = descs[tile.sources["src"].name]
            seen = tile.main.operator.through(src)
            if seen is None or not dnnl.is_expressible(seen):
                seen = wished_desc(layout, value_info(tile.dst, dtype))
                passed = stations(tile.main.operator, src, seen)
                moves += [dnnl.resolve(dnnl.reorder(*ends, n_threads=n_threads)).spec for ends in passed]
            descs[tile.dst.name] = seen
        elif any(value.name not in descs for value in tile.sources.values()):
            raise UnsupportedError(f"{problem.name}: more than one kernel computes it; give a problem of one")
        else:
            given = {operand: descs[value.name] for operand, value in tile.sources.items()}
            first = next(iter(given.values()))
            recipes = list(TileRecipes(tile, dtype, n_threads).wished(Wish(first, first)))
            wanted = [recipe for recipe in recipes if fits(dict(recipe.sources), given)]
            found = [tuple(step.spec for step in recipe.steps) for recipe in wanted]
            descs[tile.dst.name] = wished_desc(first, value_info(tile.dst, dtype))
    whole = [(*moves, *way) for way in found if moves or way]
    measurable = [way for way in whole if all(isinstance(spec, Spec) for spec in way)]
    return [way for way in measurable if not is_slow(way)] or measurable


def stations(view: BaseOperator, src: MemoryDesc, dst: MemoryDesc) -> list[tuple[MemoryDesc, MemoryDesc]]:
    """What is moved where a view of a source has to come in another layout: once, or by way of row-major."""
    held = view.back(dst)
    if held is not None and dnnl.is_expressible(held):
        return [(src, held)]
    return [(src, MemoryDesc(src.dims, src.dtype)), (MemoryDesc(dst.dims, dst.dtype), dst)]


def fits(demanded: Mapping[str, MemoryDesc], given: Mapping[str, MemoryDesc]) -> bool:
    """Whether all sources are read in the layouts in which they are given."""
    return all(demanded[operand].physically_equal(desc) for operand, desc in given.items())


def is_slow(way: Way) -> bool:
    """Whether a reference has a part in it."""
    return any(is_reference(spec.impl) for spec in way)


def measured(problem: Problem, layouts: Sequence[str], timer: SpecTimer, args: argparse.Namespace) -> dict[str, Any]:
    """An operator in every layout, in turn."""
    offered = {layout: ways(problem, layout, args.dtype, args.threads) for layout in layouts}
    specs = list(dict.fromkeys(spec for found in offered.values() for way in found for spec in way))
    rounds = [dict(zip(specs, one_round(timer, specs), strict=True)) for _ in range(args.rounds)]
    timed = {layout: fastest(found, rounds) for layout, found in offered.items()}
    row: dict[str, Any] = {"family": problem.family, "dims": problem.dims, "layouts": timed}
    row |= {f"{shown(layout)}_over_nhwc": over(timed[layout], timed[NHWC]) for layout in layouts if layout != NHWC}
    return row | {"verdict": verdict(timed[NHWC], [timed[layout] for layout in layouts if layout != NHWC])}


def one_round(timer: SpecTimer, specs: Sequence[Spec]) -> list[float | None]:
    """Nanoseconds of each, in turn; of what other work disturbs there are none, even at the last attempt."""
    for _ in range(MAX_ATTEMPTS):
        outcomes = timer.time_in_turn(specs)
        if not any(isinstance(outcome, DisturbedError) for outcome in outcomes):
            break
    return [None if isinstance(outcome, Exception) else outcome for outcome in outcomes]


def fastest(found: Sequence[Way], rounds: Sequence[Mapping[Spec, float | None]]) -> Timed:
    """The fastest way, over the rounds in which nothing disturbed it."""
    candidates = [timed_way(way, rounds) for way in found]
    quiet = [timed for timed in candidates if timed.us is not None]
    return min(quiet or candidates, key=lambda timed: timed.us.median if timed.us else 0.0, default=NOT_OFFERED)


def timed_way(way: Way, rounds: Sequence[Mapping[Spec, float | None]]) -> Timed:
    """Time of one way to compute it."""
    sums = {}
    for number, times in enumerate(rounds):
        parts = [times[spec] for spec in way]
        if None not in parts:
            sums[number] = sum(ns or 0.0 for ns in parts) / 1e3
    us = Spread.of(sums.values()) if sums else None
    return Timed(", ".join(spec.impl for spec in way), is_slow(way), us, sums)


def over(one: Timed, other: Timed) -> Spread | None:
    """The ratios of the same rounds, where there are any."""
    both = [number for number in one.rounds if number in other.rounds]
    return Spread.of_ratios(map(one.rounds.__getitem__, both), map(other.rounds.__getitem__, both)) if both else None


def verdict(nhwc: Timed, others: Sequence[Timed]) -> str:
    """How channels-last does next to the better of the other layouts."""
    if not nhwc.impl:
        return "not offered"
    offered = [timed for timed in others if timed.impl]
    if not offered:
        return "alone"
    ratios = [over(timed, nhwc) for timed in offered]
    medians = [ratio.median for ratio in ratios if ratio is not None]
    if len(medians) < len(offered):
        return "disturbed"
    ratio = min(medians)
    if 1 / MARGIN <= ratio <= MARGIN:
        return "ties"
    return "wins" if ratio > 1 else "loses"


def classes(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Families of operators by how channels-last does next to row-major: geometric means over the sizes."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ratio = row[f"{PLAIN}_over_nhwc"]
        if ratio is not None:
            ratios.setdefault(row["family"], []).append(ratio["median"])
    found: dict[str, list[str]] = {"faster than": [], "as fast as": [], "slower than": []}
    for family, each in ratios.items():
        mean = geometric_mean(each)
        name = "faster than" if mean > MARGIN else "slower than" if mean < 1 / MARGIN else "as fast as"
        found[name].append(f"{family} ({mean:.2f})")
    return found


def measured_reorders(
    size: tuple[int, int], layouts: Sequence[str], timer: SpecTimer, args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Every change between the layouts, in turn."""
    info = TensorInfo((args.batch, size[0], size[1], size[1]), args.dtype)
    pairs = list(permutations(layouts, 2))
    descs = {layout: wished_desc(layout, info) for layout in layouts}
    specs = [dnnl.reorder(descs[src], descs[dst], n_threads=args.threads) for src, dst in pairs]
    rounds = [one_round(timer, specs) for _ in range(args.rounds)]
    for number, (src, dst) in enumerate(pairs):
        quiet = [ns for ns in (times[number] for times in rounds) if ns is not None]
        if quiet:
            nbytes = descs[src].nbytes + descs[dst].nbytes
            us = Spread.of(quiet).scaled(1e-3)
            yield {
                "dims": info.dims,
                "from": shown(src),
                "to": shown(dst),
                "us": us,
                "gb_per_s": nbytes / us.median / 1e3,
            }


def others(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Layouts beside channels-last."""
    return [layout for layout in rows[0]["layouts"] if layout != shown(NHWC)] if rows else []


def time_text(timed: dict[str, Any]) -> str:
    """Microseconds, marked where a reference took them."""
    if timed["us"] is None:
        return "disturbed" if timed["impl"] else "-"
    return f"{timed['us']['median']:,.1f}{' ref' if timed['is_reference'] else ''}"


def show(rows: Sequence[dict[str, Any]], reorders: Sequence[dict[str, Any]]) -> None:
    """Print the tables, and how often channels-last wins, ties and loses."""
    names = [*rows[0]["layouts"]] if rows else []
    header = ("operator", "extents", *names, *(f"{name} over nhwc" for name in others(rows)), "nhwc")
    cells = []
    for row in rows:
        times = [time_text(timed) for timed in row["layouts"].values()]
        ratios = [row[f"{name}_over_nhwc"] for name in others(rows)]
        spreads = ["{median:.2f} ({low:.2f}-{high:.2f})".format(**each) if each else "-" for each in ratios]
        cells.append((row["family"], "x".join(map(str, row["dims"])), *times, *spreads, row["verdict"]))
    print_table(header, cells, title="microseconds; ref: a reference implementation", text_columns=(0, 1, 7))
    counts = Counter(row["verdict"] for row in rows)
    print(f"channels-last: {', '.join(f'{verdict} {count}' for verdict, count in counts.most_common())}")
    for name, families in classes(rows).items():
        print(f"channels-last {name} row-major: {', '.join(families) or '-'}")
    moves = [
        (
            f"{row['from']} to {row['to']}",
            "x".join(map(str, row["dims"])),
            f"{row['us']['median']:,.1f}",
            f"{row['us']['low']:,.1f}-{row['us']['high']:,.1f}",
            f"{row['gb_per_s']:.1f}",
        )
        for row in reorders
    ]
    print_table(("reorder", "extents", "us", "least-most", "GB/s"), moves, title="reorders", text_columns=(0, 1))


def as_record(row: dict[str, Any]) -> dict[str, Any]:
    """An operator or a reorder for JSON."""
    record = row | {key: to_builtins(value) for key, value in row.items() if isinstance(value, Spread)}
    if "layouts" in row:
        record["layouts"] = {shown(layout): to_builtins(timed) for layout, timed in row["layouts"].items()}
    return record


def charts(rows: Sequence[dict[str, Any]], reorders: Sequence[dict[str, Any]]) -> list[Chart]:
    """The times of the other layouts over that of channels-last, all times, and those of reorders."""
    ratios = [
        Row.of(f"{extents_text(row)} {name}", ratio, row["family"])
        for row in rows
        for name in others(rows)
        if (ratio := row[f"{name}_over_nhwc"]) is not None
    ]
    times = [
        Row.of(f"{extents_text(row)} {name}{' ref' if timed['is_reference'] else ''}", timed["us"], row["family"])
        for row in rows
        for name, timed in row["layouts"].items()
        if timed["us"] is not None
    ]
    moves = [Row.of(f"{row['from']} to {row['to']}", row["us"], extents_text(row)) for row in reorders]
    return [
        Chart("Time over that of channels-last in the same round", "", ratios, baseline="nhwc"),
        Chart("Time of an operator", "us", times),
        Chart("Time of a reorder", "us", moves),
    ]


def extents_text(row: dict[str, Any]) -> str:
    """Channels and extent of an image."""
    return "x".join(map(str, row["dims"][1:3]))


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """The times of the other layouts over that of channels-last, operator by operator."""
    from bench.drawing import Lane, draw_lanes, lanes_height, mark_one, names_above, new_figure

    groups: dict[str, list[Lane]] = {}
    for row in rows:
        found = {name: row[f"{name}_over_nhwc"] for name in others(rows)}
        spans = {name: convert(ratio, Spread) for name, ratio in found.items() if ratio is not None}
        if spans:
            groups.setdefault(row["family"], []).append(Lane(spans, extents_text(row)))
    figure = new_figure(9.0, lanes_height(groups) + 0.8)
    axis = figure.subplots()
    draw_lanes(axis, groups, is_named=False, n_most=9)
    mark_one(axis, "")
    names_above(axis, 2)
    axis.set_xlabel("time over channels-last's in the same round: above 1 channels-last is faster")
    return figure


if __name__ == "__main__":
    sys.exit(main())
