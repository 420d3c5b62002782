"""How fast are operators on Tensors, one call each, next to PyTorch's eager mode; and what does a call cost by itself?

The same chain of ten operators (convolutions with bias, ReLU, a sum, pooling, batch normalisation) runs on the same
random data in blocks, channels-last and row-major here, and channels-last and contiguous in PyTorch. Each is a process
of its own that is stopped but in its turn; ratios are of turns of the same round. Weights are brought to the format
that is read before (``bl.conv_weights``, ``.to(memory_format=...)``), as a network would be. What a watch sees of
reorders, copies and losses within a run is counted.

    python bench/eager.py --rounds 9 --json out.json --html out.html
    python bench/eager.py --sizes 64x28 --rounds 1 --against none

PyTorch is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.records import add_files, keep, read_measured, write_page
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import extents, positive, words
from blocklayout.show.bench_page import Chart, Row, Table
from blocklayout.show.output import print_table
from blocklayout.timing import TurnProcess, fastest_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS = ("blocked", "channels last", "plain")
THEIRS = ("torch channels last", "torch contiguous")
TURN_NS = 100e6

Chain = Callable[[], Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write what is asked for."""
    args = parse(argv)
    if args.work:
        return work(args.work, args.sizes[0], args.threads)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    for result in record["results"]:
        show(result)
    title = "Operators on Tensors, a call each"
    write_page(args, record, title, charts(record["results"]), [calls_table(record["results"])])
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All sizes."""
    names = [*OURS, *(THEIRS if args.against == "torch" and find_spec("torch") else ())]
    results = [measured(size, names, args) for size in args.sizes]
    return {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=sizes, default=((64, 56), (32, 28), (16, 8)), help="channels and extents: 64x56"
    )
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each (default: 5)")
    parser.add_argument(
        "--threads", type=positive, default=len(os.sched_getaffinity(0)), help="by default all there are"
    )
    parser.add_argument("--against", choices=("torch", "none"), default="torch")
    add_files(parser)
    parser.add_argument("--work", help=argparse.SUPPRESS)  # what a process of its own runs
    return parser.parse_args(argv)


def sizes(text: str) -> tuple[tuple[int, int], ...]:
    """Channels and extents such as ``64x56,32x28``."""
    found = [extents(word) for word in words(text)]
    if any(len(size) != 2 or size[0] % 16 or size[1] < 4 for size in found):
        raise argparse.ArgumentTypeError(f"{text!r}: give channels, a multiple of 16, and extents, such as 64x56,32x28")
    return tuple((channels, extent) for channels, extent in found)


def worker(script: str, name: str, n_threads: int, *arguments: str) -> TurnProcess:
    """A process of a script that measures one thing, by ``--work``."""
    work = (script, "--work", name, "--threads", n_threads, *arguments)
    return TurnProcess(name, work, {"OMP_NUM_THREADS": str(n_threads)})


def measured(size: tuple[int, int], names: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Each way of running the chain at one size, in turn."""
    with ExitStack() as stack:
        sizes = ("--sizes", "x".join(map(str, size)))
        workers = [stack.enter_context(worker(__file__, name, args.threads, *sizes)) for name in names]
        rounds = [[each.turn()["us"] for each in workers] for _ in range(args.rounds)]
    by_worker = list(zip(*rounds, strict=True))
    rows = [
        {
            "name": each.name,
            "us": median(turns),
            "rounds_us": turns,
            "ratios": [turn / first for turn, first in zip(turns, by_worker[0], strict=True)],
            **each.report,
        }
        for each, turns in zip(workers, by_worker, strict=True)
    ]
    return {"size": list(size), "n_threads": args.threads, "rows": rows}


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times of the chain, and their ratios to the first format."""
    rows = [(extents_text(each), row) for each in results for row in each["rows"]]
    first = results[0]["rows"][0]["name"]
    return [
        Chart(
            f"Time over that of {first} in the same round",
            "",
            [Row.of(row["name"], row["ratios"], group) for group, row in rows],
            baseline=first,
        ),
        Chart("Time of the chain", "us", [Row.of(row["name"], row["rounds_us"], group) for group, row in rows]),
    ]


def calls_table(results: Sequence[dict[str, Any]]) -> Table:
    """What a call costs by itself."""
    header = ("extents", "format", "events in a run", "us of a call by itself", "ms of a first call")
    fields = ("n_events", "call_us", "first_ms")
    rows = [
        (extents_text(each), row["name"], *(row[field] for field in fields))
        for each in results
        for row in each["rows"]
        if "n_events" in row
    ]
    return Table("Calls", header, rows)


def extents_text(result: dict[str, Any]) -> str:
    """Extents of the chain's input."""
    channels, extent = result["size"]
    return f"1x{channels}x{extent}x{extent}"


def show(result: dict[str, Any]) -> None:
    """Print a table."""
    first = result["rows"][0]["name"]
    header = (
        "format",
        "us",
        f"over {first}",
        "spread",
        "events in a run",
        "us of a call by itself",
        "ms of a first call",
    )
    table = [
        (
            row["name"],
            f"{row['us']:,.1f}",
            f"{median(row['ratios']):.2f}",
            f"{min(row['ratios']):.2f}..{max(row['ratios']):.2f}",
            str(row.get("n_events", "-")),
            f"{row['call_us']:.1f}" if "call_us" in row else "-",
            f"{row['first_ms']:.1f}" if "first_ms" in row else "-",
        )
        for row in result["rows"]
    ]
    print_table(header, table, title=f"{extents_text(result)}, {result['n_threads']} threads")


def work(name: str, size: tuple[int, int], n_threads: int) -> int:
    """Be one of the processes: tell of the chain, then take a turn whenever a line comes in."""
    rng = np.random.default_rng(0)
    arrays = parameters(*size, rng)
    run, report = torch_chain(name, arrays, n_threads) if name in THEIRS else our_chain(name, arrays)
    run()
    say(report)
    for _ in sys.stdin:
        say({"us": fastest_us(run)})
    return 0


def say(value: object) -> None:
    """Answer on standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def parameters(channels: int, extent: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of the chain: random numbers of the size that keeps activations near 1."""
    shapes = {
        "x": (1, channels, extent, extent),
        "w1": (channels, channels, 3, 3),
        "w2": (channels, channels, 3, 3),
        "w3": (2 * channels, channels, 1, 1),
    }
    shapes |= {f"b{number}": (shapes[f"w{number}"][0],) for number in (1, 2, 3)}
    arrays = {key: rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])) for key, shape in shapes.items()}
    arrays["x"] = rng.standard_normal(shapes["x"])
    arrays |= {key: rng.uniform(0.5, 1.5, 2 * channels) for key in ("scale", "shift", "mean", "var")}
    return {key: array.astype(np.float32) for key, array in arrays.items()}


def our_chain(name: str, arrays: dict[str, np.ndarray]) -> tuple[Chain, dict[str, Any]]:
    """The chain on Tensors."""
    import blocklayout as bl
    from blocklayout.plan import Machine

    block = Machine(bl.dnnl.isa(), 1).block_names[0].removeprefix("blocked")
    layout = {"blocked": f"nChw{block}c", "channels last": "nhwc", "plain": "nchw"}[name]
    x = bl.reorder(arrays["x"], layout)
    vectors = {key: bl.reorder(array, "a") for key, array in arrays.items() if array.ndim == 1}
    w1 = bl.conv_weights(x, arrays["w1"], bias=True, pads=1)
    w2 = bl.conv_weights(x, arrays["w2"], bias=True, pads=1)
    w3 = bl.conv_weights(bl.max_pool(x, 2), arrays["w3"], bias=True)

    def run() -> bl.Tensor:
        y = bl.relu(bl.conv(x, w1, vectors["b1"], pads=1))
        y = bl.relu(bl.add(bl.conv(y, w2, vectors["b2"], pads=1), x))
        y = bl.relu(bl.conv(bl.max_pool(y, 2), w3, vectors["b3"]))
        y = bl.batch_norm(y, vectors["scale"], vectors["shift"], vectors["mean"], vectors["var"])
        return bl.global_average_pool(y)

    run()
    with bl.watch("record") as seen:
        run()
    return run, {"n_events": len(seen), "call_us": call_us(layout), "first_ms": first_ms(layout)}


def first_ms(layout: str) -> float:
    """Milliseconds of a first call, which makes a plan: of convolutions of extents that nobody has seen yet."""
    import blocklayout as bl

    times = []
    for extent in range(9, 14):
        x, weights = bl.ones((1, 16, extent, extent), memory_format=layout), bl.ones((24, 16, 3, 3))
        start = time.perf_counter_ns()
        bl.conv(x, weights, pads=1)
        times.append((time.perf_counter_ns() - start) / 1e6)
    return median(times)


def call_us(layout: str) -> float:
    """Overhead of a call over its primitive, in microseconds: a ReLU of few elements, called and executed bare.

    One thread computes it both ways, as it does whatever takes microseconds.
    """
    import blocklayout as bl
    from blocklayout import dnnl

    x = bl.reorder(np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32), layout)
    spec = dnnl.eltwise(x.desc, algorithm="relu", n_threads=1)
    execution = dnnl.Primitive(spec).bind({"src": dnnl.Memory(x.desc, x.buffer), "dst": dnnl.Memory.empty(x.desc)})
    return fastest_us(lambda: bl.relu(x)) - dnnl.run_parallel(lambda: fastest_us(execution.run), 1)


def torch_chain(name: str, arrays: dict[str, np.ndarray], n_threads: int) -> tuple[Chain, dict[str, Any]]:
    """The chain in PyTorch."""
    import torch
    from torch.nn import functional as F  # noqa: N812 - as everybody calls it

    torch.set_num_threads(n_threads)
    layout = torch.channels_last if name == "torch channels last" else torch.contiguous_format
    given = {key: torch.from_numpy(array) for key, array in arrays.items()}
    given = {key: each.to(memory_format=layout) if each.ndim == 4 else each for key, each in given.items()}
    x = given["x"]

    def run() -> torch.Tensor:
        with torch.inference_mode():
            y = F.relu(F.conv2d(x, given["w1"], given["b1"], padding=1))
            y = F.relu(F.conv2d(y, given["w2"], given["b2"], padding=1) + x)
            y = F.relu(F.conv2d(F.max_pool2d(y, 2), given["w3"], given["b3"]))
            y = F.batch_norm(y, given["mean"], given["var"], given["scale"], given["shift"])
            return F.adaptive_avg_pool2d(y, 1)

    return run, {}


def fastest_us(call: Callable[[], object]) -> float:
    """The fastest of the calls that fit into a turn, in microseconds; the first only wakes the threads."""
    call()
    return fastest_ns(call, TURN_NS) / 1000


if __name__ == "__main__":
    sys.exit(main())
