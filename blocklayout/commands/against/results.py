"""Results of runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from blocklayout.commands.against.runtimes import OURS
from blocklayout.runtime.in_turn import Spread

if TYPE_CHECKING:
    from blocklayout.commands.against.competitor import Competitor


class Outcome(Struct, frozen=True):
    """Outcome of a contest.

    Attributes:
        results: Ours first.
        failures: Of those that cannot run the model.
    """

    results: list[Result]
    failures: list[Failure]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        record: dict[str, Any] = to_builtins(self)
        return record


class Failure(Struct, frozen=True):
    """A runtime that cannot run the model.

    Attributes:
        name: The runtime's.
        version: Of what is installed.
        reason: What it says.
    """

    name: str
    version: str
    reason: str


class Result(Struct, frozen=True):
    """Result of a runtime.

    Attributes:
        name: The runtime's.
        version: Of what is installed.
        time_ms: Milliseconds of a run: the fastest of each turn, over the rounds.
        image_ms: The same of one image: over the batch.
        ratio: Its time over ours in the same round.
        first_s: Seconds from before ``import numpy`` to the first result.
        resident_nbytes: Memory after the first run, above what importing it takes.
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

    @property
    def is_peer(self) -> bool:
        """Whether it is another's."""
        return not self.name.startswith(OURS)

    @classmethod
    def of(cls, competitor: Competitor, ours: Sequence[float], n_images: int, difference: float) -> Result:
        """Of a competitor's times, and ours in the same rounds."""
        record, time_ms = competitor.first, Spread.of(competitor.times).scaled(1e-6)
        return cls(
            name=competitor.runtime.name,
            version=competitor.runtime.version,
            time_ms=time_ms,
            image_ms=time_ms.scaled(1 / n_images),
            ratio=Spread.of(a / b for a, b in zip(competitor.times, ours, strict=True)),
            first_s=record["first_s"],
            resident_nbytes=record["resident_nbytes"] - record["imported_nbytes"],
            peak_nbytes=record["peak_nbytes"] - record["imported_nbytes"],
            difference=difference,
        )
