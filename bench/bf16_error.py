"""How far are results in bf16 from those in f32: ours, next to PyTorch's?

Each network of the zoo is written as an ONNX file. We run it in f32 and in bf16, and in bf16 without Winograd's method
(*direct*). PyTorch runs the module that ``onnx2torch`` makes of the file, converted to bf16 (*module*), and as it is
under autocast to bf16 (*autocast*). An error is the norm of the difference from our result in f32 over that result's
norm; of several outputs the mean. Each draw has weights and an input of its own. Shown are means over the draws, and
the error of ours over that of the module in the same draw: the geometric mean, and the factor of its standard error.

    python bench/bf16_error.py --draws 4 --json out.json
    python bench/bf16_error.py --models squeezenet1_1 --size 64 --draws 1

It takes a CPU that computes in bf16. Nothing is timed, and plans are those that estimates choose.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

import blocklayout as bl
from bench.arguments import networks
from bench.records import add_files, keep, read_measured
from blocklayout import dnnl, zoo
from blocklayout.commands.against import pytorch
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.model import write
from blocklayout.plan.costs.random_data import random_array
from blocklayout.show.output import print_table

Feeds: TypeAlias = Mapping[str, np.ndarray]
Results: TypeAlias = Sequence[np.ndarray]

WAYS = OURS, DIRECT, MODULE, AUTOCAST = ("ours", "direct", "module", "autocast")


def main(argv: Sequence[str] | None = None) -> int:
    """Compute errors, print a table, and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=zoo.names(), help="of the zoo (default: all)")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--draws", type=positive, default=4, help="of weights and inputs (default: 4)")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser, has_page=False)
    args = parser.parse_args(argv)
    show((read_measured(args, "results") or compute_all(args))["results"])
    return 0


def compute_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    results: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "draws": args.draws, "results": results}
    pytorch.import_converter(torch)
    for name in args.models:
        draws = [dict(draw(name, seed, args)) for seed in range(args.draws)]
        results.append({"model": name, "errors": {way: [each[way] for each in draws] for way in draws[0]}})
        record = keep(args, record)
        print(f"{name}: {len(draws)} draws", file=sys.stderr)
    return record


def draw(name: str, seed: int, args: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """The error of each way with weights and an input of this seed; of the ways that can run the network."""
    built = zoo.build(name, size=args.size, seed=seed)
    graph, generator = built.to_graph(), np.random.default_rng(seed)
    feeds = {each: random_array(graph.values[each].dtype, graph.shape(each), generator) for each in graph.inputs}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.onnx"))
        write(built, path)
        exact = _ours(path, args.threads, feeds, "f32")
        for way in WAYS:
            try:
                results = _results(way, path, args.threads, feeds)
            except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
                print(f"{name}, {way}: {error}", file=sys.stderr)
            else:
                yield way, statistics.fmean(map(_error, results, exact))
            gc.collect()  # modules are garbage that refers to itself, and large


def _results(way: str, path: str, n_threads: int, feeds: Feeds) -> Results:
    """What a way computes in bf16."""
    if way == MODULE:
        return pytorch.open_eager(torch, path, n_threads, "bf16")(feeds)
    if way == AUTOCAST:
        with torch.autocast("cpu", torch.bfloat16):
            return pytorch.open_eager(torch, path, n_threads, "f32")(feeds)
    return _ours(path, n_threads, feeds, "bf16", {"winograd": False} if way == DIRECT else None)


def _ours(path: str, n_threads: int, feeds: Feeds, dtype: str, recipes: dict[str, bool] | None = None) -> Results:
    with bl.load(path, threads=n_threads, dtype=dtype, recipes=recipes, tune="model") as session:
        return [result.copy() for result in session.run(None, feeds)]


def _error(result: np.ndarray, exact: np.ndarray) -> float:
    wide = exact.astype(np.float64)
    return float(np.linalg.norm(result - wide) / np.linalg.norm(wide))


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    rows = []
    for result in results:
        errors: dict[str, list[float]] = result["errors"]
        means = [f"{statistics.fmean(errors[way]):.5f}" if way in errors else "-" for way in WAYS]
        rows.append((result["model"], *means, *_ratio(errors)))
    print_table(("model", *WAYS, "ours / module", "+-"), rows, title="Error of bf16")


def _ratio(errors: Mapping[str, Sequence[float]]) -> tuple[str, str]:
    """Of the error of ours to that of the module: the geometric mean, and its standard error."""
    if MODULE not in errors:
        return "-", "-"
    logs = [math.log(ours / theirs) for ours, theirs in zip(errors[OURS], errors[MODULE], strict=True)]
    deviation = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    return f"{math.exp(statistics.fmean(logs)):.3f}", f"{deviation:.3f}"


if __name__ == "__main__":
    sys.exit(main())
