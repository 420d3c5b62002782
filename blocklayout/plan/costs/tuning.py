"""Tuning: measure the most valuable Specs while there is time, and keep each time at once.

A machine may be half as fast in one minute as in another. So in every turn a yardstick is timed beside the rest. The
ratio to it is kept, times its time when this machine was first measured: so times of all turns compare.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic

from msgspec import Struct

from blocklayout import dnnl
from blocklayout.dnnl import Spec
from blocklayout.errors import DisturbedError
from blocklayout.layout import MemoryDesc
from blocklayout.plan.costs.measuring import SpecTimer
from blocklayout.plan.costs.store import CostStore

Tell = Callable[[str], None]

N_IN_TURN = 128
"""Specs that are timed in turn."""

_YARDSTICK = (64, 28, 28)
"""Channels and image of a convolution as networks have them; some 0.5 ms on two AVX2 cores."""

_TELL_EVERY_S = 0.1
_MAX_ATTEMPTS = 3


class Tuned(Struct, frozen=True):
    """Result of tuning.

    Attributes:
        n_measured: Specs measured now, and kept.
        n_known: Those that the store knew.
        n_left: Those that there was no time for, or no quiet moment.
        n_failed: Those whose primitive cannot be made or run here.
    """

    n_measured: int
    n_known: int
    n_left: int
    n_failed: int
    seconds: float

    def __str__(self) -> str:
        parts = [f"{self.n_measured} measured in {self.seconds:.1f} s", f"{self.n_known} known"]
        parts += [f"{self.n_left} left"] if self.n_left else []
        parts += [f"{self.n_failed} failed"] if self.n_failed else []
        return ", ".join(parts)


def tune(worth: Mapping[Spec, float], store: CostStore, seconds: float, tell: Tell = lambda _: None) -> Tuned:
    """Measure the Specs that the store does not know, the most valuable first, until the time is up.

    Specs are measured in turn, ``N_IN_TURN`` of them, and their times kept at once: an interruption loses at
    most these. One that other work on the machine disturbs is tried again after the others, a few times. Processes that
    tune at the same time take turns, and learn from each other.

    Args:
        worth: How much each time matters, nanoseconds that knowing it may save, say: of a resolved Spec, or of a
            reorder as its constructor makes it.
        store: Where times are looked up and kept.
        seconds: How long to go on; the run at hand is completed. ``math.inf`` for as long as it takes.
        tell: Progress callback, called with a few words at most ten times a second.
    """
    return _Tuning(store, seconds, tell, SpecTimer(), monotonic()).run(sorted(worth, key=lambda spec: -worth[spec]))


class _Tuning(Struct):
    store: CostStore
    seconds: float
    tell: Tell
    timer: SpecTimer
    start_s: float
    told_s: float = -inf
    n_unknown: int = 0
    n_measured: int = 0
    n_failed: int = 0

    def run(self, specs: list[Spec]) -> Tuned:
        known = self.store.times(specs)
        waiting = deque((spec, 1) for spec in specs if spec not in known)
        self.n_unknown, n_given_up = len(waiting), 0
        while waiting and self._has_time():
            turn = dict(waiting.popleft() for _ in range(min(N_IN_TURN, len(waiting))))
            for spec, outcome in self._take_turn(list(turn)).items():
                if not isinstance(outcome, Exception):
                    self.store.keep(spec, outcome)
                    self.n_measured += 1
                elif not isinstance(outcome, DisturbedError):
                    self.n_failed += 1
                elif turn[spec] < _MAX_ATTEMPTS:
                    waiting.append((spec, turn[spec] + 1))
                else:
                    n_given_up += 1
        n_known = len(specs) - self.n_unknown
        return Tuned(self.n_measured, n_known, len(waiting) + n_given_up, self.n_failed, self._elapsed_s())

    def _take_turn(self, specs: list[Spec]) -> dict[Spec, float | Exception]:
        """Measured times, to be kept, of those Specs that no other process has measured meanwhile."""
        with self.store.alone(self._has_time):
            known = self.store.times(specs)
            self.n_unknown -= len(known)
            unknown = [spec for spec in specs if spec not in known]
            standard = yardstick(specs[0].n_threads)
            standard_ns, *outcomes = self.timer.time_in_turn([standard, *unknown], self._has_time)
            if isinstance(standard_ns, Exception):
                return dict.fromkeys(unknown, standard_ns)
            first_ns = self.store.times([standard]).get(standard)
            if first_ns is None:
                self.store.keep(standard, standard_ns)
                first_ns = standard_ns
            kept = (each if isinstance(each, Exception) else each / standard_ns * first_ns for each in outcomes)
            return dict(zip(unknown, kept, strict=True))

    def _has_time(self) -> bool:
        """Whether there is time left; reports progress now and then."""
        now_s = self._elapsed_s()
        if now_s - self.told_s >= _TELL_EVERY_S:
            self.told_s = now_s
            left = f" ({self.seconds - now_s:.0f} s left)" if self.seconds < inf else ""
            self.tell(f"measuring, {self.n_measured + self.n_failed} of {self.n_unknown} known{left}")
        return self._elapsed_s() < self.seconds

    def _elapsed_s(self) -> float:
        return monotonic() - self.start_s


def yardstick(n_threads: int) -> Spec:
    """The step beside which every time is measured."""
    channels, *_ = _YARDSTICK
    src, weights = MemoryDesc((1, *_YARDSTICK), "f32", "nhwc"), dnnl.AnyDesc((channels, channels, 3, 3))
    return dnnl.resolve(dnnl.convolution(src, weights, pads=1, n_threads=n_threads)).spec
