"""Runtimes side by side on one model, each in a process that sleeps but in its turn."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from msgspec import Struct

from blocklayout.commands.against.runtimes import OURS, Runtime
from blocklayout.commands.comparing import largest_difference
from blocklayout.commands.feeds import n_images
from blocklayout.errors import InputError, UnsupportedError
from blocklayout.show.bench_page import Chart, Row, Table
from blocklayout.show.output import print_table, say
from blocklayout.show.words import small, spread
from blocklayout.timing import Spread, TurnProcess

if TYPE_CHECKING:
    from blocklayout.show.output import Tell

TURN_NS = 100e6

WORKER = "blocklayout.commands.against.worker"

MAX_DIFFERENCE = {"f32": 1e-3, "bf16": 5e-2, "f16": 1e-2}
"""Differences over the largest output up to which runtimes compute the same."""

_SMALLEST = float(np.finfo(np.float32).tiny)
_MB = 1e6


class Failure(Struct, frozen=True):
    """A runtime that cannot run the model, and its reason."""

    name: str
    version: str
    reason: str


class Result(Struct, frozen=True):
    """Result of a runtime.

    Attributes:
        time_ms: Milliseconds of a run: the fastest of each turn, over the rounds.
        image_ms: The same of one image: over the batch.
        ratio: Its time over ours in the same round.
        first_s: Seconds from before ``import numpy`` to the first result.
        resident_nbytes: Memory after the first run, less that of importing it.
        peak_nbytes: The most it had meanwhile, likewise.
        difference: Largest difference from our outputs, over their largest value.
    """

    name: str
    version: str
    time_ms: Spread
    image_ms: Spread
    ratio: Spread
    first_s: float
    resident_nbytes: int
    peak_nbytes: int
    difference: float

    @classmethod
    def of(cls, competitor: Competitor, ours: Sequence[float], n_images: int, difference: float) -> Result:
        """Of a competitor's times, and ours in the same rounds."""
        record, time_ms = competitor.report, Spread.of(competitor.times).scaled(1e-6)
        return cls(
            name=competitor.runtime.name,
            version=competitor.runtime.version,
            time_ms=time_ms,
            image_ms=time_ms.scaled(1 / n_images),
            ratio=Spread.of_ratios(competitor.times, ours),
            first_s=record["first_s"],
            resident_nbytes=record["resident_nbytes"] - record["imported_nbytes"],
            peak_nbytes=record["peak_nbytes"] - record["imported_nbytes"],
            difference=difference,
        )


class Outcome(Struct, frozen=True):
    """Outcome of a contest: our result first, and the failures of those that cannot run the model."""

    results: list[Result]
    failures: list[Failure]


class Contest(Struct, frozen=True):
    """One ONNX file, its feeds and the data type of its activations; ``tell`` is called with each stage."""

    model: Path
    feeds: Mapping[str, np.ndarray]
    n_threads: int
    dtype: str
    n_rounds: int
    tell: Tell

    def run(self, runtimes: Sequence[Runtime]) -> Outcome:
        """Measure them all, in turn; ours has to be the first, since ratios are to it.

        One that cannot run the model, or fails on its way, is reported as such, and the others go on; of the first that
        is an UnsupportedError. An InputError where feeds hold denormals, on which arithmetic is slow.
        """
        if any(_has_denormals(array) for array in self.feeds.values()):
            raise InputError("what is fed holds denormals, on which arithmetic is a hundred times slower: no measure")
        failures: list[Failure] = []
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            save_feeds(self.feeds, folder / "feeds.npz")
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


class Competitor(TurnProcess):
    """A runtime in a process of its own, with a folder for its files, beside the feeds; times are nanoseconds."""

    def __init__(self, contest: Contest, runtime: Runtime, folder: Path) -> None:
        self.runtime = runtime
        self.times: list[float] = []
        self._contest = contest
        self._folder = folder
        self._outputs = folder / "outputs.npz"
        model = folder / "model.session" if runtime.is_saved else contest.model
        # Code that it compiled earlier does not count.
        super().__init__(runtime.name, self._arguments(runtime.name, model, self._outputs), {"TMPDIR": str(folder)})

    def __enter__(self) -> Self:
        self._contest.tell(f"{self.name}: loading")
        self._folder.mkdir()
        if self.runtime.is_saved:
            arguments = self._arguments("save", self._contest.model, self._folder / "model.session")
            with TurnProcess(self.name, arguments, sleeps=False):
                pass
        return super().__enter__()

    def take_turn(self) -> None:
        """Take the time of the fastest run of a turn."""
        self.times.append(self.turn(TURN_NS)["ns"])

    def outputs(self) -> list[np.ndarray]:
        """Outputs of its first run."""
        with np.load(self._outputs) as file:
            return [file[name] for name in file.files]

    def _arguments(self, runtime: str, model: Path, result: Path) -> list[object]:
        given = self._contest
        return ["-m", WORKER, runtime, model, self._folder.parent / "feeds.npz", result, given.n_threads, given.dtype]


def save_feeds(feeds: Mapping[str, np.ndarray], path: Path) -> None:
    """Write the feeds, for the runtimes' processes."""
    np.savez(path, *feeds.values(), names=np.array([*feeds], np.str_))


def check_agreement(results: Sequence[Result], dtype: str) -> list[str]:
    """A line for each runtime whose outputs differ from ours by more than the data type explains."""
    limit = MAX_DIFFERENCE[dtype]
    return [
        f"{result.name} differs from {OURS} by {result.difference:.1e} of the largest output; {limit:.0e} is allowed"
        for result in results
        if not result.difference <= limit
    ]


def print_outcome(title: str, outcome: Outcome) -> None:
    """A line for each runtime, and below why some have no times."""
    is_batch = any(result.image_ms != result.time_ms for result in outcome.results)
    cells = [_cells(result, is_batch=is_batch) for result in outcome.results]
    header = [column for column, _ in cells[0]]
    rows = [[cell for _, cell in row] for row in cells]
    rows += [[failure.name, failure.version, *["-"] * (len(header) - 2)] for failure in outcome.failures]
    spare = [header.index("version"), header.index("least-most"), header.index("peak MB")]
    print_table(header, rows, title=title, text_columns=(0, 1), spare=spare)
    for failure in outcome.failures:
        say(failure.reason)


def _cells(result: Result, *, is_batch: bool) -> Sequence[tuple[str, str]]:
    time_ms, times_ms = spread(result.time_ms)
    ratio, ratios = spread(result.ratio)
    image = [("ms/image", spread(result.image_ms)[0])] if is_batch else []
    return (
        ("runtime", result.name),
        ("version", result.version),
        ("ms", time_ms),
        ("least-most", times_ms),
        *image,
        ("time over ours", ratio),
        ("least-most", ratios),
        ("first s", f"{result.first_s:.2f}"),
        ("MB", f"{result.resident_nbytes / _MB:.0f}"),
        ("peak MB", f"{result.peak_nbytes / _MB:.0f}"),
        ("differs", small(result.difference)),
    )


def contest_charts(outcomes: Mapping[str, Outcome]) -> list[Chart]:
    """Ratios, times, first results and memory of every runtime; outcomes are by the network's name."""

    def rows(value: Callable[[Result], Spread]) -> list[Row]:
        return [Row(each.name, value(each), group) for group, outcome in outcomes.items() for each in outcome.results]

    is_batch = any(each.image_ms.median != each.time_ms.median for one in outcomes.values() for each in one.results)
    return [
        Chart(f"Time over that of {OURS} in the same round", "", rows(lambda each: each.ratio), baseline=OURS),
        Chart("Time of a run", "ms", rows(lambda each: each.time_ms)),
        *([Chart("Time of an image", "ms", rows(lambda each: each.image_ms))] if is_batch else []),
        Chart("First result in a fresh process", "s", rows(lambda each: Spread.of([each.first_s]))),
        Chart("Memory after the first run", "MB", rows(lambda each: Spread.of([each.resident_nbytes / _MB]))),
        Chart("Most memory until then", "MB", rows(lambda each: Spread.of([each.peak_nbytes / _MB]))),
    ]


def contest_table(outcomes: Mapping[str, Outcome]) -> Table:
    """Versions, and how far results lie apart."""
    rows: list[tuple[str, str, str, float | None]] = [
        (group, each.name, each.version, each.difference)
        for group, outcome in outcomes.items()
        for each in outcome.results
    ]
    rows += [(group, each.name, each.version, None) for group, one in outcomes.items() for each in one.failures]
    return Table(
        f"Versions, and the largest difference from {OURS}'s outputs over their largest value",
        ("network", "runtime", "version", "differs by"),
        rows,
    )


def _able(
    competitors: Sequence[Competitor], act: Callable[[Competitor], object], failures: list[Failure]
) -> list[Competitor]:
    """Those of the competitors that can act; others, but for the first, become failures with their reason."""
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


def _difference(outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    if [array.shape for array in outputs] != [array.shape for array in expected]:
        return math.inf
    return largest_difference(outputs, expected)


def _has_denormals(array: np.ndarray) -> bool:
    if array.dtype.kind != "f":
        return False
    sizes = np.abs(array.astype(np.float32))
    return bool(((sizes > 0) & (sizes < _SMALLEST)).any())
