"""A runtime in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from blocklayout.errors import UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

    from blocklayout.commands.against.contest import Contest
    from blocklayout.commands.against.runtimes import Runtime

TURN_NS = 100e6

_MAX_REASON = 300


class Competitor:
    """A process that sleeps but in its turn: it is stopped, so that not even its threads spin.

    It is the first of a process group, which stops as a whole: compilers have helpers.

    Attributes:
        runtime: What it runs.
        first: Its report on its first result.
        times: Nanoseconds of its turns.
    """

    def __init__(self, contest: Contest, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.first: dict[str, Any] = {}
        self.times: list[float] = []
        self._contest = contest
        self._folder = folder

    def __enter__(self) -> Self:
        self._contest.tell(f"{self.runtime.name}: loading")
        self._folder.mkdir()
        self._errors = (self._folder / "errors.txt").open("w+", encoding="utf-8")
        try:
            model = self._saved() if self.runtime.is_saved else self._contest.model
            command = self._command("worker", self.runtime.name, model, self._feeds, self._outputs)
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=os.environ | {"TMPDIR": str(self._folder)},  # what it compiled earlier does not count
                process_group=0,
            )
        except BaseException:
            self._errors.close()
            raise
        try:
            self.first = self._answer()
            self._signal(signal.SIGSTOP)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.communicate()
        self._errors.close()

    def outputs(self) -> list[np.ndarray]:
        """Outputs of its first run."""
        with np.load(self._outputs) as file:
            return [file[name] for name in file.files]

    def take_turn(self) -> float:
        """Nanoseconds of the fastest run of a turn."""
        self._signal(signal.SIGCONT)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended, and its answer says why
                self._process.stdin.write(f"{TURN_NS}\n")
                self._process.stdin.flush()
        ns: float = self._answer()["ns"]
        self._signal(signal.SIGSTOP)
        self.times.append(ns)
        return ns

    @property
    def _feeds(self) -> Path:
        return self._folder.parent / "feeds.npz"

    @property
    def _outputs(self) -> Path:
        return self._folder / "outputs.npz"

    def _saved(self) -> Path:
        """The model's session in a file."""
        path = self._folder / "model.session"
        command = self._command("saving", self._contest.model, self._feeds, path)
        if subprocess.run(command, check=False, stderr=self._errors).returncode:  # noqa: S603 - our own module
            raise self._failure()
        return path

    def _command(self, module: str, *arguments: object) -> list[str]:
        given = (*arguments, self._contest.n_threads, self._contest.dtype)
        return [sys.executable, "-m", f"blocklayout.commands.against.{module}", *map(str, given)]

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _answer(self) -> Any:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not line:
            self._process.wait()
            raise self._failure()
        answer = json.loads(line)
        if "reason" in answer:
            raise self._failure(answer["reason"])
        return answer

    def _failure(self, reason: str = "") -> UnsupportedError:
        """An error with what it said, else with the last it wrote."""
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines() or ["it ended without a word"]
        why = textwrap.shorten(reason or lines[-1], _MAX_REASON)
        return UnsupportedError(f"{self.runtime.name} cannot run this model: {why}")
