"""Is a first load with default arguments as fast as the best uniform policy, on networks as users load them?

Each network is written as an ONNX file. Then processes load it, each with an empty cache folder of its own: some by
default arguments, as a load may be lucky, and some by each uniform policy, since two processes with one plan differ,
too. All but one are stopped at any time; in each round every process has its turn, in which it first warms up. The best
uniform policy is the one whose processes take least on average, and a load's share is its time next to that average in
the same rounds, the median over them. *Noise* is how far apart two processes of one policy are.

    python bench/default.py --json out.json --html out.html
    python bench/default.py --models squeezenet1_1,resnet18 --dtypes bf16 --batches 1,16 --tuned
    python bench/default.py --files a.onnx,b.onnx --busy
    python bench/default.py --exporter torch --models shufflenet_v2_x1_0
    python bench/default.py --models squeezenet1_1 --size 64 --dtypes f32 --rounds 1 --loads 1 --processes 1

With ``--busy`` another process keeps a CPU busy for the first second of each load. With ``--exporter torch``
networks of the zoo are written by PyTorch's exporter, whose graphs are others than ours; that takes torch, onnx2torch
and onnxscript.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.arguments import networks, numbers
from bench.records import add_files, keep, read_measured, write_page
from blocklayout import dnnl, zoo
from blocklayout.commands.against.pytorch import converted, import_converter
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.feeds import feeds_of
from blocklayout.commands.options import positive, words
from blocklayout.errors import BlockLayoutError
from blocklayout.model import open_model, write
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table
from blocklayout.timing import TurnProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MODELS = (
    *("alexnet", "convnext_tiny", "crnn", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "m18"),
    *("mnasnet0_5", "mnasnet1_0", "mnasnet1_3", "mobilenet_v2", "mobilenet_v3_large", "regnet_x_400mf"),
    *("regnet_y_400mf", "resnet18", "resnet34", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5"),
    *("shufflenet_v2_x1_0", "shufflenet_v2_x2_0", "squeezenet1_0", "squeezenet1_1", "ssdlite320_mobilenet_v3_large"),
    *("swin_t", "vgg11", "vgg16", "wide_resnet50_2", "yolo_v8n"),
)
POLICIES = ("any", "blocked", "nhwc")
"""Uniform policies; plain is left out, being several times slower."""

DTYPES = ("f32", "bf16")
MIN_RUNS = 3
LOST, LOST_FAR = 1.05, 1.10
NEAR = 1.1
"""Policies within so much of the best tell how far two processes of one policy are apart."""

BUSY_S = 1.0
HEADER = ("model", "dtype", "batch", "best uniform", "ms", "noise", "median", "worst", "tuned", "load s", "taken")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table, and write what is asked for."""
    args = parse(argv)
    if args.worker:
        work(json.loads(args.worker))
        return 0
    record = keep(args, read_measured(args, "results") or measure_all(args))
    show(record["results"])
    write_page(args, record, "The default choice, next to the best uniform policy", charts(record["results"]))
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; workers get theirs as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=networks, default=MODELS, help="of the zoo")
    parser.add_argument("--files", type=words, default=(), metavar="A.onnx,B.onnx", help="ONNX files instead")
    parser.add_argument("--exporter", choices=("own", "torch"), default="own", help="who writes the zoo's networks")
    parser.add_argument("--dtypes", type=words, default=DTYPES)
    parser.add_argument("--batches", type=numbers, default=(1,), help="images at a time, such as 1,16 (default: 1)")
    parser.add_argument("--size", type=positive, help="height and width of images; by default each network's own")
    parser.add_argument("--policies", type=words, default=POLICIES, help="uniform ones (default: any,blocked,nhwc)")
    parser.add_argument("--loads", type=positive, default=3, help="by default arguments (default: 3)")
    parser.add_argument("--processes", type=positive, default=2, help="of each policy (default: 2)")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each process (default: 5)")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a turn (default: 0.2)")
    parser.add_argument("--tuned", action="store_true", help="a load with tune='measure', too")
    parser.add_argument("--tune-seconds", type=float, default=60.0, help="of that (default: 60)")
    parser.add_argument("--busy", action="store_true", help="another process is busy for the first second of each load")
    parser.add_argument("--isa", help="highest instruction set, such as AVX2")
    parser.add_argument("--threads", type=positive, default=dnnl.default_threads(), help="by default all there are")
    add_files(parser)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All networks; JSON is written after each, since they take long."""
    results: list[dict[str, Any]] = []
    record = {"environment": describe_environment(args.threads), "n_rounds": args.rounds, "results": results}
    dtypes = [dtype for dtype in args.dtypes if dtype != "bf16" or dnnl.has_bf16()]
    for missing in set(args.dtypes) - set(dtypes):
        print(f"{missing}: {dnnl.missing_isa(missing)}")
    for name in args.files or args.models:
        for batch in args.batches if not args.files else (1,):
            with tempfile.TemporaryDirectory() as folder:
                path = written(name, batch, Path(folder), args)
                for dtype in dtypes:
                    results.append({"model": Path(name).stem, "batch": batch} | measure(path, dtype, args))
                    print(" ".join(cells(results[-1])), file=sys.stderr, flush=True)
                    keep(args, record)
    return record


def written(name: str, batch: int, folder: Path, args: argparse.Namespace) -> Path:
    """The file of a network.

    Raises:
        ModuleNotFoundError: What PyTorch's exporter takes is not installed.
    """
    if args.files:
        return Path(name).resolve()
    path = folder / "model.onnx"
    built = zoo.build(name, batch=batch, size=args.size)
    write(built, path)
    if args.exporter == "torch":
        import torch

        import_converter(torch)
        module, _ = converted(torch, str(path), args.threads, "f32")
        x = torch.zeros(built.to_graph().shape("x"))
        torch.onnx.export(module, (x,), str(path), dynamo=True, external_data=False, verbose=False)
    return path


def measure(path: Path, dtype: str, args: argparse.Namespace) -> dict[str, Any]:
    """One network in one data type: every process's time in each round, and what loads took."""
    starts = {f"{policy} {number}": {"layout": policy} for policy in args.policies for number in range(args.processes)}
    starts |= {f"default {number}": {} for number in range(args.loads)}
    starts |= {"tuned": {"tune": "measure", "tune_seconds": args.tune_seconds}} if args.tuned else {}
    with ExitStack() as stack:
        feeds = Path(stack.enter_context(tempfile.TemporaryDirectory()), "feeds.npz")
        np.savez(feeds, **feeds_of(open_model(path), argparse.Namespace(input=[], shape=[], io_layout=[])))  # type: ignore[arg-type]
        processes = {}
        for name, options in starts.items():
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            job = {
                "path": str(path),
                "feeds": str(feeds),
                "turn_s": args.seconds,
                "options": {"dtype": dtype, "threads": args.threads, **options},
            }
            environ = {"BLOCKLAYOUT_CACHE_DIR": folder} | ({"ONEDNN_MAX_CPU_ISA": args.isa} if args.isa else {})
            with another_busy() if args.busy and not options else nullcontext():
                process = TurnProcess(name, [__file__, "--worker", json.dumps(job)], environ)
                processes[name] = stack.enter_context(process)
        rounds = [
            {name: processes[name].turn()["ns"] for name in rotated([*processes], number / args.rounds)}
            for number in range(args.rounds)
        ]
        reports = {name: each.report for name, each in processes.items()}
    times = {name: [each[name] for each in rounds] for name in processes}
    return {"dtype": dtype, "times_ns": times, "reports": reports} | judged(times, reports, args.policies)


def judged(times: Mapping[str, Sequence[float]], reports: Mapping[str, Any], policies: Sequence[str]) -> dict[str, Any]:
    """The best uniform policy, and how loads did next to it."""
    of = {policy: [own for name, own in times.items() if name.startswith(f"{policy} ")] for policy in policies}
    means = {policy: [*map(statistics.mean, zip(*processes, strict=True))] for policy, processes in of.items()}
    anybody = next(iter(means.values()))
    best = min(means, key=lambda policy: ratio(means[policy], anybody))
    near = [policy for policy in policies if ratio(means[policy], means[best]) < NEAR]
    apart = [max(ratio(a, b) for a in of[policy] for b in of[policy]) for policy in near]
    loads = {name: ratio(own, means[best]) for name, own in times.items() if name.startswith("default ")}
    return {
        "best": best,
        "best_ms": statistics.median(means[best]) / 1e6,
        "noise": max(apart),
        "loads": [*loads.values()],
        "taken": [reports[name]["taken"] for name in loads],
        "load_s": statistics.mean(reports[name]["load_s"] for name in loads),
        "tuned": ratio(times["tuned"], means[best]) if "tuned" in times else None,
    }


def rotated(names: Sequence[str], share: float) -> list[str]:
    """The same in another order, since a machine that changes its speed does so for several turns in a row."""
    first = round(share * len(names))
    return [*names[first:], *names[:first]]


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(own / other for own, other in zip(times, others, strict=True))


@contextmanager
def another_busy() -> Iterator[None]:
    """While another process keeps a CPU busy for a second."""
    loop = f"import time; end = time.monotonic() + {BUSY_S}\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", loop]) as process:
        yield
        process.kill()


def work(job: dict[str, Any]) -> None:
    """Load, say how it went, and take a turn for each line that comes in."""
    try:
        run, report = loaded(job)
    except BlockLayoutError as error:
        print(json.dumps({"reason": str(error)}), flush=True)
        return
    print(json.dumps(report), flush=True)
    for _ in sys.stdin:
        until = time.perf_counter() + job["turn_s"] / 2  # warms up
        while time.perf_counter() < until:
            run()
        print(json.dumps({"ns": turn_ns(run, job["turn_s"])}), flush=True)


def loaded(job: dict[str, Any]) -> tuple[Callable[[], object], dict[str, Any]]:
    """A run of the model, and what there is to say of its load."""
    import blocklayout as bl

    with np.load(job["feeds"]) as file:
        feeds = dict(file)
    began = time.perf_counter()
    session = bl.load(job["path"], **job["options"])
    session.run(None, feeds)
    load_s = time.perf_counter() - began
    plans = session.plans
    report = {
        "load_s": load_s,
        "taken": ", ".join(dict.fromkeys(plan.chosen for plan in plans)),
        "raced": [dict(plan.raced) for plan in plans],
        "priced_by": plans[0].priced_by if plans else "",
    }
    return lambda: session.run(None, feeds), report


def turn_ns(run: Callable[[], object], turn_s: float) -> float:
    """The lower quartile of the runs of a turn."""
    found: list[float] = []
    while len(found) < MIN_RUNS or sum(found) < 1e9 * turn_s:
        began = time.perf_counter_ns()
        run()
        found.append(float(time.perf_counter_ns() - began))
    return sorted(found)[len(found) // 4]


def cells(result: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    taken = dict.fromkeys(result["taken"])
    tuned = "-" if result["tuned"] is None else f"{result['tuned']:.2f}"
    return (
        *(result["model"], result["dtype"], str(result["batch"]), result["best"], f"{result['best_ms']:.2f}"),
        *(f"{value:.2f}" for value in (result["noise"], statistics.median(result["loads"]), max(result["loads"]))),
        *(tuned, f"{result['load_s']:.2f}", ", ".join(taken)),
    )


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table, and what follows from it."""
    print_table(HEADER, map(cells, results), text_columns=(0, 1, 3, 10))
    medians = [statistics.median(each["loads"]) for each in results]
    loads = [(share, each["noise"]) for each in results for share in each["loads"]]
    print(
        f"\nof {len(results)} medians of loads, over the best uniform policy: median {statistics.median(medians):.3f}, "
        f"worst {max(medians):.3f}\nof {len(loads)} loads: worst {max(share for share, _ in loads):.3f}, over {LOST} "
        f"{sum(share > LOST for share, _ in loads)}, over {LOST_FAR} beyond the noise "
        f"{sum(share > LOST_FAR * noise for share, noise in loads)}"
    )
    tuned = [median / each["tuned"] for median, each in zip(medians, results, strict=True) if each["tuned"]]
    if tuned:
        print(f"over tuned: median {statistics.median(tuned):.3f}, worst {max(tuned):.3f}")


def charts(results: Sequence[dict[str, Any]]) -> list[Chart]:
    """Loads over the best uniform policy."""
    rows = [Row.of(f"{each['dtype']}, batch {each['batch']}", each["loads"], each["model"]) for each in results]
    return [Chart("Time of default loads over that of the best uniform policy", "", rows, baseline="best uniform")]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "")
    sys.exit(main())
