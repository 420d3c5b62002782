"""How fast are kernels of our own next to the library's, layer by layer?

Every layer of a network that one of ours computes is timed in channels-last and in blocks, by ours and by what the
library offers, references and matrix products by gemm left out. Times are those that the planner measures: random data,
cold weights, all of a layer in turn. Reported are medians over rounds, with the ratio of the fastest of ours to the
library's fastest in the same round, and the bytes that ours moves.

    python bench/kernels.py --networks mobilenet_v2,mnasnet1_0,efficientnet_b0 --dtype bf16 --threads 1
    python bench/kernels.py --networks resnet18 --rounds 1 --json out.json
    python bench/kernels.py --files resnet18.int8.onnx

Of files, layers between quantisations are computed with bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.arguments import networks
from bench.records import add_files, keep, read_measured
from blocklayout import dnnl, model, zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.dnnl import own
from blocklayout.ir import BYTES, Wish
from blocklayout.plan import Machine
from blocklayout.plan.candidates.recipes import TileRecipes
from blocklayout.plan.candidates.tiles import fuse
from blocklayout.plan.costs.measuring import SpecTimer
from blocklayout.show.output import print_table
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from blocklayout.dnnl import Spec

NETWORKS = ("mobilenet_v2", "mnasnet1_0", "efficientnet_b0")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print tables, and write what is asked for."""
    args = parse(argv)
    if args.dtype == "bf16" and not dnnl.has_bf16():
        print(f"bf16: not on this CPU ({dnnl.isa()})")
        return 0
    record = keep(args, read_measured(args, "networks") or measure_all(args))
    for network in record["networks"]:
        show(network)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=networks, default=NETWORKS, help="of the zoo, at their usual extents")
    parser.add_argument("--files", nargs="+", type=Path, help="ONNX files in place of these; free extents are 1")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--rounds", type=positive, default=3, help="measurements of each layer (default: 3)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser, has_page=False)
    return parser.parse_args(argv)


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks."""
    timer = SpecTimer()
    found = []
    graphs = {path.name: read(path) for path in args.files or ()}
    for name, graph in graphs.items() or ((name, zoo.build(name).to_graph()) for name in args.networks):
        counts = Counter(layers(graph, args.dtype, args.threads))
        rows = [measured(timer, *layer, args.rounds) | {"n": n} for layer, n in counts.items()]
        found.append({"network": name, "layers": [row for row in rows if "ratio" in row]})
    environment = describe_environment(args.threads)
    return {"environment": environment, "dtype": args.dtype, "n_rounds": args.rounds, "networks": found}


def read(path: Path) -> model.Graph:
    """A file's graph, for one row."""
    free = model.free_extents(path)
    return model.read(path, {name: tuple(each or 1 for each in dims or ()) for name, dims in free.items()})


def layers(graph: model.Graph, dtype: str, n_threads: int) -> Iterator[tuple[str, tuple[Spec, ...]]]:
    """Layouts of each layer that one of ours and one of the library's compute in, with the primitives on offer."""
    program = model.lower(model.legalize(model.simplify(graph)))
    for tile in fuse(program, dtype, n_threads):
        computed_in = BYTES if tile.takes_bytes else dtype
        for layout in () if tile.is_view else ("channels_last", Machine(dnnl.isa(), n_threads).block_names[0]):
            candidates = TileRecipes(tile, computed_in, n_threads).wished(Wish(layout, layout))
            offered = [candidate.steps[0].spec for candidate in candidates if len(candidate.steps) == 1]
            specs = tuple(spec for spec in offered if isinstance(spec, dnnl.Spec) and is_fast(spec.impl))
            if len(set(map(is_ours, specs))) > 1:
                yield layout, specs


def is_fast(impl: str) -> bool:
    """Whether it is neither a reference nor matrix products of windows that were copied into rows."""
    return not dnnl.is_reference(impl) and ("gemm" not in impl or impl.startswith("br"))


def is_ours(spec: Spec) -> bool:
    """Whether code of our own computes it."""
    return own.implementation(spec.impl) is not None


def measured(timer: SpecTimer, layout: str, specs: Sequence[Spec], n_rounds: int) -> dict[str, Any]:
    """A layer in a layout; without times where other work disturbs all rounds."""
    rounds = [dict(zip(specs, timer.time_in_turn(specs), strict=True)) for _ in range(n_rounds)]
    quiet = [times for times in rounds if not any(isinstance(each, Exception) for each in times.values())]
    mine, theirs = (
        [min((ns, spec.impl) for spec, ns in times.items() if is_ours(spec) == side) for times in quiet]
        for side in (True, False)
    )
    spec = next(filter(is_ours, specs))
    params = dict(spec.params)
    window = [*(spec.desc("weights").dims[-2:] if spec.has("weights") else params.get("kernel", ()))]
    row: dict[str, Any] = {"kind": spec.kind, "dims": spec.desc("src").dims, "window": window, "layout": layout}
    row["strides"] = params.get("strides", ())
    if quiet:
        us = [Spread.of(ns / 1e3 for ns, _ in side) for side in (mine, theirs)]
        row |= {
            "impls": [side[-1][1] for side in (mine, theirs)],
            "us": us,
            "ratio": Spread.of_ratios(us[0].values, us[1].values),
        }
        row["gb_per_s"] = spec.nbytes_moved / us[0].median / 1e3
    return to_builtins(row)


def show(network: dict[str, Any]) -> None:
    """Print the layers of a network, and their sums."""
    if not network["layers"]:
        print(f"{network['network']}: no layer is computed by ours and by the library's")
        return
    header = ("kind", "extents", "window", "stride", "n", "layout", "library", "us", "ours", "us", "over it", "GB/s")
    rows = [
        (
            row["kind"],
            *("x".join(map(str, row[name])) for name in ("dims", "window")),
            *("x".join(map(str, dict.fromkeys(row["strides"]))), str(row["n"]), row["layout"]),
            *(row["impls"][1], f"{row['us'][1]['median']:.1f}", row["impls"][0], f"{row['us'][0]['median']:.1f}"),
            "{median:.2f} ({low:.2f}-{high:.2f})".format(**row["ratio"]),
            f"{row['gb_per_s']:.1f}",
        )
        for row in network["layers"]
    ]
    print_table(header, rows, title=network["network"], text_columns=(0, 1, 2, 5, 6, 8))
    for layout in dict.fromkeys(row["layout"] for row in network["layers"]):
        ours, theirs = (
            sum(row["n"] * row["us"][side]["median"] for row in network["layers"] if row["layout"] == layout)
            for side in (0, 1)
        )
        print(f"{network['network']} {layout}: {ours:.0f} us, the library {theirs:.0f}: {ours / theirs:.2f} of it")


if __name__ == "__main__":
    sys.exit(main())
