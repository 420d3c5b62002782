"""Submissions: requests to a session, which wait for a stream, and end once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from math import inf
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field

from blocklayout.dnnl import Stop
from blocklayout.errors import DeadlineExceededError, InputError, QueueFullError
from blocklayout.forking import renew_in_children
from blocklayout.layout_events import carry, is_watched
from blocklayout.runtime.inputs import InputInfo, check_mapping
from blocklayout.runtime.memory import MemoryUse
from blocklayout.serve.joining import Joining
from blocklayout.serve.stats import Stats, Tally
from blocklayout.value_checks import check_mode

if TYPE_CHECKING:
    from blocklayout.runtime import PlanBook
    from blocklayout.serve.joining import Row
    from blocklayout.serve.queue import Queue

    Call = Callable[[Stop], list[Any]]


class Submission(Future[list[Any]]):
    """The future of a run: the results or the error of ``Session.run``.

    ``cancel()`` succeeds until the run begins, as with every future; it makes room for another request. :meth:`stop`
    also ends one that has begun.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder, load
        >>> b = Builder()
        >>> b.output("y", b.input("x", (1, 2)) * np.float32(2))
        >>> with load(b) as session:
        ...     submission = session.submit({"x": np.ones((1, 2), np.float32)}, deadline=60)
        ...     submission.result()[0].tolist()
        [[2.0, 2.0]]
    """

    def __init__(self, call: Call, row: Row | None, deadline: float | None) -> None:
        """Arrive now; ``row`` is the part that runs with others, if any, ``deadline`` seconds from now."""
        super().__init__()
        self.call = call
        self.row = row
        self.arrived_ns = time.monotonic_ns()
        self.stopping = Stop(0 if deadline is None else self.arrived_ns + int(1e9 * deadline))
        self.leave: Callable[[Submission], None] | None = None
        self.look: Callable[[], object] | None = None  # whether those that it runs with want no answer either

    def cancel(self) -> bool:
        """Cancel it unless it has begun; returns whether it is cancelled."""
        is_cancelled = super().cancel()
        if is_cancelled and self.leave is not None:
            self.leave(self)
        return is_cancelled

    def let_go(self) -> None:
        """Hold nothing more of the session and its inputs, so that a kept answer does not keep them."""
        self.call, self.row, self.leave = lambda _: [], None, None

    def stop(self) -> None:
        """Cancel it, or have its run end before the next step, with a ``StoppedError``, and go on at once.

        Where it runs together with others, they are answered all the same, and it has no answer.
        """
        if self.cancel():
            return
        self.stopping.ask()
        look = self.look
        if look is not None:
            look()


class _Batch(Struct, eq=False):
    """Submissions that will run together."""

    key: Hashable
    until_ns: int
    requests: list[Submission] = field(default_factory=list)
    filled: threading.Event | None = None


class Submissions:
    """The requests of a session, in the batches in which they will run: those that wait, and counts of all.

    A batch waits for a stream, and is joined by requests like its own until it runs: while all streams are busy,
    batches grow.
    """

    def __init__(self, book: PlanBook, queue: Queue | None) -> None:
        """Begin without requests."""
        self._book = book
        self._max_waiting = None if queue is None else queue.max_waiting
        batching = None if queue is None else queue.batching
        self.joining = None if batching is None else Joining(book, batching)
        self.tally = Tally()
        renew_in_children(self)

    def renew(self) -> None:
        """Be without requests, as in a child that was forked: they are the parent's."""
        self._lock = threading.Lock()
        self._waiting: dict[Submission, _Batch] = {}
        self._open: dict[Hashable, _Batch] = {}
        self._is_in_a_hurry = False

    def ask(
        self,
        feed: Mapping[str, Any],
        output_names: Sequence[str] | None,
        out: Mapping[str, np.ndarray] | None,
        deadline: float | None,
    ) -> Submission:
        """A request that waits for a stream; as :meth:`blocklayout.Session.submit`."""
        check_mapping("feed", feed, "{'x': array}")
        if out is not None:
            check_mapping("out", out, "{'y': array}")
            out = dict(out)
        _check_deadline(deadline)
        given, row = dict(feed), None
        call: Call = partial(self._book.run, output_names, given, out)
        if self.joining is not None:
            call, row = self.joining.asked(given, output_names, out, call)
        request = Submission(call, row, deadline)
        if is_watched() or check_mode.get():
            carried = carry(partial(call, request.stopping))
            request.call, request.row = lambda _: carried(), None
        request.leave = self._leave
        if self._wait(request) or (self._dismiss_overdue() and self._wait(request)):
            return request
        self.tally.end("refused")
        raise QueueFullError(f"{self._max_waiting} requests wait (max_waiting): submit again later, or elsewhere")

    def run_at_once(self, feed: dict[str, Any]) -> list[Any] | None:
        """Run on this thread, counted as if submitted; ``None`` where that may take longer than a run like others."""
        streams = self._book.streams
        if self._waiting or self.joining is not None or streams.n > 1 or streams.is_closed:
            return None
        begun_ns = time.monotonic_ns()
        try:
            results = self._book.run_at_once(feed)
        except BaseException as error:
            self.tally.fail(error)
            raise
        if results is not None:
            self.tally.begin(1)
            self.tally.finish(begun_ns, begun_ns)
        return results

    def warm_up(self, shapes: Mapping[str, Sequence[int]] | None, contents: Mapping[str, Any] | None) -> None:
        """Plan, pack, and run on every stream; as :meth:`blocklayout.Session.warm_up`."""
        feed = _feed_of_zeros(self._book.signature.inputs, shapes, contents)
        run = partial(self._book.run, None, feed)
        self._book.streams.call_on_all(run if self.joining is None else partial(self.joining.warm_up, feed))

    def hurry(self) -> None:
        """Have no batch wait for others any more."""
        with self._lock:
            self._is_in_a_hurry = True
            for batch in self._open.values():
                if batch.filled:
                    batch.filled.set()

    def stats(self) -> Stats:
        """Counts and times of the requests until now, and memory."""
        with self._lock:
            n_waiting = len(self._waiting)
        memory = MemoryUse.of(self._book.books)
        return self.tally.stats(n_waiting, memory.arena_nbytes + memory.scratchpad_nbytes, memory.packed_nbytes)

    def _wait(self, request: Submission) -> bool:
        """Whether there is room for it."""
        with self._lock:
            if self._max_waiting is not None and len(self._waiting) >= self._max_waiting:
                return False
            batch = None if request.row is None else self._open.get(request.row.key)
            if batch is None:
                batch = self._new_batch(request)
            batch.requests.append(request)
            self._waiting[request] = batch
            if self.joining is not None and batch.filled and len(batch.requests) >= self.joining.max_batch:
                self._shut(batch)
                batch.filled.set()
            return True

    def _new_batch(self, request: Submission) -> _Batch:
        if request.row is None or self.joining is None:
            batch = _Batch(None, 0)
        else:
            until_ns = request.arrived_ns + self.joining.max_delay_ns
            batch = _Batch(request.row.key, until_ns, filled=threading.Event())
        self._book.streams.submit(partial(self._run, batch))
        if batch.filled:
            self._open[batch.key] = batch
        return batch

    def _leave(self, request: Submission) -> None:
        """Take a cancelled one out; nothing where it does not wait any more."""
        with self._lock:
            was_waiting = request in self._waiting
            if was_waiting:
                self._take_out(request)
        if was_waiting:
            self._begins(request)

    def _dismiss_overdue(self) -> bool:
        """End those that wait and are overdue; whether there were any."""
        with self._lock:
            overdue = [request for request in self._waiting if request.stopping.is_overdue]
            for request in overdue:
                self._take_out(request)
        for request in overdue:
            self._begins(request)
        return bool(overdue)

    def _take_out(self, request: Submission) -> None:
        batch = self._waiting.pop(request)
        batch.requests.remove(request)
        if batch.filled and not batch.requests:  # its stream need not wait with it
            self._shut(batch)
            batch.filled.set()

    def _shut(self, batch: _Batch) -> None:
        """Have nothing join it any more."""
        if self._open.get(batch.key) is batch:
            del self._open[batch.key]

    def _run(self, batch: _Batch) -> None:
        """Run a batch, when it is full or has waited for long enough."""
        if batch.filled and not self._is_in_a_hurry:
            batch.filled.wait(max(0, batch.until_ns - time.monotonic_ns()) / 1e9)
        requests = self._taken(batch)
        rows = [request.row for request in requests if request.row is not None]
        for n in self.joining.portions(rows) if self.joining is not None and rows else [1] * len(requests):
            self._run_portion([requests.pop(0) for _ in range(n)])

    def _taken(self, batch: _Batch) -> list[Submission]:
        """The requests of a batch, which nothing joins any more; they wait no longer."""
        with self._lock:
            self._shut(batch)
            requests, batch.requests = batch.requests, []
            for request in requests:
                del self._waiting[request]
            return requests

    def _run_portion(self, begun: list[Submission]) -> None:
        """Run requests together, those that are neither cancelled nor overdue."""
        begun[:] = [request for request in begun if self._begins(request)]
        if not begun:
            return
        begun_ns = self.tally.begin(len(begun))
        calls = self._joined(begun) if len(begun) > 1 else [begun[0].call]
        while begun:  # an error's traceback leads here, so nothing stays
            self._answer(begun.pop(0), calls.pop(0), begun_ns)

    def _begins(self, request: Submission) -> bool:
        """Whether it is to run: it is neither cancelled nor overdue."""
        if not request.set_running_or_notify_cancel():
            request.let_go()
            self.tally.end("cancelled")
            return False
        if request.stopping.is_overdue:
            self._fail(request, DeadlineExceededError("the deadline passed before the run began"))
            return False
        return True

    def _joined(self, requests: Sequence[Submission]) -> list[Call]:
        """Run them together; returns the calls that answer each, alone if that fails."""
        stops = [request.stopping for request in requests]
        deadlines = [stop.deadline_ns for stop in stops]
        together = Stop(max(deadlines) if all(deadlines) else 0)

        def look() -> None:
            if all(stop.is_asked for stop in stops):
                together.ask()

        for request in requests:
            request.look = look
        look()  # some may have been stopped before they had it
        try:
            assert self.joining is not None  # noqa: S101 - for mypy: else none run together
            return self.joining.run([request.row for request in requests if request.row], together)
        except Exception:  # noqa: BLE001 - each alone raises its own error to its caller
            return [request.call for request in requests]
        finally:
            for request in requests:
                request.look = None

    def _answer(self, request: Submission, call: Call, begun_ns: int) -> None:
        try:
            request.stopping.check()
            results = call(request.stopping)
            request.stopping.check()
        except BaseException as error:  # noqa: BLE001 - its caller gets it
            self._fail(request, error)
            del request  # the error's traceback holds this frame, and the request the error
        else:
            self.tally.finish(request.arrived_ns, begun_ns)
            request.let_go()
            request.set_result(results)

    def _fail(self, request: Submission, error: BaseException) -> None:
        self.tally.fail(error)
        request.let_go()
        request.set_exception(error)


def _feed_of_zeros(
    infos: Sequence[InputInfo], shapes: Mapping[str, Sequence[int]] | None, contents: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Zeros of extents by name, else of those declared, a free first one being 1; ``contents`` in place of some."""
    given, arrays = shapes or {}, contents or {}
    for name, mapping in (("shapes", given), ("contents", arrays)):
        check_mapping(name, mapping, "{'x': ...}")
        unknown = mapping.keys() - {info.name for info in infos}
        if unknown:
            raise InputError(
                f"{name}: no input {', '.join(sorted(unknown))}; there are {', '.join(i.name for i in infos)}"
            )
    return {info.name: arrays.get(info.name, _zeros(info, given.get(info.name))) for info in infos}


def _zeros(info: InputInfo, shape: Sequence[int] | None) -> np.ndarray:
    extents: Sequence[Any] = info.shape or () if shape is None else shape
    if shape is None and extents and not isinstance(extents[0], int):
        extents = (1, *extents[1:])
    try:
        return np.zeros([index(extent) for extent in extents], info.numpy_dtype)
    except (TypeError, ValueError):
        rule = "give shapes={'" + info.name + "': (1, 3, 224, 224)} or the like"
        raise InputError(f"extents of input {info.name!r} are {list(extents)}: {rule}") from None


def _check_deadline(deadline: Any) -> None:
    is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
    if deadline is not None and not (is_number and 0 < deadline < inf):
        raise InputError(f"deadline={deadline!r}: give a positive number of seconds, or nothing")
