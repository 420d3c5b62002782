"""How much faster are two nodes of one CPU than one, for a model over a dataset of Ray?

Each turn is a cluster of its own on this machine, by Ray's own test cluster, of 1 or 2 nodes that stand for machines of
one CPU: all processes of a node are held to one CPU, the node's own, and have a cache folder of their own. The first
node is the head, and the driver runs there; so Ray's own processes and the driver take their share of the first node's
CPU in both turns, as where a cluster has no machine beside those that compute. The network between nodes is this
machine's memory. Images are random numbers that actors make themselves, by a step before ``bl.ray.map_batches`` that
Ray joins with it; the driver fetches the answers in order. Turns are taken round after round, and beside them one of
the same session in a process that does nothing else, on one CPU and on images that are there already: what a CPU could
reach. Two rates are told: of all images in all of the time, starts of actors and the making of sessions included; and
of those that come after the first quarter, from when that was there.

    python bench/ray_scaling.py --rounds 5 --json out.json --html out.html
    python bench/ray_scaling.py --models mobilenet_v2 --batch 32 --images 8000
    python bench/ray_scaling.py --models squeezenet1_1 --size 64 --batch 4 --images 64 --rounds 1

The machine needs two CPUs that nothing else uses; otherwise the factor says nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from msgspec import to_builtins

import blocklayout as bl
from bench.arguments import networks
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import zoo
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.model import write
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALONE, ONE, TWO = "session alone", "1 node", "2 nodes"
NODES = {ONE: 1, TWO: 2}
STORE_NBYTES = 512 << 20
"""Of each node, for blocks of images."""

CPUS = sorted(os.sched_getaffinity(0))
BATCHES_A_BLOCK = 2
N_FIRST = 0.25
"""Share of the images that come before the second rate begins."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    if args.turn:
        print(json.dumps(take_turn(args)))
        return 0
    if not args.measured and not find_spec("ray"):
        print("Ray is not installed: pip install 'blocklayout[ray]'", file=sys.stderr)
        return 2
    record = read_measured(args, "results") or {
        "environment": describe_environment(1),
        "n_rounds": args.rounds,
        "results": [measure(name, args) for name in args.models],
    }
    record = keep(args, record)
    show(record["results"])
    write_page(args, record, "One and two nodes of Ray", charts(record["results"]))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=("resnet50",), help="of the zoo (default: resnet50)")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--batch", type=positive, default=16, help="images of a run (default: 16)")
    parser.add_argument("--images", type=positive, default=3072, help="of a turn (default: 3072)")
    parser.add_argument("--rounds", type=positive, default=3, help="turns of each (default: 3)")
    parser.add_argument("--turn", nargs=3, metavar=("NAME", "MODEL", "SIZE"), help=argparse.SUPPRESS)
    add_files(parser)
    return parser.parse_args(argv)


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network: rates of each way, and their ratios in the same round."""
    built = zoo.build(name, batch=args.batch, size=args.size)
    [(_, extents)] = [(info.name, info.shape) for info in bl.load(built, threads=1, tune="model").get_inputs()]
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in (ALONE, *NODES)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        write(built, path)
        for _ in range(args.rounds):
            for way, taken in turns.items():
                taken.append(in_own_process(way, path, extents[-1], args))
    rates = {key: {way: [each[key] for each in taken] for way, taken in turns.items()} for key in ("all", "later")}
    return {
        "model": name,
        "batch": args.batch,
        "images": args.images,
        "per_s": {
            key: {way: to_builtins(Spread.of(values)) for way, values in of.items()} for key, of in rates.items()
        },
        "over_one": {key: to_builtins(Spread.of_ratios(of[TWO], of[ONE])) for key, of in rates.items()},
        "over_alone": {key: to_builtins(Spread.of_ratios(of[ONE], of[ALONE])) for key, of in rates.items()},
    }


def in_own_process(way: str, path: Path, size: int, args: argparse.Namespace) -> dict[str, float]:
    """The rates of one turn."""
    options = [f"--batch={args.batch}", f"--images={args.images}", "--turn", way, str(path), str(size)]
    done = subprocess.run([sys.executable, __file__, *options], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def take_turn(args: argparse.Namespace) -> dict[str, float]:
    """Images a second of one way: of all, and of those after the first quarter."""
    way, path, size = args.turn
    counts = alone(path, args) if way == ALONE else on_nodes(NODES[way], path, int(size), args)
    start, n, come = next(counts), 0, []
    for count in counts:
        n += int(count)
        come.append((time.perf_counter() - start, n))
    if n != args.images:
        raise RuntimeError(f"{n} answers to {args.images} images")
    end_s = come[-1][0]
    first_s, n_first = next((each for each in come[:-1] if each[1] >= N_FIRST * n), (0.0, 0))
    return {"all": n / end_s, "later": (n - n_first) / (end_s - first_s)}


def alone(path: str, args: argparse.Namespace) -> Iterator[float]:
    """When the session begins with images that are there already; then of how many each run is."""
    with held_to(0), bl.load(path, threads=1) as session:
        [info] = session.get_inputs()
        images = np.random.default_rng(0).random(info.shape, dtype=np.float32)
        session.run(None, {info.name: images})
        yield time.perf_counter()
        for first in range(0, args.images, args.batch):
            session.run(None, {info.name: images})
            yield min(args.batch, args.images - first)


def on_nodes(n_nodes: int, path: str, size: int, args: argparse.Namespace) -> Iterator[float]:
    """When a cluster begins with the model; then of how many images it has sent the answers."""
    import ray.data

    def random_images(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(int(batch["id"][0]))
        return batch | {"x": rng.random((len(batch["id"]), 3, size, size), dtype=np.float32)}

    n_rows = BATCHES_A_BLOCK * args.batch
    with tempfile.TemporaryDirectory() as folder, cluster_of(n_nodes, Path(folder)):
        items = [{"id": number} for number in range(args.images)]
        # Without tasks that read, as those of range, which take CPUs.
        numbers = ray.data.from_items(items, override_num_blocks=-(-args.images // n_rows))
        images = numbers.map_batches(random_images, batch_size=n_rows)
        answers = bl.ray.map_batches(images, path, batch_size=args.batch, keep=["id"])
        yield time.perf_counter()
        n = 0
        for batch in answers.iter_batches(batch_size=None, batch_format="numpy"):
            if not np.array_equal(batch["id"], np.arange(n, n + len(batch["id"]))):
                raise RuntimeError("answers came in another order")
            n += len(batch["id"])
            yield len(batch["id"])


@contextmanager
def cluster_of(n_nodes: int, folder: Path) -> Iterator[None]:
    """So many nodes of one CPU, each held to its own; the head and the driver, this process, are on the first one's."""
    import ray.data
    from ray.cluster_utils import Cluster

    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "BLOCKLAYOUT_CACHE_DIR": str(folder / "0")}
    node = {"num_cpus": 1, "object_store_memory": STORE_NBYTES}
    with held_to(0):
        cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        try:
            ray.init(cluster.address, log_to_driver=False, logging_level="error")
            ray.data.DataContext.get_current().enable_progress_bars = False
            for number in range(1, n_nodes):
                with held_to(number):
                    cluster.add_node(**node, env_vars={"BLOCKLAYOUT_CACHE_DIR": str(folder / str(number))})
            yield
        finally:
            ray.shutdown()
            cluster.shutdown()


@contextmanager
def held_to(number: int) -> Iterator[None]:
    """Inside, this thread, and the threads and processes that it starts, run on one CPU, the one of this number."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CPUS[number % len(CPUS)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    header = ("model", "batch", "images/s", ALONE, *NODES, "1 node over alone", "2 nodes over 1")
    rows = [
        (
            each["model"],
            str(each["batch"]),
            {"all": "of all", "later": "after a quarter"}[key],
            *(f"{of[way]['median']:.1f}" for way in (ALONE, *NODES)),
            *("{median:.2f} ({low:.2f}-{high:.2f})".format(**each[ratio][key]) for ratio in ("over_alone", "over_one")),
        )
        for each in results
        for key, of in each["per_s"].items()
    ]
    print_table(header, rows, title="images a second, medians", text_columns=(0, 2))


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Ratios and rates."""
    ratios = [Row.of(key, each["over_one"][key], each["model"]) for each in results for key in each["over_one"]]
    rates = [
        Row.of(f"{way}, {key}", value, each["model"])
        for each in results
        for key, of in each["per_s"].items()
        for way, value in of.items()
    ]
    return [
        Chart("Rate of two nodes over that of one, in the same round", "", ratios),
        Chart("Rate", "images/s", rates),
    ]


if __name__ == "__main__":
    sys.exit(main())
