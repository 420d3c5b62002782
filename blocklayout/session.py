"""A session: a model ready to run, as its user holds it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from blocklayout import dnnl
from blocklayout.errors import InputError, PlanError
from blocklayout.forking import Lock
from blocklayout.layout_events import carry, watches_around
from blocklayout.runtime.memory import MemoryUse
from blocklayout.value_checks import check_mode

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.plan import Plan
    from blocklayout.runtime import InputInfo, OutputInfo, Pieces, PlanBook
    from blocklayout.serve.queue import Queue
    from blocklayout.serve.stats import Stats
    from blocklayout.serve.submissions import Submission, Submissions
    from blocklayout.show.profile import Profile
    from blocklayout.show.report import Report
    from blocklayout.show.verdict import Verdict
    from blocklayout.tensor import Tensor

    Write = Callable[[Path, PlanBook, Sequence[str] | None, Sequence[Mapping[str, Any]]], None]
    Given = Mapping[str, np.ndarray]

_NO_FEED: Mapping[str, Any] = {}
"""Stands for a feed that was left out: an array alone is given as the first argument then."""


class Session:
    """A model ready to run; safe to share among threads.

    Made by :func:`blocklayout.load`. The threads of its streams end when it is closed, by :meth:`close` or as a context
    manager, and when nobody refers to it any more.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> b = bl.Builder()
        >>> x = b.input("x", (1, 16, 8, 8))
        >>> b.output("y", x.conv(np.ones((16, 16, 3, 3), np.float32), pads=1, name="conv").relu())
        >>> session = bl.load(b)
        >>> [y] = session.run(None, {"x": np.ones((1, 16, 8, 8), np.float32)})
        >>> y.shape, float(y[0, 0, 4, 4])
        ((1, 16, 8, 8), 144.0)
    """

    def __init__(self, book: PlanBook, write: Write, queue: Queue | None = None) -> None:
        """Hold a model's plans; ``write`` writes them with their packed weights to a file.

        Of submitted requests any number waits, each alone, where there is no ``queue``.
        """
        self._book = book
        self._write = write
        self._queue = queue
        self._submissions: Submissions | None = None
        self._lock = Lock()

    def get_inputs(self) -> list[InputInfo]:
        """Name, declared shape and type of every input."""
        return list(self._book.signature.inputs)

    def get_outputs(self) -> list[OutputInfo]:
        """Name, declared shape and type of every output."""
        return list(self._book.signature.outputs)

    def get_overridable_initializers(self) -> list[InputInfo]:
        """Initializers that the model lists among its inputs, which may be fed as well."""
        return list(self._book.signature.defaults)

    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, Any] = _NO_FEED, *, out: Given | None = None
    ) -> list[Any]:
        """Run the model once: on the calling thread where there is one stream, else on the next that is free.

        Args:
            output_names: Which outputs to return, in that order; ``None`` for all.
            feed: Arrays, torch tensors or Tensors by input name, any strides. They are only read.
            out: Arrays to write outputs to, by name. Those without holes are written directly, others, and those that
                share memory with the feed, by a copy.

        Returns:
            Row-major arrays in the model's declared types, fresh unless they are those of ``out``; a Tensor where
            ``io_layout`` asks for blocks.

        Raises:
            InputError: A name, type, rank or extent that does not fit; the message has one that does. Or the session
                is closed.
            WatchError: It moved bytes inside of ``watch("raise")``; the run is done, its outputs are lost.
            CheckError: Dirty padding, or a value that is not finite, where the session or a block around it checks.
        """
        book = self._book
        if feed is _NO_FEED:
            first = book.signature.inputs[0].name if book.signature.inputs else "x"
            right = f"run(None, {{{first!r}: x}}), where None stands for all outputs"
            raise InputError(f"run takes names of outputs and a feed by name: {right}; session(x) takes arrays alone")
        streams = book.streams
        is_watched = watches_around()
        if streams.n == 1 and not (is_watched or streams.is_closed):
            return book.run(output_names, feed, out)
        call = partial(book.run, output_names, feed, out)
        return streams.call(carry(call) if is_watched or check_mode.get() else call)

    def run_held(self, feed: Mapping[str, Any], held: Mapping[str, Tensor]) -> dict[str, Any]:
        """Run once on the calling thread: outputs ``held`` are written to these Tensors, others are fresh; all by name.

        Args:
            feed: As for :meth:`run`.
            held: By output, in the plan's formats, and apart in memory from each other and from the feed.
        """
        return self._book.run_held(feed, held)

    def __call__(self, *arrays: Any) -> Any:
        """Run on positional inputs; a single output comes without its list.

        Raises:
            InputError: As :meth:`run`, and when the number of arrays is not the number of inputs.
        """
        names = [info.name for info in self._book.signature.inputs]
        if len(arrays) != len(names):
            raise InputError(f"the model takes {len(names)} inputs ({', '.join(names)}), got {len(arrays)}")
        outputs = self.run(None, dict(zip(names, arrays, strict=True)))
        return outputs[0] if len(outputs) == 1 else outputs

    def submit(
        self,
        feed: Mapping[str, Any],
        output_names: Sequence[str] | None = None,
        *,
        out: Given | None = None,
        deadline: float | None = None,
    ) -> Submission:
        """Have the model run once, as soon as a stream is free, and go on.

        Requests begin in the order in which they came, and wait in a queue as long as ``max_waiting`` of
        :func:`blocklayout.load` allows.

        Args:
            feed: As for :meth:`run`. The mapping may change, its arrays may not until the future is done. Where the
                session batches, they may lack the first extent; so does the answer then.
            output_names: As for :meth:`run`.
            out: As for :meth:`run`; the arrays are written until the future is done.
            deadline: Seconds from now after which nobody wants the answer: a request that has not begun by then never
                runs, and one that runs ends before its next step, both with a ``DeadlineExceededError``.

        Returns:
            A future of the result of :meth:`run`, or of its error. Its ``cancel()`` succeeds until the run begins, its
            ``stop()`` also ends one that has. Its callbacks run on the stream's thread.

        Raises:
            ClosedError: The session is closed.
            QueueFullError: As many wait as may wait.
            OutOfMemoryError: The system starts no thread for a stream, and there is none.
            InputError: ``feed`` or ``out`` is no mapping, or ``deadline`` no number of seconds.
        """
        return self.submissions.ask(feed, output_names, out, deadline)

    def stats(self) -> Stats:
        """The requests that were submitted: counts, times, and how many wait now. Other runs are not counted.

        Example:
            >>> from blocklayout import Builder, load
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
            >>> load(b).stats().finished
            0
        """
        return self.submissions.stats()

    def warm_up(
        self, shapes: Mapping[str, Sequence[int]] | None = None, contents: Mapping[str, Any] | None = None
    ) -> None:
        """Plan, pack, and run on every stream, for all sizes of batches: the first request takes no longer then.

        Args:
            shapes: The extents of each input, as the caller's arrays have them; by default those that the model
                declares, and of a first extent that it leaves free, 1. Of several sets of extents, call it with each.
            contents: Arrays by input, to be fed in place of zeros: such as the target of a Reshape.

        Raises:
            InputError: Extents do not fit, or the model leaves some free.
        """
        self.submissions.warm_up(shapes, contents)

    @property
    def submissions(self) -> Submissions:
        """The requests that were submitted, from the first time on that somebody asks."""
        with self._lock:
            if self._submissions is None:
                from blocklayout.serve.submissions import Submissions

                self._submissions = Submissions(self._book, self._queue)
            return self._submissions

    def check_open(self) -> None:
        """Raise a ClosedError where it was closed."""
        self._book.streams.check_open()

    def close(self) -> None:
        """Finish submitted requests, end the threads, and free arenas and primitives; plans can still be looked at.

        A second call does nothing. Runs are refused from now on.
        """
        if self._submissions is not None:
            self._submissions.hurry()
        self._book.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Any] | None = None) -> Plan:
        """Make the plan for these input shapes now, rather than at the first run.

        Args:
            shapes: The extents of each input, as the caller's arrays have them.
            contents: Arrays by input; those whose contents decide extents are looked at, such as a Reshape's target.

        Raises:
            InputError: Names or extents do not fit, ``contents`` lacks an input that decides extents (a
                ``ContentsNeededError``), or the session is closed.
        """
        return self._book.prepare(shapes, contents)

    @property
    def plan(self) -> Plan:
        """The session's only plan; a PlanError where there is none yet, or more than one."""
        return self._book.plan

    @property
    def plans(self) -> list[Plan]:
        """All plans that there are: the one that ran last at the end, and of a model in pieces, piece by piece."""
        return self._book.plans

    @property
    def pieces(self) -> Pieces | None:
        """The pieces of a model that is cut where only data settle extents, to print; ``None`` while it is whole."""
        return self._book.pieces

    def plan_for(self, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """The plan for these input shapes, or a PlanError; where contents decide as well, the one that ran last."""
        return self._book.plan_for(shapes)

    def settle(self, feed: Mapping[str, Any], policy: str, share: float) -> None:
        """Have ``auto`` take a policy that was seen to be faster, in this session and in later loads.

        Nothing changes for a model in pieces or in parts, without a plan for these extents, with another policy than
        ``auto``, or with ``tune="model"``.

        Args:
            feed: The one that both were run on.
            policy: The faster one.
            share: Its time next to that of this session, in turn with it.
        """
        self._book.settle(feed, policy, share)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        targets: Sequence[str] | None = None,
        feeds: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write its plans and their packed weights to one file, which :func:`blocklayout.load` takes.

        A session loaded from it needs neither the model nor ``onnx``, plans nothing and packs nothing; its weights are
        mapped, so that several processes share them. It runs with the extents of these plans only. The file is a
        safetensors file: it is there as a whole, or as it was before. Of a model that is cut, each piece is in it, and
        the nodes between plans; those that ``onnx.reference`` computes need ``onnx`` there, too.

        Args:
            path: The file to write.
            targets: The instruction sets that it is for, such as ``("avx2", "avx512_core")``, by default the session's
                own; :func:`blocklayout.load` takes the highest that its CPU has. For lower ones, the model is planned
                and packed for the same extents in a process of its own. For one that this CPU lacks nothing can be
                packed here: :func:`blocklayout.merge_sessions` makes one file of those that several machines wrote.
            feeds: Typical inputs of a model in pieces, which those processes run it on.

        Raises:
            PlanError: There is no plan yet, also none of a piece, or the file cannot be written; or ``targets`` are
                asked of a session that was saved itself, or with pins that functions decide.
            InputError: ``targets`` are not the names of instruction sets.
            UnsupportedError: This CPU has not one of them.
            BlockLayoutError: The model cannot be planned for one of them.
        """
        if self.pieces is None and not self.plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        try:
            target = Path(path)
        except TypeError:
            raise PlanError(f"path={path!r:.60}: give the path of a file") from None
        try:
            self._write(target, self._book, targets, feeds)
        except OSError as error:
            raise PlanError(f"the session cannot be saved as {path}: {error.strerror or error}") from error

    @property
    def streams(self) -> int:
        """How many runs go on at a time."""
        return self._book.streams.n

    @property
    def executor(self) -> str:
        """The executor of the steps: ``C``, all in one call, or ``Python``, where no compiler built the other."""
        return "C" if dnnl.has_native_executor() else "Python"

    def memory(self) -> MemoryUse:
        """Memory in use, by purpose; print it for a table.

        Example:
            >>> from blocklayout import Builder, load
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
            >>> load(b).memory().n_plans
            1
        """
        return MemoryUse.of(self._book.books)

    def profile(self, feed: Mapping[str, Any], *, n_runs: int = 20) -> Profile:
        """A typical run, step by step: print it, or ``save_chrome_trace`` it.

        Args:
            feed: As for :meth:`run`.
            n_runs: Runs whose median is taken; one more comes before them.

        Raises:
            InputError: As :meth:`run`.
        """
        from blocklayout.runtime.book_report import profile

        return profile(self._book, feed, n_runs)

    def verdict(self, profile: Profile | None = None) -> Verdict:
        """Which layout is best and by how much, what reorders and slow code cost, and what would help most: print it.

        Times are those of ``profile``, if given; else prices, and where the load ran whole plans, those of the runs.

        Raises:
            PlanError: There is no plan yet.

        Example:
            >>> from blocklayout import Builder, load
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
            >>> load(b).verdict().reorders.n
            0
        """
        from blocklayout.runtime.book_report import verdict

        return verdict(self._book, profile)

    def report(self, feed: Mapping[str, Any] | None = None, *, n_runs: int = 5) -> Report:
        """A page about the plan: layouts, reasons, memory; ``save("report.html")`` it, or have a notebook show it.

        Args:
            feed: As for :meth:`run`; where given, each step is timed and held against this machine's ceilings, and the
                report is of the plan for its extents. A model that is cut is shown piece by piece.
            n_runs: As for :meth:`profile`.

        Raises:
            InputError: As :meth:`profile`.
            PlanError: There is no plan yet, or several and no feed to tell which.
        """
        from blocklayout.runtime.book_report import report

        return report(self._book, feed, n_runs)

    def __repr__(self) -> str:
        from blocklayout.show.plan_text import session_text

        book, queue, streams = self._book, self._queue, self._book.streams
        facts = [
            "1 thread" if streams.n_threads == 1 else f"{streams.n_threads} threads",
            f"{streams.n} streams" if streams.n > 1 else "",
            "" if book.pieces is None else f"cut into {len(book.pieces)} pieces",
            f"{self.executor} executor",
            f"check={book.check!r}" if book.check else "",
            f"batches of up to {queue.batching.max_batch}" if queue and queue.batching else "",
            f"at most {queue.max_waiting} wait" if queue and queue.max_waiting else "",
            "closed" if streams.is_closed else "",
        ]
        inputs, outputs = ([info.text for info in infos] for infos in (book.signature.inputs, book.signature.outputs))
        return session_text(inputs, outputs, self.plans, book.maker.request, [*filter(None, facts)])

    def _repr_html_(self) -> str:
        from blocklayout.show.plan_text import session_html

        return session_html(repr(self), self.plans[-1:] if self.pieces is None else self.plans)
