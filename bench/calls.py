"""What does a call cost over its primitive?

A ReLU of few elements, which one thread computes within a microsecond, is called in every way there is: by a session,
on a Tensor, as a reorder into blocks, in onnxruntime and in PyTorch; the digits network at batch 1 by a session and in
onnxruntime. Ours are given next to the bare execution of the same primitive, in the same process and the same turn.
Each is a process of its own that is stopped but in its turn. Data are random; times are medians over rounds of the
fastest call of a turn, with the least and the most. In a whole network, whose weights have driven this code out of the
caches, a call takes longer: of ``--networks``, the time before and behind the one call into C is given, in medians over
a turn's runs.

    python bench/calls.py --rounds 9 --networks mobilenet_v2 --json out.json --html out.html

onnxruntime and PyTorch are left out where they are not installed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

# Run as a script, it finds its neighbour beside it; imported, in the package of benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.eager import say, worker
from bench.records import add_files, keep, read_measured, write_page
from blocklayout.commands.environment import describe_environment
from blocklayout.commands.options import positive
from blocklayout.show.bench_page import Chart, Row
from blocklayout.show.output import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    Call = Callable[[], object]

SHAPE = (1, 16, 8, 8)

N_CALLS, N_TIMES = 200, 25
"""Calls that are timed together, and how often in a turn."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write what is asked for."""
    args = parse(argv)
    if args.work:
        return work(args.work, args.threads, args.dtype, args.seconds)
    record = keep(args, read_measured(args, "rows") or measure_all(args))
    show(record["rows"])
    write_page(args, record, "What a call costs", charts(record["rows"]))
    return 0


def measure_all(args: argparse.Namespace) -> dict[str, Any]:
    """All ways to call, in turn."""
    names = [name for name, (module, _) in WAYS.items() if find_spec(module)] + args.networks
    how = ("--dtype", args.dtype, "--seconds", str(args.seconds))
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(__file__, name, args.threads, *how)) for name in names]
        rounds = [[each.turn() for each in workers] for _ in range(args.rounds)]
    rows = [{"name": name, "turns": turns} for name, *turns in zip(names, *rounds, strict=True)]
    counts = {"threads": args.threads, "n_rounds": args.rounds, "dtype": args.dtype}
    return {"environment": describe_environment(args.threads), **counts, "rows": rows}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=positive, default=7, help="turns of each (default: 7)")
    parser.add_argument("--threads", type=positive, default=1, help="of each (default: 1)")
    parser.add_argument("--networks", nargs="*", default=[], help="networks of the zoo that are called whole, too")
    parser.add_argument("--seconds", type=float, default=1.0, help="of such a network's turn (default: 1)")
    parser.add_argument("--dtype", default="f32", help="of these networks (default: f32)")
    add_files(parser)
    parser.add_argument("--work", help=argparse.SUPPRESS)  # what a process of its own runs
    return parser.parse_args(argv)


def charts(rows: Sequence[dict[str, Any]]) -> list[Chart]:
    """Times of a call, and what they have over the primitive's."""
    over = [
        Row.of(row["name"], [turn["us"] - turn["bare_us"] for turn in row["turns"]])
        for row in rows
        if "bare_us" in row["turns"][0]
    ]
    calls = [Row.of(row["name"], [turn["us"] for turn in row["turns"]]) for row in rows]
    return [Chart("Time of a call", "us", calls), Chart("Time over that of the primitive alone", "us", over)]


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table."""

    def spread(values: Sequence[float]) -> str:
        return f"{median(values):.1f} ({min(values):.1f}..{max(values):.1f})"

    table = []
    for row in rows:
        calls = [turn["us"] for turn in row["turns"]]
        over = [turn["us"] - turn["bare_us"] for turn in row["turns"] if "bare_us" in turn]
        ends = [[turn[key] for turn in row["turns"] if key in turn] for key in ("before_us", "behind_us")]
        table.append((row["name"], *(spread(each) if each else "-" for each in (calls, over, *ends))))
    print_table(("call", "us", "us over the primitive", "us before C", "us behind C"), table, title="Calls")


def work(name: str, n_threads: int, dtype: str, seconds: float) -> int:
    """Be one of the processes: take a turn whenever a line comes in."""
    turn = turn_of(name, n_threads) if name in WAYS else turn_in_network(name, n_threads, dtype, seconds)
    say({})
    for _ in sys.stdin:
        say(turn())
    return 0


def turn_of(name: str, n_threads: int) -> Callable[[], dict[str, float]]:
    """Times a call, and the bare primitive where there is one."""
    call, bare = WAYS[name][1](n_threads)
    call()
    calls = {"us": call} if bare is None else {"us": call, "bare_us": bare}
    return lambda: {key: fastest_us(each) for key, each in calls.items()}


def turn_in_network(name: str, n_threads: int, dtype: str, seconds: float) -> Callable[[], dict[str, float]]:
    """Times runs of a whole network, and of each what comes before and behind the call into C: medians.

    Raises:
        SystemExit: The network is more than one call into C.
    """
    import blocklayout as bl
    from blocklayout import zoo
    from blocklayout.dnnl import executable

    stamps: list[int] = []
    now = time.perf_counter_ns
    executor = executable.native()
    if executor is None:
        raise SystemExit(f"{name}: no compiler built the executor, so that no run is a call into C")
    stamping = SimpleNamespace(bl_run=partial(stamped, executor.bl_run, stamps))
    executable.native = lambda: stamping  # type: ignore[assignment,return-value]
    session = bl.load(zoo.build(name), threads=n_threads, dtype=dtype)
    feed = {info.name: random([*map(int, info.shape)]) for info in session.get_inputs()}
    stamps.clear()
    session.run(None, feed)
    if len(stamps) != 2:
        raise SystemExit(f"{name} has steps by numpy: its runs are several calls")

    def turn() -> dict[str, float]:
        times: list[tuple[int, int, int]] = []
        until = now() + 1e9 * seconds
        while now() < until:
            stamps.clear()
            start = now()
            session.run(None, feed)
            end = now()
            times.append((end - start, stamps[0] - start, end - stamps[1]))
        whole, before, behind = (median(each) / 1000 for each in zip(*times, strict=True))
        return {"us": whole, "before_us": before, "behind_us": behind}

    return turn


def stamped(call: Callable[..., int], stamps: list[int], *args: Any) -> int:
    """The call into C, with the times before and behind it noted."""
    stamps.append(time.perf_counter_ns())
    status = call(*args)
    stamps.append(time.perf_counter_ns())
    return status


def fastest_us(call: Call) -> float:
    """Microseconds of a call: the mean of some in a row, where they were the fastest."""
    best = float("inf")
    for _ in range(N_TIMES):
        start = time.perf_counter_ns()
        for _ in range(N_CALLS):
            call()
        best = min(best, float(time.perf_counter_ns() - start))
    return best / N_CALLS / 1000


def random(shape: Sequence[int] = SHAPE) -> np.ndarray:
    """What is computed with."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def bare_relu() -> Call:
    """The execution of the primitive alone."""
    from blocklayout import dnnl

    desc = dnnl.MemoryDesc(SHAPE)
    spec = dnnl.eltwise(desc, algorithm="relu", n_threads=1)
    return dnnl.Primitive(spec).bind({"src": dnnl.Memory(desc, random()), "dst": dnnl.Memory.empty(desc)}).run


def one_step() -> Any:
    """A model of one ReLU."""
    import blocklayout as bl

    b = bl.Builder()
    b.output("y", b.input("x", SHAPE).relu())
    return b


def by_session(n_threads: int) -> tuple[Call, Call | None]:
    """A session of one step."""
    import blocklayout as bl

    session, feed = bl.load(one_step(), threads=n_threads), {"x": random()}
    return lambda: session.run(None, feed), bare_relu()


def by_tensor(n_threads: int) -> tuple[Call, Call | None]:
    """An operator on a Tensor."""
    import blocklayout as bl

    del n_threads  # so few elements are one thread's work
    x = bl.reorder(random(), "nchw")
    return lambda: bl.relu(x), bare_relu()


def by_reorder(n_threads: int) -> tuple[Call, Call | None]:
    """A reorder of an array into blocks."""
    import blocklayout as bl
    from blocklayout import dnnl

    x, dst = random(), dnnl.MemoryDesc(SHAPE, "f32", "nChw8c")
    src = dnnl.MemoryDesc.from_array(x)
    reorder = dnnl.Primitive(dnnl.reorder(src, dst, n_threads=n_threads))
    bare = reorder.bind({"src": dnnl.Memory(src, x), "dst": dnnl.Memory.empty(dst)})
    return lambda: bl.reorder(x, dst, threads=n_threads), bare.run


def by_onnxruntime(n_threads: int) -> tuple[Call, Call | None]:
    """The model of one ReLU."""
    return onnxruntime_call(one_step().to_onnx().SerializeToString(), {"x": random()}, n_threads), None


def by_torch(n_threads: int) -> tuple[Call, Call | None]:
    """An operator on PyTorch's tensor."""
    import torch

    torch.set_num_threads(n_threads)
    x = torch.from_numpy(random())

    def call() -> object:
        with torch.inference_mode():
            return torch.relu(x)

    return call, None


def digits_by_session(n_threads: int) -> tuple[Call, Call | None]:
    """The embedded network."""
    import blocklayout as bl
    from blocklayout.zoo import digits

    feed = {"image": random((1, 1, 8, 8))}
    session = bl.load(digits.model_bytes(), threads=n_threads, shapes={"image": (1, 1, 8, 8)})
    return lambda: session.run(None, feed), None


def digits_by_onnxruntime(n_threads: int) -> tuple[Call, Call | None]:
    """The embedded network."""
    from blocklayout.zoo import digits

    return onnxruntime_call(digits.model_bytes(), {"image": random((1, 1, 8, 8))}, n_threads), None


def onnxruntime_call(model: bytes, feed: dict[str, np.ndarray], n_threads: int) -> Call:
    """A run of a model there."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


WAYS: dict[str, tuple[str, Callable[[int], tuple[Call, Call | None]]]] = {
    "ReLU, Session.run": ("blocklayout", by_session),
    "ReLU, bl.relu": ("blocklayout", by_tensor),
    "reorder, bl.reorder": ("blocklayout", by_reorder),
    "ReLU, onnxruntime": ("onnxruntime", by_onnxruntime),
    "ReLU, torch.relu": ("torch", by_torch),
    "digits, Session.run": ("blocklayout", digits_by_session),
    "digits, onnxruntime": ("onnxruntime", digits_by_onnxruntime),
}
"""By name what has to be installed, and what makes the call and the bare primitive of it."""


if __name__ == "__main__":
    sys.exit(main())
