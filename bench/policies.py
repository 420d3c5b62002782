"""Which layout policy is fastest on whole ImageNet networks, and by how much?

Each network runs on random data in every policy; each policy is timed in turn with ``auto``, and the
ratio to auto is the median of those of single rounds. Every network and instruction set has a process of
its own, and errors are taken afterwards, in yet another process, against onnxruntime where it is installed:
two runtimes in one process slow each other down. In the tables, ``ratio`` is the time over auto's, ``error``
the largest difference relative to the largest output, ``ref`` the number of reference implementations.

    python bench/policies.py --models resnet50,squeezenet,vgg19,bvlc_alexnet --isa native,avx2 --rounds 7
    python bench/policies.py --models digits --rounds 1 --json out.json --html out.html

Source: networks of the onnx package with seeded random weights (``bench/light.py``), and the
embedded digit classifier (``digits``).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import light
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, model
from blocklayout.commands.comparing import Contender, Race, largest_difference
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import SEED, chosen_shapes
from blocklayout.commands.options import positive, words
from blocklayout.plan import POLICIES
from blocklayout.plan.costs.random_data import random_array
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import json_text, print_table
from blocklayout.show.words import kib, small
from blocklayout.zoo import digits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blocklayout.model import Graph, OnnxModel

EMBEDDED = "digits"
NATIVE = "native"
MAX_ISA = "ONEDNN_MAX_CPU_ISA"
DTYPES = ("f32", "bf16")

HEADER = ("layout", "dtype", "ms", "ratio", "least-most", "est. ms", "error", "reorders", "KiB moved", "pad KiB", "ref")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table for each network and instruction set, and write what is asked for."""
    args = parse(argv)
    if args.worker:
        return WORKERS[args.worker](args)
    record = keep(args, read_measured(args, "results") or measure_all(args))
    results = record["results"]
    if args.measured:
        for result in results:
            show(result)
    write_page(args, record | {"environment": results[0]["environment"]}, "Policies", charts(results))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks and instruction sets."""
    results = [measure_apart(name, isa, args) for isa in args.isa for name in args.models]
    return {"n_rounds": args.rounds, "results": results}


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times, and their ratios to auto's."""
    rows = [
        (f"{row['policy']} {row['dtype']}", row, f"{result['model']}, {result['isa']}")
        for result in results
        for row in result["policies"]
    ]
    first = rows[0][0]
    return [
        Chart(
            f"Time over that of {first} in the same round",
            "",
            [Row.of(name, row["ratio"], group) for name, row, group in rows],
            baseline=first,
        ),
        Chart("Time of a run", "ms", [Row.of(name, row["time_ms"], group) for name, row, group in rows]),
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; workers get their arguments by it too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join((EMBEDDED, *light.NAMES))
    parser.add_argument("--models", type=words, default=("resnet50", "squeezenet"), help=f"of {known}")
    parser.add_argument("--isa", type=words, default=(NATIVE,), help=f"values of {MAX_ISA}, or {NATIVE}")
    parser.add_argument("--policies", type=words, default=POLICIES, help="auto is always among them, and first")
    parser.add_argument("--dtypes", type=words, default=("f32",), help="f32, bf16; the latter where the CPU can")
    parser.add_argument("--rounds", type=positive, default=7, help="measurements of each (default: 7)")
    parser.add_argument("--threads", type=positive, help="by default all that this process may use")
    add_files(parser)
    parser.add_argument("--worker", choices=WORKERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    unknown = {*args.models} - {EMBEDDED, *light.NAMES}
    if unknown or {*args.dtypes} - {*DTYPES}:
        parser.error(f"no such model or data type; there are {known}; {', '.join(DTYPES)}")
    return args


def measure_apart(name: str, isa: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network on one instruction set: times in one process, errors in the next."""
    environ = dict(os.environ) if isa == NATIVE else os.environ | {MAX_ISA: isa.upper()}
    with tempfile.TemporaryDirectory() as folder:
        start_worker("time", name, folder, args, environ)
        if find_spec("onnxruntime"):
            start_worker("check", name, folder, args, dict(os.environ))
        result: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    whole = {"model": name, "isa": isa, **result}
    show(whole)
    return whole


def start_worker(worker: str, name: str, folder: str, args: argparse.Namespace, environ: dict[str, str]) -> None:
    """Run this file as a worker, and wait for it."""
    command = [sys.executable, __file__, "--worker", worker, "--folder", folder, "--models", name]
    command += ["--policies", ",".join(args.policies), "--dtypes", ",".join(args.dtypes), "--rounds", str(args.rounds)]
    command += ["--threads", str(args.threads)] if args.threads else []
    subprocess.run(command, check=True, env=environ)


def time_policies(args: argparse.Namespace) -> int:
    """The worker that measures; leaves its results and the outputs in the folder."""
    opened = open_network(args.models[0])
    feeds = random_feeds(opened)
    race = Race(opened, feeds, args.threads, args.rounds, lambda _: None)
    dtypes = [dtype for dtype in args.dtypes if dtype == "f32" or dnnl.has_bf16()]
    policies = dict.fromkeys(("auto", *args.policies))
    _, measurements = race.run([Contender(policy, dtype) for dtype in dtypes for policy in policies])
    for index, measurement in enumerate(measurements):
        for number, output in enumerate(measurement.outputs.values()):
            np.save(args.folder / f"{index}_{number}.npy", output)
    result = {
        "environment": describe_environment(measurements[0].plan.n_threads),
        "not_run": [f"{dtype}: not on this CPU ({dnnl.isa()})" for dtype in args.dtypes if dtype not in dtypes],
        "policies": [measurement.to_dict() for measurement in measurements],
    }
    (args.folder / "result.json").write_text(json_text(result), encoding="utf-8")
    return 0


def check_outputs(args: argparse.Namespace) -> int:
    """The worker that compares the outputs with onnxruntime's, and adds the errors to the results."""
    import onnxruntime

    source = model_bytes(args.models[0])
    feeds = random_feeds(model.open_model(source))
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    path = args.folder / "result.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    for index, row in enumerate(result["policies"]):
        outputs = [np.load(args.folder / f"{index}_{number}.npy") for number in range(len(expected))]
        row["error"] = largest_difference(outputs, expected)
    result["environment"]["onnxruntime"] = onnxruntime.__version__
    path.write_text(json_text(result), encoding="utf-8")
    return 0


WORKERS = {"time": time_policies, "check": check_outputs}


def open_network(name: str) -> OnnxModel | Graph:
    """A network, opened once for all policies."""
    return model.open_model(digits.model_bytes() if name == EMBEDDED else light.light_model(name))


def model_bytes(name: str) -> bytes:
    """A network as a serialised ONNX model."""
    return digits.model_bytes() if name == EMBEDDED else light.light_model(name).SerializeToString()


def random_feeds(opened: OnnxModel | Graph) -> dict[str, np.ndarray]:
    """Normally distributed inputs, the same in each process; never zeros, on which a CPU is faster."""
    generator = np.random.default_rng(SEED)
    shapes = chosen_shapes(opened, {})
    return {
        info.name: random_array(info.dtype, shapes[info.name], generator) for info in model.signature(opened).inputs
    }


def show(result: dict[str, Any]) -> None:
    """Print one network's table, and why reference implementations run, if any do."""
    environment = result["environment"]
    title = (
        f"{result['model']}: {environment['isa']}, {environment['n_threads']} threads, "
        f"oneDNN {environment['oneDNN']}, {environment['cpu']}"
    )
    rows = [table_row(row) for row in result["policies"]]
    print_table(HEADER, rows, title=title, text_columns=(0, 1))
    for row in result["policies"]:
        for kernel, impl, reason in row["references"]:
            print(f"{row['policy']} {row['dtype']}: {kernel} runs {impl}: {reason}")
    for line in result["not_run"]:
        print(line)


def table_row(row: dict[str, Any]) -> tuple[str, ...]:
    """One policy's cells."""
    return (
        row["policy"] if row["policy"] == row["chosen"] else f"{row['policy']} ({row['chosen']})",
        row["dtype"],
        f"{row['time_ms']['median']:.3f}",
        f"{row['ratio']['median']:.3f}",
        f"{row['ratio']['low']:.3f}-{row['ratio']['high']:.3f}",
        f"{row['estimated_ns'] / 1e6:.3f}",
        small(row["error"]) if "error" in row else "-",
        str(row["n_reorders"]),
        kib(row["reorder_nbytes"]),
        kib(row["padding_nbytes"]),
        str(len(row["references"])),
    )


if __name__ == "__main__":
    sys.exit(main())
