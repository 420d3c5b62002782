"""A process that runs a model in one runtime, and takes a turn whenever a line comes in.

    python -m blocklayout.commands.against.worker RUNTIME MODEL FEEDS OUTPUTS THREADS DTYPE

It reports its first result, or why there is none, in a line of JSON. Then each line with a number of nanoseconds is a
turn: the fastest run of as many as fit into it. With ``save`` for a runtime it saves our session of the model, planned
for the feeds, in place of outputs, and reports that it is done.
"""

from __future__ import annotations

import time

_START = time.perf_counter()  # before anything is imported that a first result needs

import importlib  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from blocklayout.commands.against.runtimes import runtime_named  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str]) -> int:
    """Load, run once, and take turns until no line comes in."""
    if argv[0] == "save":
        _save(*argv[1:])
        return 0
    try:
        run, record = _first_result(*argv)
    except Exception as error:  # noqa: BLE001 - any error of a runtime is its reason
        paragraph = str(error).strip().split("\n\n", maxsplit=1)[0]  # the rest is how to report it
        _say({"reason": f"{type(error).__name__}: {paragraph}"})
        return 1
    _say(record)
    from blocklayout.timing import fastest_ns  # only now: before, it would count

    for line in sys.stdin:
        run()  # wakes the threads
        _say({"ns": fastest_ns(run, float(line))})
    return 0


def _save(model: str, feeds_path: str, path: str, threads: str, dtype: str) -> None:
    import blocklayout

    feeds = _load_feeds(feeds_path)
    session = blocklayout.load(model, threads=int(threads), dtype=dtype)
    session.run(None, feeds)  # which plans bodies of loops, too
    session.save(path)
    _say({})


def _load_feeds(path: str) -> dict[str, Any]:
    """The feeds that :func:`~blocklayout.commands.against.contest.save_feeds` wrote."""
    np = importlib.import_module("numpy")
    with np.load(path) as file:
        return {name: file[f"arr_{number}"] for number, name in enumerate(file["names"].tolist())}


def _first_result(
    name: str, model: str, feeds_path: str, outputs_path: str, threads: str, dtype: str
) -> tuple[Callable[[], object], dict[str, Any]]:
    runtime = runtime_named(name)
    module = runtime.start()
    np = importlib.import_module("numpy")
    imported_nbytes = _status_nbytes("VmRSS")
    run = runtime.open(module, model, int(threads), dtype)
    feeds = _load_feeds(feeds_path)
    outputs = run(feeds)
    first_s = time.perf_counter() - _START
    record = {
        "first_s": first_s,
        "imported_nbytes": imported_nbytes,
        "resident_nbytes": _status_nbytes("VmRSS"),
        "peak_nbytes": _status_nbytes("VmHWM"),
    }
    np.savez(outputs_path, *[np.asarray(output, np.float32) for output in outputs])
    return lambda: run(feeds), record


def _status_nbytes(field: str) -> int:
    """Memory of this process in bytes by the system's account; ``getrusage`` would include its parent's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) * 1024


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
