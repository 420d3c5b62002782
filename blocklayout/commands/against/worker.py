"""A process that runs a model in one runtime, and takes a turn whenever a line comes in.

    python -m blocklayout.commands.against.worker RUNTIME MODEL FEEDS OUTPUTS THREADS DTYPE

It tells of its first result in a line of JSON. Then each line with a number of nanoseconds is a turn: the fastest run
of as many as fit into it.
"""

from __future__ import annotations

import time

_START = time.perf_counter()  # before anything is imported that a first result needs

import importlib  # noqa: E402
import json  # noqa: E402
import math  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

from blocklayout.commands.against.throughput import runtime_named  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str]) -> int:
    """Load, run once, and take turns until no line comes in."""
    name, model, feeds_path, outputs_path, threads, dtype = argv
    runtime = runtime_named(name)
    module = importlib.import_module(runtime.module)
    np = importlib.import_module("numpy")
    imported_nbytes = _status_nbytes("VmRSS")
    run = runtime.open(module, model, int(threads), dtype)
    with np.load(feeds_path) as file:
        feeds = {name: file[f"arr_{number}"] for number, name in enumerate(file["names"].tolist())}
    outputs = run(feeds)
    first_s = time.perf_counter() - _START
    told = {
        "version": runtime.version,
        "first_s": first_s,
        "imported_nbytes": imported_nbytes,
        "resident_nbytes": _status_nbytes("VmRSS"),
        "peak_nbytes": _status_nbytes("VmHWM"),
    }
    np.savez(outputs_path, *[np.asarray(output, np.float32) for output in outputs])
    _say(told)
    for line in sys.stdin:
        _say({"ns": _fastest_ns(lambda: run(feeds), float(line))})
    return 0


def _fastest_ns(call: Callable[[], object], turn_ns: float) -> float:
    """The fastest of the runs of a turn; the first only wakes the threads."""
    call()
    best, spent = math.inf, 0.0
    while spent < turn_ns:
        start = time.perf_counter_ns()
        call()
        once = float(time.perf_counter_ns() - start)
        best, spent = min(best, once), spent + once
    return best


def _status_nbytes(field: str) -> int:
    """What the system says of this process's memory; ``getrusage`` would tell of whoever started it, too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
