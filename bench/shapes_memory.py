"""How much memory does a session take when every run brings another shape?

A residual network with free batch, height and width runs on random extents, each seen once. After each run
the resident set of the process, the bytes that the session says it holds, and the number of oneDNN objects
are noted. The same shapes run through two sessions, each in a process of its own: one keeps 8 plans, as by
default, the other one as many as there are shapes.

    python bench/shapes_memory.py --picture docs/shapes-memory.svg
    python bench/shapes_memory.py --shapes 40 --json out.json

What grows at first in the session of 8 plans are the library's and our own caches of descriptors, which have
bounds. The picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.records import add_files, keep, read_measured, write_picture
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.runtime import MAX_PLANS
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from onnx import ModelProto

SEED = 0
MIB = 1 << 20

Curve = list[dict[str, int]]
"""For each run: ``rss_nbytes``, ``held_nbytes``, ``packed_nbytes``, ``n_plans`` and ``n_handles``."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure both sessions, print a table, and write what is asked for."""
    args = parse(argv)
    if args.worker is not None:
        json.dump(measure(args.shapes, args.worker, args.threads), sys.stdout)
        return 0
    curves = keep(args, read_measured(args) or measure_all(args))["curves"]
    show(curves)
    write_picture(args, lambda: draw(curves))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """Both sessions."""
    curves = {f"{n_plans} plans": measure_apart(n_plans, args) for n_plans in dict.fromkeys((MAX_PLANS, args.shapes))}
    return {"environment": describe_environment(args.threads), "curves": curves}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; a worker gets the number of plans to keep by it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=positive, default=200, help="how many (default: 200)")
    parser.add_argument("--threads", type=positive, default=2, help="threads of a run (default: 2)")
    add_files(parser, "the curves", has_page=False)
    parser.add_argument("--worker", type=positive, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def measure_apart(n_plans: int, args: argparse.Namespace) -> Curve:
    """One session in a process of its own."""
    command = [sys.executable, __file__, "--worker", str(n_plans), "--shapes", str(args.shapes)]
    done = subprocess.run([*command, "--threads", str(args.threads)], check=True, stdout=subprocess.PIPE)
    curve: Curve = json.loads(done.stdout)
    return curve


def measure(n_shapes: int, n_plans: int, n_threads: int) -> Curve:
    """Run every shape once, and note what is held after it."""
    session = bl.load(free_network(), threads=n_threads, max_plans=n_plans)
    curve: Curve = []
    for shape in random_shapes(n_shapes):
        session.run(None, {"image": np.random.default_rng(SEED).standard_normal(shape, dtype=np.float32)})
        gc.collect()  # what is measured is what is held, not what waits to be collected
        held = session.memory()
        curve.append(
            {
                "rss_nbytes": held.process_nbytes,
                "held_nbytes": held.nbytes,
                "packed_nbytes": held.packed_nbytes,
                "n_plans": held.n_plans,
                "n_handles": sum(bl.dnnl.live_handles().values()),
            }
        )
    return curve


def random_shapes(count: int) -> Iterator[tuple[int, int, int, int]]:
    """Different extents, batch 1 to 4 and 16 to 96 pixels a side, the same in each process."""
    generator = np.random.default_rng(SEED)
    seen: set[tuple[int, int, int, int]] = set()
    while len(seen) < count:
        batch, height, width = (int(generator.integers(*bounds)) for bounds in ((1, 5), (16, 97), (16, 97)))
        shape = batch, 3, height, width
        if shape not in seen:
            seen.add(shape)
            yield shape


def free_network() -> ModelProto:
    """A stem, three residual blocks and a classifier; batch, height and width are free."""
    generator = np.random.default_rng(SEED)

    def weights(*shape: int) -> np.ndarray:
        scale = np.float32(np.sqrt(2 / np.prod(shape[1:])))
        return generator.standard_normal(shape, dtype=np.float32) * scale

    b = bl.Builder("shapes")
    y = b.input("image", (1, 3, 32, 32)).conv(weights(32, 3, 3, 3), np.zeros(32, np.float32), pads=1).relu()
    for channels in (32, 64, 128):
        wide = y.conv(weights(channels, y.shape[1], 1, 1), strides=2)
        inner = y.conv(weights(channels, y.shape[1], 3, 3), pads=1, strides=2).relu()
        y = (inner.conv(weights(channels, channels, 3, 3), pads=1) + wide).relu()
    b.output("scores", y.global_average_pool().flatten().gemm(weights(10, 128), trans_b=True))
    model = b.to_onnx()
    del model.graph.value_info[:]
    extents = [*model.graph.input[0].type.tensor_type.shape.dim, *model.graph.output[0].type.tensor_type.shape.dim]
    for extent, name in zip(extents, ("n", "", "height", "width", "n", ""), strict=True):
        if name:
            extent.dim_param = name
    return model


def show(curves: Mapping[str, Curve]) -> None:
    """Print some points of the curves."""
    rows = []
    for name, curve in curves.items():
        for number in dict.fromkeys((1, *range(25, len(curve) + 1, 25), len(curve))):
            point = curve[min(number, len(curve)) - 1]
            nbytes = [f"{point[key] / MIB:.1f}" for key in ("rss_nbytes", "held_nbytes", "packed_nbytes")]
            rows.append((name, str(number), *nbytes, str(point["n_plans"]), str(point["n_handles"])))
    header = ("session of", "shapes", "resident MiB", "held MiB", "weights MiB", "plans", "objects")
    print_table(header, rows, title="Memory of a session that sees a new shape each run", text_columns=(0,))


def draw(curves: Mapping[str, Curve]) -> Figure:
    """Resident sets and what sessions hold, shape by shape."""
    from bench.drawing import looks, name_end, new_figure

    figure = new_figure(7.0, 3.6)
    axes = figure.subplots()
    for name, (colour, _) in looks(curves).items():
        curve = curves[name]
        for what, field, style in (("resident set", "rss_nbytes", "-"), ("arenas and weights", "held_nbytes", ":")):
            mib = [point[field] / MIB for point in curve]
            axes.plot(range(1, len(curve) + 1), mib, style, color=colour, lw=1.5)
            name_end(axes, len(curve), mib[-1], f"{name}: {what}", colour)
    axes.set(xlabel="shapes seen, a new one each run", ylabel="MiB", ylim=(0, None))
    axes.grid(visible=True)
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0, 0.78, 1))
    return figure


if __name__ == "__main__":
    sys.exit(main())
