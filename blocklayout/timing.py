"""Timing in turn: contenders of one process, or a process each, whose times of the same round are compared."""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Call = Callable[[], object]

TURN_NS = 40e6
"""How long a turn lasts at least; a call is repeated for so long, and once in any case."""

_MAX_REASON = 300


class Spread(Struct, frozen=True, omit_defaults=True):
    """The median of some measurements, and their range; ``values`` are in the order of rounds, if they were kept."""

    median: float
    low: float
    high: float
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of some values.

        Example:
            >>> Spread.of([3.0, 1.0, 2.0])
            Spread(median=2.0, low=1.0, high=3.0, values=(3.0, 1.0, 2.0))
        """
        kept = tuple(values)
        return cls(statistics.median(kept), min(kept), max(kept), kept)

    @classmethod
    def of_ratios(cls, times: Iterable[float], reference: Iterable[float]) -> Spread:
        """That of times over those of a reference in the same rounds."""
        return cls.of(own / other for own, other in zip(times, reference, strict=True))

    def scaled(self, factor: float) -> Spread:
        """The same in another unit."""
        values = tuple(value * factor for value in self.values)
        return Spread(self.median * factor, self.low * factor, self.high * factor, values)

    @property
    def third_quartile(self) -> float:
        """The value that three quarters of them do not exceed.

        Example:
            >>> Spread.of([1.0, 2.0, 3.0, 9.0]).third_quartile
            3.0
        """
        return sorted(self.values)[math.ceil(0.75 * len(self.values)) - 1]

    @property
    def quartiles(self) -> tuple[float, float] | None:
        """The first and the third quartile; ``None`` of fewer than four values.

        Example:
            >>> Spread.of([1.0, 2.0, 3.0, 4.0, 5.0]).quartiles
            (2.0, 4.0)
        """
        if len(self.values) < 4:
            return None
        lower, _, upper = statistics.quantiles(self.values, n=4, method="inclusive")
        return lower, upper


def fastest_ns(call: Call, turn_ns: float = TURN_NS) -> float:
    """Nanoseconds of the fastest call of a turn."""
    best, spent = math.inf, 0.0
    while spent < turn_ns:
        start = time.perf_counter_ns()
        call()
        once = float(time.perf_counter_ns() - start)
        best, spent = min(best, once), spent + max(once, 1.0)
    return best


def time_in_turn(calls: Sequence[Call], n_rounds: int) -> list[list[float]]:
    """Nanoseconds of each call, the fastest of a turn in each round; before the first round each is called once.

    Compare the times of a round, which share the machine's disturbances.
    """
    for call in calls:
        call()
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(n_rounds):
        for call, own in zip(calls, times, strict=True):
            own.append(fastest_ns(call))
    return times


class TurnProcess:
    """A Python process that sleeps but in its turn: it is stopped, so that not even its threads spin.

    It writes a line of JSON when it is ready, and one for each line that it is sent; one with a ``reason`` is why it
    cannot go on. The first line is its ``report``. It leads a process group, which stops as a whole: compilers have
    helpers.
    """

    def __init__(
        self, name: str, arguments: Sequence[object], environ: Mapping[str, str] | None = None, *, sleeps: bool = True
    ) -> None:
        """Describe the process by the interpreter's arguments, and its additions to our environment; nothing runs yet.

        Where it does not ``sleeps``, it is not stopped between its turns.
        """
        self.name = name
        self.report: Any = None
        self._command = [sys.executable, *map(str, arguments)]
        self._environ = os.environ | (environ or {})
        self._sleeps = sleeps

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(  # noqa: S603 - our own modules and scripts
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self._environ,
            process_group=0,
        )
        try:
            self.report = self.answer()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, error: object = None, *_: object) -> None:
        if self._sleeps or error is not None:
            self._signal(signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def turn(self, line: object = "") -> Any:
        """Its answer to a line; an UnsupportedError with the reason where it ended, or cannot go on."""
        self.ask(line)
        return self.answer()

    def ask(self, line: object) -> None:
        """Let it begin its turn."""
        if self._sleeps:
            self._signal(signal.SIGCONT)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended, and its answer says why
                self._process.stdin.write(f"{line}\n")
                self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the end of its turn; the error is that of :meth:`turn`."""
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            self._process.wait()
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:] or ["it ended without a word"]
            raise self._failure(last[0])
        answer = json.loads(line)
        if "reason" in answer:
            raise self._failure(answer["reason"])
        if self._sleeps:
            self._signal(signal.SIGSTOP)
        return answer

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _failure(self, reason: str) -> UnsupportedError:
        return UnsupportedError(f"{self.name} cannot run this model: {textwrap.shorten(reason, _MAX_REASON)}")
