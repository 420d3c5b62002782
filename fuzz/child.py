"""One process that tries inputs at one door until its time is over, ``python -m fuzz.child``: its parent calls it."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import itertools
import pkgutil
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from fuzz import doors
from fuzz.board import MAX_INPUT_NBYTES, Board
from fuzz.finds import keep_error

N_LEAST = 50
"""Random inputs that are tried at any rate: where the machine is busy, a short time is over before the first."""
N_FIRST = 64
"""Random inputs that a guided search begins with."""


def main(argv: Sequence[str] | None = None) -> None:
    """Try inputs, or the one of ``--file``."""
    args = _parser().parse_args(argv)
    faulthandler.enable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (args.nbytes, args.nbytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guide = _guide() if args.guided else None
    with _instrumented(guide):
        from blocklayout.errors import BlockLayoutError

        attempt = doors.opened(args.door, args.folder)
    if args.file is not None:
        _replay(attempt, args.file, args.input_seconds, BlockLayoutError)
        return
    board = Board(args.board)

    def one_input(data: bytes) -> None:
        data = data[:MAX_INPUT_NBYTES]
        board.begin(data)
        faulthandler.dump_traceback_later(args.input_seconds, exit=True)
        try:
            attempt(data)
        except BlockLayoutError:
            board.n_refused += 1
        except Exception as error:  # noqa: BLE001 - whatever there is, is looked for
            keep_error(args.finds, args.door, data, error, args.folder)

    if guide is not None:
        _search(guide, one_input, args)
    else:
        _draw(one_input, args.seed, args.until)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fuzz.child")
    parser.add_argument("door", choices=doors.names())
    parser.add_argument("--folder", type=Path, required=True, help="where the door may write")
    parser.add_argument("--board", type=Path, help="what the parent reads")
    parser.add_argument("--finds", type=Path, help="where finds are kept")
    parser.add_argument("--corpus", type=Path, help="where a guided search keeps inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until", type=float, help="when to end, by time.monotonic")
    parser.add_argument("--input-seconds", type=float, default=30.0)
    parser.add_argument("--nbytes", type=int, default=6 << 30)
    parser.add_argument("--guided", action="store_true")
    parser.add_argument("--file", type=Path, help="one input to try")
    return parser


def _replay(attempt: doors.Try, path: Path, seconds: float, refusal: type[Exception]) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        attempt(path.read_bytes())
    except refusal as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("done, without an error")


def _draw(one_input: doors.Try, seed: int, end: float) -> None:
    """Inputs at random."""
    source = random.Random(seed)
    for number in itertools.count():
        if number >= N_LEAST and time.monotonic() > end:
            break
        one_input(_random_input(source))
    faulthandler.cancel_dump_traceback_later()


def _random_input(source: random.Random) -> bytes:
    return source.randbytes(source.choice((4, 8, 16, 32, 64, 128, 256)))


def _guide() -> Any:
    """The package atheris; ``None`` where it is not installed."""
    try:
        return importlib.import_module("atheris")
    except ImportError:
        return None


def _instrumented(guide: Any) -> AbstractContextManager[None]:
    if guide is None:
        return nullcontext()
    found: AbstractContextManager[None] = guide.instrument_imports(include=["blocklayout"])
    return _Importing(found)


class _Importing(AbstractContextManager[None]):
    """Imports all of the package at its end, since what is imported later is not instrumented."""

    def __init__(self, inner: AbstractContextManager[None]) -> None:
        self._inner = inner

    def __enter__(self) -> None:
        self._inner.__enter__()

    def __exit__(self, *error: object) -> None:
        import blocklayout

        for module in pkgutil.walk_packages(blocklayout.__path__, "blocklayout."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):  # what takes an extra
                    importlib.import_module(module.name)
        self._inner.__exit__(*error)


def _search(guide: Any, one_input: Callable[[bytes], None], args: argparse.Namespace) -> None:
    """Inputs that libFuzzer makes of those that reached something new; it ends the process."""
    args.corpus.mkdir(parents=True, exist_ok=True)
    source = random.Random(args.seed)
    if not any(args.corpus.iterdir()):
        for number in range(N_FIRST):
            (args.corpus / f"{number:02}").write_bytes(_random_input(source))
    options = {
        "seed": args.seed % 2**31 + 1,
        "max_total_time": max(1, int(args.until - time.monotonic())),
        "max_len": 1024,
        "len_control": 0,
        "timeout": 600,  # hangs are found sooner, by Python's own
        "rss_limit_mb": 0,
        "detect_leaks": 0,
        "print_final_stats": 0,
        "verbosity": 0,
        # the parent learns of these from Python's own handler
        **{f"handle_{name}": 0 for name in ("segv", "bus", "abrt", "ill", "fpe", "int", "term", "xfsz")},
    }
    guide.Setup([sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(args.corpus)], one_input)
    guide.Fuzz()


if __name__ == "__main__":
    main()
