"""Counts and times of the requests to a session."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from blocklayout.errors import DeadlineExceededError, InputError, StoppedError
from blocklayout.forking import renew_in_children

BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram's buckets; one more bucket is above."""

End = Literal["finished", "failed", "cancelled", "overdue", "refused"]
"""How a request ended."""


class Histogram(Struct, frozen=True):
    """Times, counted by length.

    Attributes:
        counts: Of each bucket: times up to a bound of ``BOUNDS_S`` and above the one before it; those above all last.
        total_s: Their sum, in seconds.

    Example:
        >>> Histogram((0, 3, 1, *[0] * 12), 0.005).n
        4
    """

    counts: tuple[int, ...]
    total_s: float

    @property
    def n(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """An upper bound, in seconds, of so large a share of them; infinite above the last bound, 0 if there are none.

        Example:
            >>> Histogram((0, 3, 1, *[0] * 12), 0.005).quantile(0.5)
            0.001
        """
        wanted, seen = share * self.n, 0
        for bound, count in zip((*BOUNDS_S, float("inf")), self.counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return bound
        return 0.0


class Stats(Struct, frozen=True):
    """The requests that were submitted to a session since it was loaded.

    Attributes:
        finished: Those that were answered.
        failed: Those that ended with another error than the following.
        cancelled: Those that were cancelled before they began, or stopped while they ran.
        overdue: Those whose deadline passed.
        refused: Those that found the queue full.
        n_waiting: Those that wait now.
        queue: How long those that finished had waited before they began, in seconds.
        run: How long they took from then on.
        batches: How often so many requests ran together, by their number.
        arena_nbytes: Arenas and scratchpads now.
        weights_nbytes: Packed weights now.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder, load
        >>> b = Builder()
        >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
        >>> with load(b) as session:
        ...     _ = session.submit({"x": np.ones((1, 16, 8, 8), np.float32)}).result()
        ...     session.stats().finished
        1
    """

    finished: int
    failed: int
    cancelled: int
    overdue: int
    refused: int
    n_waiting: int
    queue: Histogram
    run: Histogram
    batches: Mapping[int, int]
    arena_nbytes: int
    weights_nbytes: int

    def __str__(self) -> str:
        ends = ", ".join(f"{getattr(self, end)} {end}" for end in _ENDS)
        batches = ", ".join(f"{count} of {size}" for size, count in sorted(self.batches.items()))
        times = [
            f"{name} mean {1e3 * each.total_s / each.n:.2f} ms, p99 up to {1e3 * each.quantile(0.99):g} ms"
            for name, each in (("  waited", self.queue), ("  ran   ", self.run))
            if each.n
        ]
        return "\n".join(
            (
                f"{ends}; {self.n_waiting} wait",
                *times,
                *([f"  batches {batches}"] if batches else []),
                f"  arenas {self.arena_nbytes >> 20} MiB, weights {self.weights_nbytes >> 20} MiB",
            )
        )

    def prometheus(self, **labels: str) -> str:
        """The same in Prometheus' text exposition format, version 0.0.4.

        Args:
            labels: Of every sample, such as ``model="resnet50"``.

        Raises:
            InputError: A label that Prometheus allows nobody, or that is one of a metric's own.

        Example:
            >>> from blocklayout import Builder, load
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
            >>> text = load(b).stats().prometheus(model="small")
            >>> print(text.splitlines()[2])
            blocklayout_requests_total{model="small",end="finished"} 0
        """
        for name in labels:
            if name in _OWN_LABELS or name.startswith("__") or not (name.isascii() and name.isidentifier()):
                raise InputError(f"label {name!r}: give a word of ASCII letters, digits and _, none of {_OWN_LABELS}")
        return "".join(f"{line}\n" for line in self._exposed(labels))

    def _exposed(self, labels: Mapping[str, str]) -> Iterator[str]:
        ends = (({"end": end}, getattr(self, end)) for end in _ENDS)
        yield from _samples("requests_total", "counter", "Requests by how they ended.", labels, ends)
        waiting = "Requests that wait for a stream."
        yield from _samples("requests_waiting", "gauge", waiting, labels, [({}, self.n_waiting)])
        batches = (({"size": str(size)}, count) for size, count in sorted(self.batches.items()))
        yield from _samples("batches_total", "counter", "Runs by the number of their requests.", labels, batches)
        memory = [({"kind": "arena"}, self.arena_nbytes), ({"kind": "weights"}, self.weights_nbytes)]
        yield from _samples("memory_bytes", "gauge", "Memory that the session holds.", labels, memory)
        yield from _histogram("queue_seconds", "How long requests waited.", labels, self.queue)
        yield from _histogram("run_seconds", "How long requests ran.", labels, self.run)


_ENDS: tuple[End, ...] = ("finished", "failed", "cancelled", "overdue", "refused")
_BOUNDS_NS = [int(1e9 * bound) for bound in BOUNDS_S]
_OWN_LABELS = ("end", "size", "kind", "le")


def _samples(
    name: str, kind: str, text: str, labels: Mapping[str, str], samples: Iterable[tuple[Mapping[str, str], int]]
) -> Iterator[str]:
    yield f"# HELP blocklayout_{name} {text}"
    yield f"# TYPE blocklayout_{name} {kind}"
    for own, value in samples:
        yield f"blocklayout_{name}{_braced({**labels, **own})} {value}"


def _histogram(name: str, text: str, labels: Mapping[str, str], times: Histogram) -> Iterator[str]:
    yield from _samples(name, "histogram", text, labels, ())
    seen = 0
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), times.counts, strict=True):
        seen += count
        yield f"blocklayout_{name}_bucket{_braced({**labels, 'le': bound})} {seen}"
    yield f"blocklayout_{name}_sum{_braced(labels)} {times.total_s!r}"
    yield f"blocklayout_{name}_count{_braced(labels)} {seen}"


def _braced(labels: Mapping[str, str]) -> str:
    escaped = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    inside = ",".join(f'{name}="{str(value).translate(escaped)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


class Tally:
    """Counts that threads add to."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._ends: dict[End, int] = dict.fromkeys(_ENDS, 0)
        self._batches: dict[int, int] = {}
        self._queue_counts = [0] * (len(BOUNDS_S) + 1)
        self._run_counts = [0] * (len(BOUNDS_S) + 1)
        self._queue_ns = self._run_ns = 0
        renew_in_children(self)

    def renew(self) -> None:
        """Have a lock that no thread holds."""
        self._lock = threading.Lock()

    def begin(self, size: int) -> int:
        """Count so many requests that begin together; returns the time, in nanoseconds."""
        with self._lock:
            self._batches[size] = self._batches.get(size, 0) + 1
        return time.monotonic_ns()

    def finish(self, arrived_ns: int, begun_ns: int) -> None:
        """Count a request that came and began at these times, and is answered now."""
        waited, took = begun_ns - arrived_ns, time.monotonic_ns() - begun_ns
        with self._lock:
            self._ends["finished"] += 1
            self._queue_counts[bisect_left(_BOUNDS_NS, waited)] += 1
            self._queue_ns += waited
            self._run_counts[bisect_left(_BOUNDS_NS, took)] += 1
            self._run_ns += took

    def end(self, end: End) -> None:
        """Count a request that ended so, without an answer."""
        with self._lock:
            self._ends[end] += 1

    def fail(self, error: BaseException) -> None:
        """Count a request that ended with an error."""
        is_overdue = isinstance(error, DeadlineExceededError)
        self.end("overdue" if is_overdue else "cancelled" if isinstance(error, StoppedError) else "failed")

    def stats(self, n_waiting: int, arena_nbytes: int, weights_nbytes: int) -> Stats:
        """The counts as they are now."""
        with self._lock:
            return Stats(
                **self._ends,
                n_waiting=n_waiting,
                queue=Histogram(tuple(self._queue_counts), self._queue_ns / 1e9),
                run=Histogram(tuple(self._run_counts), self._run_ns / 1e9),
                batches=dict(self._batches),
                arena_nbytes=arena_nbytes,
                weights_nbytes=weights_nbytes,
            )
