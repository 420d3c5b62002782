"""``python -m fuzz``: each door in child processes with a limit of memory and time, and what was found, in a folder."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fuzz import doors
from fuzz.board import Board
from fuzz.finds import keep_end

INPUT_SECONDS = 30.0
"""An input that takes longer hangs. Doors limit what the library does for one to a fraction of it."""
MEMORY_NBYTES = 6 << 30
"""Address space of a child. Doors limit what the library allocates to a fraction of it."""
_TOO_LATE = "Timeout (of the parent)"


@dataclass
class Tally:
    """What became of the inputs of a door."""

    door: str
    n_tried: int = 0
    n_refused: int = 0
    n_ends: int = 0
    seconds: float = 0.0


def main() -> int:
    """Run a command line; 1 where anything was found."""
    args = _parser().parse_args()
    wanted = args.doors or doors.names()
    if strange := set(wanted) - set(doors.names()):
        sys.exit(f"fuzz: no door {', '.join(sorted(strange))}; there are {', '.join(doors.names())}")
    if args.file is not None:
        if len(wanted) != 1:
            sys.exit("fuzz: --file takes one DOOR")
        return _replayed(wanted[0], args.file)
    args.finds.mkdir(parents=True, exist_ok=True)
    before = {path.name for path in args.finds.iterdir()}
    shares = {door: getattr(doors.module_of(door), "SHARE", 1) for door in wanted}
    unit = args.seconds * min(args.jobs, len(wanted)) / sum(shares.values())
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch, ThreadPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(_fuzzed, door, unit * shares[door], Path(scratch, door), args) for door in wanted]
        tallies = [run.result() for run in runs]
    for tally in tallies:
        print(
            f"{tally.door:12} {tally.n_tried:>9,} inputs, {tally.n_refused:>9,} refused, "
            f"{tally.n_ends} ended their process, {tally.seconds:.0f} s"
        )
    found = sorted({path.name for path in args.finds.iterdir()} - before)
    print(f"{'all':12} {sum(tally.n_tried for tally in tallies):>9,} inputs, {len(found)} new finds in {args.finds}")
    for name in found:
        print(f"  {name}")
    return 1 if found or any(tally.n_ends for tally in tallies) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        description="Fuzz the doors of blocklayout.",
        epilog="\n".join(["doors:", *(f"  {name:10} {doors.module_of(name).SUMMARY}" for name in doors.names())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("doors", nargs="*", metavar="DOOR", help="all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all doors together (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where it begins (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="doors at a time (default: 1)")
    parser.add_argument("--unguided", action="store_true", help="draw inputs at random even where atheris is installed")
    parser.add_argument("--corpus", type=Path, help="folder that keeps a guided search's inputs from run to run")
    parser.add_argument("--finds", type=Path, default=Path("fuzz-finds"), help="folder of finds (default: fuzz-finds)")
    parser.add_argument("--file", type=Path, metavar="CASE", help="try one input at one door")
    return parser


def _fuzzed(door: str, seconds: float, folder: Path, args: argparse.Namespace) -> Tally:
    """Try inputs at a door until its time is over, in as many processes as that takes."""
    start = time.monotonic()
    tally, n_children = Tally(door), 0
    folder.mkdir()
    is_guided = not args.unguided and importlib.util.find_spec("atheris") is not None
    while (left := seconds - (time.monotonic() - start)) > 0:
        home = folder / str(n_children)
        home.mkdir()
        options = {
            "--folder": home,
            "--board": folder / f"board-{n_children}",
            "--finds": args.finds.absolute(),
            "--corpus": (args.corpus or folder / "corpus") / door,
            "--seed": args.seed + 1000 * n_children,
            "--until": start + seconds,
        }
        status, text = _child(door, options, home, ["--guided"] if is_guided else [], left + 4 * INPUT_SECONDS)
        data = Board(folder / f"board-{n_children}")
        last = data.read()
        tally.n_tried += data.n_tried
        tally.n_refused += data.n_refused
        n_children += 1
        if not data.n_tried and text == _TOO_LATE:
            break  # the machine is so busy that it has not begun; the counts say so
        if status:
            tally.n_ends += 1
            keep_end(args.finds, door, last, _how(status, text), text, home)
            if not data.n_tried:
                break  # it cannot even begin
    tally.seconds = time.monotonic() - start
    return tally


def _how(status: int, text: str) -> str:
    if "Timeout (" in text:
        return "hang"
    return signal.Signals(-status).name if status < 0 else f"status{status}"


def _child(door: str, options: dict[str, object], home: Path, flags: list[str], seconds: float) -> tuple[int, str]:
    """Its exit status, and the end of what it wrote."""
    given = [str(part) for item in options.items() for part in item]
    command = [sys.executable, "-m", "fuzz.child", door, *given, *flags]
    command += ["--input-seconds", str(INPUT_SECONDS), "--nbytes", str(MEMORY_NBYTES)]
    environment = os.environ | {"BLOCKLAYOUT_CACHE_DIR": str(home / "cache"), "PYTHONHASHSEED": "0"}
    with (home / "said").open("w+b") as said:
        try:
            status = subprocess.run(
                command, stdout=said, stderr=said, env=environment, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL, _TOO_LATE
        said.seek(max(0, said.tell() - 20_000))
        return status, said.read().decode(errors="replace")


def _replayed(door: str, path: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        status, text = _child(door, {"--folder": scratch, "--file": path}, Path(scratch), [], 4 * INPUT_SECONDS)
    print(text, end="")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
