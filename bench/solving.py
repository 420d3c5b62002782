"""How long does the solve take, and how often is it exact?

Networks are made up: blocks with residuals or branches, like those of ResNet and GoogLeNet, of tiles with random
candidates in three layouts, and random prices of reorders. Their solve is timed for growing numbers of kernels, and
nothing is asked of oneDNN. Small random graphs, in which any tile may read any earlier value, are compared with brute
force.

    python bench/solving.py --kernels 100,300,1000,3000,10000 --graphs 300 --picture docs/solve-time.svg
    python bench/solving.py --kernels 30,60 --graphs 5 --json out.json --html out.html

The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.records import add_files, keep, read_measured, write_page, write_picture
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive, words
from blocklayout.ir import BaseOperator, Candidate, Kernel, Program, RecipeStep, Value
from blocklayout.layout import MemoryDesc
from blocklayout.plan.candidates.tiles import Tile
from blocklayout.plan.network import Network
from blocklayout.plan.solving.solve import solve_layouts
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

SHAPE = (1, 24, 6, 6)
LAYOUTS = ("nchw", "nhwc", "nChw8c")
N_CANDIDATES = 8
SMALL_TABLES = 27


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write what is asked for."""
    args = parse(argv)
    record = keep(args, read_measured(args, "curve") or measure_all(args))
    curve = record["curve"]
    print_table(
        ("kernels", "seconds", "optimal", "gap"),
        [
            (str(row["n_kernels"]), f"{row['seconds']:.3f}", str(row["is_optimal"]), f"{row['gap']:.4f}")
            for row in curve
        ],
        title="blocks with residuals and branches",
    )
    for name, value in record["graphs"].items():
        print(f"{name}: {value}")
    rows = [Row.of(f"{row['n_kernels']:,} kernels", [row["seconds"]]) for row in curve]
    notes = [f"{name}: {value}" for name, value in record["graphs"].items()]
    write_page(args, record, "How long the solve takes", [Chart("Seconds to solve", "s", rows)], notes=notes)
    write_picture(args, lambda: draw(curve))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """The curve, and the comparison with brute force."""
    curve = [timed(n_kernels) for n_kernels in args.kernels]
    return {"environment": describe_environment(1), "curve": curve, "graphs": compared(args.graphs)}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = (100, 300, 1000, 3000, 10_000)
    parser.add_argument("--kernels", type=lambda text: [positive(word) for word in words(text)], default=sizes)
    parser.add_argument("--graphs", type=positive, default=300, help="small random graphs to compare (default: 300)")
    add_files(parser, "the times")
    return parser.parse_args(argv)


@dataclass
class RandomPrices:
    """A price for each pair of layouts; what stands for a step is its price."""

    prices: dict[tuple[str, str], float]

    def step_ns(self, spec: float) -> float:
        """Nanoseconds of a step."""
        return spec

    def reorder_ns(self, src: MemoryDesc, dst: MemoryDesc) -> float:
        """Nanoseconds from one layout to another."""
        return self.prices[src.named("src"), dst.named("src")]


def blocks(n_kernels: int) -> list[list[int]]:
    """Sources of each tile: residual blocks and blocks of branches, by turns."""
    reads: list[list[int]] = [[0]]
    while len(reads) < n_kernels:
        last = len(reads)
        if len(reads) % 2:
            reads += [[last], [last + 1], [last + 2, last]]
        else:
            reads += [[last], [last], [last + 2], [last], [last + 1, last + 3, last + 4]]
    return reads[:n_kernels]


def anything(rng: np.random.Generator) -> list[list[int]]:
    """Up to six tiles that read up to three of the values before them."""
    n_tiles = int(rng.integers(2, 7))
    return [rng.integers(0, tile + 1, rng.integers(1, 4)).tolist() for tile in range(n_tiles)]


def made_up(
    reads: Sequence[Sequence[int]], rng: np.random.Generator, n_candidates: int = 3, outputs: Sequence[int] = (-1,)
) -> Network:
    """A network of one input and a tile for each item of ``reads``, with random candidates and prices.

    Args:
        reads: For each tile the values it reads: 0 is the input, ``n`` what the ``n``-th tile computes.
        rng: Of candidates and prices.
        n_candidates: Of each tile; some may be alike but for their cost.
        outputs: Values that the caller gets.
    """
    values = [Value(f"v{index}", SHAPE, "f32") for index in range(len(reads) + 1)]
    tiles, candidates = [], []
    for index, read in enumerate(reads):
        sources = tuple((f"src_{operand}", values[number]) for operand, number in enumerate(read))
        tiles.append(Tile(Kernel(f"k{index}", BaseOperator(), sources, (), values[index + 1], ())))
        candidates.append(tuple(random_candidate(rng, len(read)) for _ in range(n_candidates)))
    prices = {(a, b): float(rng.integers(1, 50)) for a in LAYOUTS for b in LAYOUTS}
    program = Program("made up", (), (values[0],), tuple(values[index] for index in outputs))
    costs: Any = RandomPrices(prices)
    return Network(program, tuple(tiles), tuple(candidates), costs)


def random_candidate(rng: np.random.Generator, n_sources: int) -> Candidate:
    """Any layouts, any cost."""
    *sources, dst = (MemoryDesc(SHAPE, "f32", str(tag)) for tag in rng.choice(LAYOUTS, n_sources + 1))
    named = tuple((f"src_{operand}", desc) for operand, desc in enumerate(sources))
    ns: Any = float(rng.integers(0, 60))
    return Candidate(sources=named, dst=dst, steps=(RecipeStep(ns, ()),), origin="made up")


def timed(n_kernels: int) -> dict[str, Any]:
    """The solve of one network."""
    network = made_up(blocks(n_kernels), np.random.default_rng(n_kernels), N_CANDIDATES)
    start = time.perf_counter()
    solution = solve_layouts(network)
    seconds = time.perf_counter() - start
    return {
        "n_kernels": n_kernels,
        "seconds": seconds,
        "is_optimal": solution.is_optimal,
        "gap": solution.cost_ns / solution.bound_ns - 1,
    }


def compared(n_graphs: int) -> dict[str, int]:
    """Small random graphs against brute force, with tables as large as they need, and with small ones."""
    counts = dict.fromkeys(
        ("graphs", "said to be optimal", "optimal", "with small tables: said to be optimal", "optimal then",
         "bounds that hold", "wrong"), 0,
    )  # fmt: skip
    for seed in range(n_graphs):
        rng = np.random.default_rng(seed)
        network = made_up(anything(rng), rng, 3)
        best = min(map(network.total_ns, itertools.product(range(3), repeat=len(network.tiles))))
        full, small = solve_layouts(network), solve_layouts(network, SMALL_TABLES)
        counts["graphs"] += 1
        counts["said to be optimal"] += full.is_optimal
        counts["optimal"] += bool(np.isclose(full.cost_ns, best))
        counts["with small tables: said to be optimal"] += small.is_optimal
        counts["optimal then"] += bool(np.isclose(small.cost_ns, best))
        counts["bounds that hold"] += small.bound_ns <= best + 1e-6
        said_wrongly = any(each.is_optimal and not np.isclose(each.cost_ns, best) for each in (full, small))
        counts["wrong"] += said_wrongly or small.bound_ns > best + 1e-6
    return counts


def draw(curve: Sequence[dict[str, Any]]) -> Figure:
    """Seconds against kernels."""
    from bench.drawing import QUIET, TEXT, log_scale, name_begin, new_figure

    figure = new_figure(6.0, 3.6)
    axis = figure.subplots()
    kernels, seconds = [row["n_kernels"] for row in curve], [row["seconds"] for row in curve]
    linear = [seconds[-1] * n / kernels[-1] for n in kernels]
    axis.plot(kernels, linear, ":", color=QUIET, lw=1.2)
    axis.plot(kernels, seconds, "o-", color=TEXT, ms=4.0, lw=1.4)
    log_scale(axis.xaxis, kernels)
    log_scale(axis.yaxis, [*seconds, *linear])
    name_begin(axis, kernels[0], linear[0], "linear", QUIET)
    axis.set_xlabel("kernels")
    axis.set_ylabel("seconds to solve")
    return figure


if __name__ == "__main__":
    sys.exit(main())
