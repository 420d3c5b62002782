"""Runtimes side by side on one model: times of the same round are compared, and nobody else is awake meanwhile."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from blocklayout.commands.against.competitor import Competitor
from blocklayout.commands.against.results import Failure, Outcome, Result
from blocklayout.commands.against.runtimes import OURS, Runtime
from blocklayout.commands.comparing import largest_difference
from blocklayout.commands.feeds import n_images
from blocklayout.errors import InputError, UnsupportedError

if TYPE_CHECKING:
    from blocklayout.inspector.progress import Tell

MAX_DIFFERENCE = {"f32": 1e-3, "bf16": 5e-2}
"""Over the largest output: what runtimes may differ by and still compute the same."""

_SMALLEST = float(np.finfo(np.float32).tiny)


class Contest(Struct, frozen=True):
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

    def run(self, runtimes: Sequence[Runtime]) -> Outcome:
        """Measure them all, in turn; ours has to be the first, since ratios are to it.

        One that cannot run the model, or fails on its way, is reported as such, and the others go on.

        Raises:
            UnsupportedError: The first cannot run the model; the message has what it says.
            InputError: What is fed holds denormals, on which arithmetic is slow.
        """
        if any(_has_denormals(array) for array in self.feeds.values()):
            raise InputError("what is fed holds denormals, on which arithmetic is a hundred times slower: no measure")
        failures: list[Failure] = []
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self.save_feeds(folder / "feeds.npz")
            competitors = [Competitor(self, runtime, folder / str(number)) for number, runtime in enumerate(runtimes)]
            competitors = _able(competitors, stack.enter_context, failures)
            for number in range(self.n_rounds):
                self.tell(f"round {number + 1} of {self.n_rounds}")
                competitors = _able(competitors, Competitor.take_turn, failures)
            outputs = [competitor.outputs() for competitor in competitors]
        results = [
            Result.of(competitor, competitors[0].times, n_images(self.feeds), _difference(given, outputs[0]))
            for competitor, given in zip(competitors, outputs, strict=True)
        ]
        return Outcome(results, failures)

    def save_feeds(self, path: Path) -> None:
        """Write what is fed, for the runtimes' processes."""
        np.savez(path, *self.feeds.values(), names=np.array([*self.feeds], np.str_))


def _able(
    competitors: Sequence[Competitor], act: Callable[[Competitor], object], failures: list[Failure]
) -> list[Competitor]:
    """Those of the competitors that can do something; why the others cannot is added to the failures.

    Raises:
        UnsupportedError: It is the first that cannot.
    """
    able = []
    for competitor in competitors:
        try:
            act(competitor)
        except UnsupportedError as error:
            if competitor is competitors[0]:
                raise
            failures.append(Failure(competitor.runtime.name, competitor.runtime.version, str(error)))
        else:
            able.append(competitor)
    return able


def check_agreement(results: Sequence[Result], dtype: str) -> list[str]:
    """Says which runtimes compute something else than ours."""
    limit = MAX_DIFFERENCE[dtype]
    return [
        f"{result.name} differs from {OURS} by {result.difference:.1e} of the largest output; {limit:.0e} is allowed"
        for result in results
        if not result.difference <= limit
    ]


def _difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    if [array.shape for array in outputs] != [array.shape for array in expected]:
        return math.inf
    return largest_difference(outputs, expected)


def _has_denormals(array: np.ndarray) -> bool:
    if array.dtype.kind != "f":
        return False
    sizes = np.abs(array.astype(np.float32))
    return bool(((sizes > 0) & (sizes < _SMALLEST)).any())
