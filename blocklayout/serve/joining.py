"""Joining: requests of one row each that run together, along dimension 0."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from blocklayout.dnnl import Stop
from blocklayout.errors import BlockLayoutError, InputError
from blocklayout.runtime.inputs import check_feeds
from blocklayout.runtime.outputs import check_given, check_wanted, deliver
from blocklayout.tensor import as_array

if TYPE_CHECKING:
    from collections.abc import Hashable

    from blocklayout.runtime import PlanBook
    from blocklayout.serve.queue import Batching

    Names = Sequence[str] | None
    Given = Mapping[str, np.ndarray]
    Call = Callable[[Stop], list[Any]]


N_TRIES = 3
"""Runs of a size before one knows how long it takes: the first also plans, the second may meet a neighbour."""

_N_TIMES = 16
"""Runs of which the shortest counts; the machine may become another."""


_MAX_KEYS = 256
"""Kinds of rows that are remembered."""


class Row(Struct, frozen=True, eq=False):
    """One row for each input.

    Attributes:
        arrays: By input, with 1 as the first extent.
        is_bare: Whether it was fed without the first extent, and its answer has none either.
        names: The outputs that are asked for; ``None`` for all.
        key: Extents, types and names of outputs: rows with the same can be joined.
    """

    arrays: Mapping[str, np.ndarray]
    is_bare: bool
    names: tuple[str, ...] | None
    out: Given | None
    key: tuple[Hashable, Hashable]


class Joining:
    """Joins rows that are fed to a model, runs them, and parts their results."""

    def __init__(self, book: PlanBook, batching: Batching) -> None:
        """Join rows that run by a book, of so many at most, the first of which waits for so long."""
        self._book = book
        self._batching = batching
        self.max_batch = batching.max_batch
        self.max_delay_ns = int(1e6 * batching.max_delay_ms)
        self._sizes = batching.sizes
        self._inputs = book.signature.inputs
        self._outputs = book.signature.outputs
        self._proven: set[Hashable] = set()
        self._times_s: dict[tuple[Hashable, int], deque[float]] = {}

    def asked(self, feed: Mapping[str, Any], names: Names, out: Given | None, call: Call) -> tuple[Call, Row | None]:
        """The call that answers a feed, and its row; ``call`` and ``None`` where it is none. Errors are its answer."""
        try:
            row = self.row(feed, names, out)
        except BlockLayoutError as error:
            return partial(_refuse, error), None
        return (call, None) if row is None else (partial(self._alone, row), row)

    def row(self, feed: Mapping[str, Any], names: Names = None, out: Given | None = None) -> Row | None:
        """A feed as a row, proven to be apart from others; ``None`` of several rows, or of other inputs."""
        if feed.keys() != {info.name for info in self._inputs}:
            return None
        arrays = {info.name: as_array(feed[info.name], f"input {info.name}") for info in self._inputs}
        missing = {len(info.shape or ()) - arrays[info.name].ndim for info in self._inputs}
        if missing == {1}:
            arrays = {name: array[None] for name, array in arrays.items()}
        elif missing != {0} or any(len(array) != 1 for array in arrays.values()):
            return None
        key = tuple((name, array.shape, array.dtype) for name, array in arrays.items())
        if key not in self._proven:
            fed = check_feeds(self._inputs, arrays)
            self._batching.prove_rows(self._book, {name: each.shape for name, each in fed.items()})
            if len(self._proven) >= _MAX_KEYS:
                self._proven.clear()
                self._times_s.clear()
            self._proven.add(key)
        wanted = None if names is None else tuple(info.name for info in check_wanted(names, self._outputs))
        return Row(arrays, missing == {1}, wanted, out, (key, wanted))

    def warm_up(self, feed: Mapping[str, Any]) -> None:
        """Run every size of batches, until it is known how long it takes."""
        row = self.row(feed)
        if row is None:
            raise InputError("batches are made of single rows: give shapes= with 1 as the first extent")
        for size in self._sizes:
            for _ in range(N_TRIES):
                self.run([row] * size, Stop())

    def portions(self, rows: Sequence[Row]) -> list[int]:
        """How many of these rows, which can be joined, to run at a time, to be done with all of them soonest.

        That follows from how long runs took: where time is spent on weights rows are padded to the next size, where
        each row takes its time there are several runs without padding.
        """
        key, n_rows = rows[0].key[0], len(rows)
        best: list[tuple[float, int]] = [(0.0, 0)]  # for so many rows: how long, and the first run's size
        for n in range(1, n_rows + 1):
            next_size = next(size for size in self._sizes if size >= n)
            choices = (size for size in self._sizes if size <= next_size)
            best.append(min((self._time_s(key, size) + best[max(0, n - size)][0], -size) for size in choices))
        portions = []
        while n_rows:
            portions.append(min(n_rows, -best[n_rows][1]))
            n_rows -= portions[-1]
        return portions

    def _time_s(self, key: Hashable, size: int) -> float:
        """How long a run of this size takes; nothing, so that it is tried, until that is known."""
        times = self._times_s.get((key, size), ())
        return min(times) if len(times) >= N_TRIES else 0.0

    def run(self, rows: Sequence[Row], stop: Stop) -> list[Call]:
        """Run rows together; returns the functions that make each one's answer."""
        n, key = len(rows), rows[0].key[0]
        size = next(size for size in self._sizes if size >= n)
        padded = [*rows, *[rows[-1]] * (size - n)]  # values that the model takes; zeros might not be
        start = time.monotonic()
        feed = {name: np.concatenate([row.arrays[name] for row in padded]) for name in rows[0].arrays}
        results = self._book.run(rows[0].names, feed, None, stop)
        self._times_s.setdefault((key, size), deque(maxlen=_N_TIMES)).append(time.monotonic() - start)
        return [partial(self._part, row, results, place) for place, row in enumerate(rows)]

    def _alone(self, row: Row, stop: Stop) -> list[Any]:
        """The answer of a row that runs alone."""
        [answer] = self.run([row], stop)
        return answer(stop)

    def _part(self, row: Row, results: Sequence[np.ndarray], place: int, _: Stop) -> list[Any]:
        """A row of the results, which shares no memory with the others."""
        wanted = self._outputs if row.names is None else check_wanted(row.names, self._outputs)
        parts = [result[place] if row.is_bare else result[place : place + 1] for result in results]
        if len(results[0]) > 1:
            parts = [np.array(part, order="C") for part in parts]
        if row.out is None:
            return parts
        check_given(row.out, wanted, {info.name: part.shape for info, part in zip(wanted, parts, strict=True)})
        return [deliver(info.name, part, row.out.get(info.name)) for info, part in zip(wanted, parts, strict=True)]


def _refuse(error: BlockLayoutError, _: Stop) -> list[Any]:
    raise error
