"""Runtimes side by side on one model: times of the same round are compared, and nobody else is awake meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from blocklayout.commands.against.runtimes import OURS, Runtime
from blocklayout.commands.comparing import largest_difference
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.runtime.in_turn import Spread

if TYPE_CHECKING:
    from blocklayout.inspector.progress import Tell

TURN_NS = 100e6
MAX_DIFFERENCE = {"f32": 1e-3, "bf16": 5e-2}
"""Over the largest output: what runtimes may differ by and still compute the same."""

_SMALLEST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Contest:
    """One model, what it is fed, and how it is timed.

    Attributes:
        model: An ONNX file.
        feeds: An array for each input.
        n_threads: Threads of a run.
        dtype: Data type of activations.
        n_rounds: How often each runtime has its turn.
        tell: Told what is being done.
    """

    model: Path
    feeds: Mapping[str, np.ndarray]
    n_threads: int
    dtype: str
    n_rounds: int
    tell: Tell

    def run(self, runtimes: Sequence[Runtime]) -> list[Result]:
        """Measure them all, in turn; ours has to be the first.

        Raises:
            UnsupportedError: One of them cannot run the model; the message has what it says.
            InputError: What is fed holds denormals, on which arithmetic is slow.
        """
        if any(_has_denormals(array) for array in self.feeds.values()):
            raise InputError("what is fed holds denormals, on which arithmetic is a hundred times slower: no measure")
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.save_feeds(folder / "feeds.npz")
            workers = []
            for runtime in runtimes:
                self.tell(f"{runtime.name}: loading")
                workers.append(stack.enter_context(_Worker(self, runtime, folder)))
            outputs = [worker.outputs() for worker in workers]
            rounds = []
            for number in range(self.n_rounds):
                self.tell(f"round {number + 1} of {self.n_rounds}")
                rounds.append([worker.take_turn() for worker in workers])
        times = list(zip(*rounds, strict=True))
        return [
            Result.of(worker, own, times[0], largest_difference(given, outputs[0]))
            for worker, own, given in zip(workers, times, outputs, strict=True)
        ]

    def save_feeds(self, path: Path) -> None:
        """Write what is fed, for the runtimes' processes."""
        np.savez(path, *self.feeds.values(), names=np.array([*self.feeds], np.str_))


@dataclass(frozen=True)
class Result:
    """What a runtime did.

    Attributes:
        name: The runtime's.
        version: Of what is installed.
        time_ms: Milliseconds of a run: the fastest of each turn, over the rounds.
        ratio: Its time over ours in the same round.
        first_s: Seconds from before ``import numpy`` to the first result.
        resident_nbytes: Memory after the first run, above what importing it takes.
        peak_nbytes: The most it had meanwhile, likewise.
        difference: Largest difference from our outputs, over their largest value.
    """

    name: str
    version: str
    time_ms: Spread
    ratio: Spread
    first_s: float
    resident_nbytes: int
    peak_nbytes: int
    difference: float

    @classmethod
    def of(cls, worker: _Worker, own: Sequence[float], ours: Sequence[float], difference: float) -> Result:
        """Of a worker's times, and ours in the same rounds."""
        told = worker.told
        return cls(
            name=worker.runtime.name,
            version=told["version"],
            time_ms=Spread.of(own).scaled(1e-6),
            ratio=Spread.of(a / b for a, b in zip(own, ours, strict=True)),
            first_s=told["first_s"],
            resident_nbytes=told["resident_nbytes"] - told["imported_nbytes"],
            peak_nbytes=told["peak_nbytes"] - told["imported_nbytes"],
            difference=difference,
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class _Worker:
    """A process that sleeps but in its turn: it is stopped, so that not even its threads spin."""

    def __init__(self, contest: Contest, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self._outputs = folder / f"{runtime.name}.npz"
        arguments = (contest.model, folder / "feeds.npz", self._outputs, contest.n_threads, contest.dtype)
        self._errors = (folder / f"{runtime.name}.txt").open("w+", encoding="utf-8")
        command = [sys.executable, "-m", "blocklayout.commands.against.worker", runtime.name, *map(str, arguments)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )

    def __enter__(self) -> Self:
        try:
            self.told = self._answer()
            self._sleep()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def outputs(self) -> list[np.ndarray]:
        """What it computed first."""
        with np.load(self._outputs) as file:
            return [file[name] for name in file.files]

    def take_turn(self) -> float:
        """Nanoseconds of the fastest run of a turn."""
        os.kill(self._process.pid, signal.SIGCONT)
        if self._process.stdin is not None:
            self._process.stdin.write(f"{TURN_NS}\n")
            self._process.stdin.flush()
        ns: float = self._answer()["ns"]
        self._sleep()
        return ns

    def _sleep(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if line:
            return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        reason = self._errors.read().strip().splitlines() or ["it ended without a word"]
        raise UnsupportedError(f"{self.runtime.name} cannot run this model: {reason[-1]}")


def check_agreement(results: Sequence[Result], dtype: str) -> list[str]:
    """Says which runtimes compute something else than ours."""
    limit = MAX_DIFFERENCE[dtype]
    return [
        f"{result.name} differs from {OURS} by {result.difference:.1e} of the largest output; {limit:.0e} is allowed"
        for result in results
        if not result.difference <= limit
    ]


def _has_denormals(array: np.ndarray) -> bool:
    if array.dtype.kind != "f":
        return False
    sizes = np.abs(array.astype(np.float32))
    return bool(((sizes > 0) & (sizes < _SMALLEST)).any())
