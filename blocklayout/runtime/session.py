"""A session: a model bound to plans, one per set of input shapes."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.errors import BlockLayoutError, InputError, PlanError, RefusedError
from blocklayout.garbage import nothing_collected
from blocklayout.layout_events import carry, is_watched
from blocklayout.runtime.forking import Lock
from blocklayout.runtime.inputs import InputInfo, OutputInfo, check_feed, check_feeds, check_mapping, check_ranges
from blocklayout.runtime.memory import MemoryUse
from blocklayout.runtime.outputs import bindable, check_given, check_wanted, constant, deliver
from blocklayout.runtime.pieces import CutError
from blocklayout.runtime.row_parts import each_part, part_feeds, workspace_of
from blocklayout.runtime.streams import Streams
from blocklayout.runtime.workspace import ReadyPlan, Room, Workspace
from blocklayout.show.events import report_run
from blocklayout.tensor import Tensor
from blocklayout.value_checks import check_mode

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Plan, Request
    from blocklayout.runtime.joining import Batching
    from blocklayout.runtime.pieces import Pieces
    from blocklayout.runtime.stats import Stats
    from blocklayout.runtime.submissions import Submission, Submissions
    from blocklayout.show.profile import Profile
    from blocklayout.show.report import Report
    from blocklayout.value_checks import CheckMode

    WriteSession = Callable[[Path, "SessionContents"], None]
    WriteTargets = Callable[[Path, "SessionContents", Sequence[str], Sequence[Mapping[str, Any]]], None]
    Names = Sequence[str] | None
    Given = Mapping[str, np.ndarray]
    DescribeNodes = Callable[["Shapes", Given], Sequence[dict[str, Any]] | None]

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Logical extents of every input, in the model's order; those of defaults follow where they are fed."""

Contents = Callable[[str], np.ndarray]
"""Returns what an input is fed, in logical order."""

MAX_PLANS = 8

_MAX_BOUND = 256
"""Kinds of feeds that are known to fit, and what runs them; the oldest makes room."""


class ContentsNeededError(InputError):
    """A plan cannot be made from extents alone: others follow from what an input holds."""


class Signature(Struct, frozen=True):
    """A model's inputs and outputs.

    Attributes:
        inputs: Extents unknown until fed are ``None`` or names.
        outputs: Likewise.
        defaults: Initializers that are used where nothing is fed in their place.
        rows: Extents of inputs with one row, and sizes of batches, for which rows are proven to be computed apart.
    """

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    defaults: tuple[InputInfo, ...] = ()
    rows: tuple[tuple[Shapes, tuple[int, ...]], ...] = ()


class SessionContents(Struct, frozen=True):
    """What a session is made of, for a file.

    Attributes:
        signature: The model's inputs and outputs.
        plans: Each with the extents it was made for.
        pieces: Those of a model that is cut.
    """

    signature: Signature
    plans: Sequence[tuple[Shapes, ReadyPlan]]
    pieces: Pieces | None


class PlanKey(Struct, frozen=True):
    """Plan-cache key: input shapes, and the bytes of inputs that determine shapes, by name."""

    shapes: Shapes
    contents: tuple[tuple[str, bytes], ...] = ()


class _Kept(Struct, eq=False):
    """A plan, and a workspace for each stream that has run it, by the stream's number."""

    ready: ReadyPlan
    last_run: int
    workspaces: dict[int, Workspace] = field(default_factory=dict)


class _Bound(Struct, frozen=True, eq=False):
    """The workspace and executable for feeds of certain descriptors on a stream.

    Where contents decide as well, ``deciding`` has the bytes of these inputs, by their places among the buffers.
    """

    kept: _Kept
    workspace: Workspace
    executable: dnnl.Executable
    descs: dict[str, MemoryDesc]
    deciding: tuple[tuple[int, bytes], ...] = ()


class Session:
    """A model ready to run; safe to share among threads.

    Made by :func:`blocklayout.load`. The threads of its streams end when it is closed, by :meth:`close` or as a context
    manager, and when nobody refers to it any more.
    """

    def __init__(  # noqa: PLR0913 - one argument for each thing it is made of
        self,
        signature: Signature,
        make_plan: Callable[[Shapes, Contents], ReadyPlan],
        write: WriteSession,
        *,
        write_targets: WriteTargets | None = None,
        max_plans: int = MAX_PLANS,
        plans: Sequence[tuple[Shapes, ReadyPlan]] = (),
        originals_nbytes: Callable[[], int] = int,
        streams: Streams | None = None,
        check: CheckMode | None = None,
        asked: Request | None = None,
        pieces: Pieces | None = None,
        describe_nodes: DescribeNodes | None = None,
        settle: Callable[[Shapes, Contents, tuple[str, float]], ReadyPlan] | None = None,
    ) -> None:
        """Bind a model's signature to a maker of plans.

        Args:
            signature: The model's inputs and outputs.
            make_plan: Plans for one set of input shapes; asks for the contents of inputs that decide others.
            write: Writes plans with their packed weights to a file, for :meth:`save`.
            write_targets: The same for several instruction sets, and with what a model in pieces is run on; ``None``
                where there is no model.
            max_plans: Plans that are kept; the one that ran least lately makes room.
            plans: Those that are made already, with the extents they are for.
            originals_nbytes: Bytes of the model's own weights that ``make_plan`` holds at the moment.
            streams: What runs it; one if ``None``.
            check: What is proven in each run; see :func:`blocklayout.checking`.
            asked: The plans it makes are asked for so.
            pieces: Those of a model that is known to be cut.
            describe_nodes: Tells of the model's nodes, for reports; ``None`` where there is no model.
            settle: Makes the plan by a policy that is faster, for :meth:`settle`.

        Raises:
            DnnlError: One of these cannot run here.
        """
        self._signature = signature
        self._inputs, self._outputs = signature.inputs, signature.outputs
        self._make_plan = make_plan
        self._write = write
        self._write_targets = write_targets or _refuse_targets
        self._max_plans = max_plans
        self._originals_nbytes = originals_nbytes
        self._streams = streams or Streams()
        self._check = check
        self._asked = asked
        self._pieces = pieces
        self._describe_nodes = describe_nodes
        self._settle = settle
        self._max_waiting: int | None = None
        self._batching: Batching | None = None
        self._submissions: Submissions | None = None
        self._names = tuple(info.name for info in self._inputs)
        self._rooms: dict[int, Room] = {}  # by the stream's number, where there are ranges of extents
        self._arena_nbytes = max((ready.plan.roomy_arena_nbytes for _, ready in plans), default=0)
        self._plans: dict[PlanKey, _Kept] = {}
        self._bound: dict[tuple[Any, ...], _Bound] = {}
        self._clock = count()
        self._lock = Lock()  # for the plans that there are
        self._planning = Lock()  # taken first; other plans run meanwhile
        for shapes, ready in plans:
            self._keep(shapes, ready)

    def queue(self, max_waiting: int | None, batching: Batching | None) -> None:
        """Say how many requests may wait, and how they are joined; before the first of them.

        Args:
            max_waiting: Any number if ``None``.
            batching: None are joined if ``None``.

        Raises:
            InputError: Somebody has submitted one, or looked at counts.
        """
        if self._submissions is not None:
            raise InputError("requests were submitted already: give max_waiting and batching to load")
        self._max_waiting, self._batching = max_waiting, batching

    def prove_rows(self, row: Mapping[str, tuple[int, ...]]) -> None:
        """Have it proven, once, that rows may be joined.

        Args:
            row: Logical extents of one row, by input.

        Raises:
            UnsupportedError: They may not.
        """
        shapes, batching = tuple(row.items()), self._batching
        with self._planning:  # it reads the model, too
            proven = self._signature.rows
            if batching is None or any(shapes == of and {*batching.sizes} <= {*sizes} for of, sizes in proven):
                return
            batching.prove(row, batching.sizes)
            self._signature = replace(self._signature, rows=(*proven[-_MAX_BOUND:], (shapes, batching.sizes)))

    def get_inputs(self) -> list[InputInfo]:
        """Name, declared shape and type of every input."""
        return list(self._inputs)

    def get_outputs(self) -> list[OutputInfo]:
        """Name, declared shape and type of every output."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[InputInfo]:
        """Initializers that the model lists among its inputs, which may be fed as well."""
        return list(self._signature.defaults)

    def run(
        self,
        output_names: Sequence[str] | None,
        feed: Mapping[str, Any],
        *,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> list[Any]:
        """Run the model once: on the calling thread where there is one stream, else on the next that is free.

        Args:
            output_names: Which outputs to return, in that order; ``None`` for all.
            feed: Arrays, torch tensors or Tensors by input name, any strides. They are only read.
            out: Arrays to write outputs to, by name. Those without holes are written directly, others, and those that
                share memory with what is fed, by a copy.

        Returns:
            Row-major arrays in the model's declared types, fresh unless they are those of ``out``; a Tensor where
            ``io_layout`` asks for blocks.

        Raises:
            InputError: A name, type, rank or extent that does not fit; the message says what would. Or the session is
                closed.
            WatchError: It moved bytes inside of ``watch("raise")``; the run is done, its outputs are lost.
            CheckError: Dirty padding, or a value that is not finite, where the session or a block around it checks.
        """
        if is_watched():
            return self._streams.call(carry(partial(self._run, output_names, feed, out, [])))
        if check_mode.get():
            return self._streams.call(carry(partial(self._run, output_names, feed, out)))
        return self._streams.call(self._run, output_names, feed, out)

    def run_until(
        self, stop: dnnl.Stop, output_names: Names, feed: Mapping[str, Any], out: Given | None = None
    ) -> list[Any]:
        """Run the model once on the calling thread, one of a stream's, and look at ``stop`` before each step.

        Raises:
            StoppedError: It was asked to end.
            DeadlineExceededError: Its deadline passed.
            BlockLayoutError: As :meth:`run`.
        """
        return self._run(output_names, feed, out, [] if is_watched() else None, stop)

    def submit(
        self,
        feed: Mapping[str, Any],
        output_names: Sequence[str] | None = None,
        *,
        out: Given | None = None,
        deadline: float | None = None,
    ) -> Submission:
        """Have the model run once, as soon as a stream is free, and go on.

        What is submitted begins in the order in which it came, and waits in a queue as long as ``max_waiting`` of
        :func:`blocklayout.load` allows. Until the future is done, the arrays of ``feed`` are read and must not change,
        and those of ``out`` are written.

        Args:
            feed: As for :meth:`run`. The mapping may change, its arrays may not. Where the session batches, the arrays
                may lack the first extent; so does the answer then.
            output_names: As for :meth:`run`.
            out: As for :meth:`run`.
            deadline: Seconds from now after which nobody wants the answer: what has not begun by then never runs, and
                what runs ends before its next step, both with a ``DeadlineExceededError``.

        Returns:
            A future of what :meth:`run` returns. Whatever :meth:`run` raises, this raises. Its ``cancel()`` succeeds
            until the run begins, its ``stop()`` also ends one that has. Its callbacks run on the stream's thread.

        Raises:
            ClosedError: The session is closed.
            QueueFullError: As many wait as may wait.
            OutOfMemoryError: The system starts no thread for a stream, and there is none.
            InputError: ``feed`` or ``out`` is no mapping, or ``deadline`` no number of seconds.
        """
        from blocklayout.runtime.submissions import Submission

        check_mapping("feed", feed, "{'x': array}")
        if out is not None:
            check_mapping("out", out, "{'y': array}")
            out = dict(out)
        _check_deadline(deadline)
        requests, given, row = self._served(), dict(feed), None
        call: Callable[[dnnl.Stop], list[Any]] = partial(self.run_until, output_names=output_names, feed=given, out=out)
        if requests.joining is not None:
            call, row = requests.joining.asked(self, given, output_names, out, call)
        request = Submission(call, row, deadline)
        if is_watched() or check_mode.get():
            carried = carry(partial(call, request.stopping))
            request.call, request.row = lambda _: carried(), None
        requests.submit(request)
        return request

    def check_open(self) -> None:
        """Refuse to go on.

        Raises:
            ClosedError: It was closed.
        """
        self._streams.check_open()

    def counting_on(self, other: Session) -> Self:
        """This session, which adds to the counts of another one."""
        self._served().tally = other._served().tally
        return self

    def stats(self) -> Stats:
        """What became of the requests that were submitted: counts, times, and what waits now.

        Runs that were not submitted are not counted: they cost nothing more than they do.

        Example:
            >>> from blocklayout import Builder, load
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
            >>> load(b).stats().finished
            0
        """
        memory = self.memory()
        return self._served().stats(memory.arena_nbytes + memory.scratchpad_nbytes, memory.packed_nbytes)

    def warm_up(
        self, shapes: Mapping[str, Sequence[int]] | None = None, contents: Mapping[str, Any] | None = None
    ) -> None:
        """Have the first request take no longer than those behind it: plan, pack, and run on every stream.

        Where the session batches, that is done for all sizes of batches.

        Args:
            shapes: The extents of each input, as the caller's arrays have them; by default those that the model
                declares, and of a first extent that it leaves free, 1. Of several sets of extents, call it with each.
            contents: Arrays by input, to be fed in place of zeros: such as the target of a Reshape.

        Raises:
            InputError: Extents do not fit, or the model leaves some free.
        """
        from blocklayout.runtime.warming import feed_of_zeros, on_every_stream

        feed, joining = feed_of_zeros(self._inputs, shapes, contents), self._served().joining
        run = partial(self.run, None, feed) if joining is None else partial(joining.warm_up, self, feed)
        on_every_stream(self._streams, run)

    def close(self) -> None:
        """Finish what was submitted, end the threads, and free arenas and primitives; plans can still be looked at.

        A second call does nothing. Runs are refused from now on.
        """
        if self._submissions is not None:
            self._submissions.hurry()
        self._streams.close()
        with self._lock:
            for kept in self._plans.values():
                kept.workspaces.clear()
            self._bound.clear()
            self._rooms.clear()
        for session in () if self._pieces is None else self._pieces.sessions:
            session.close()

    def _served(self) -> Submissions:
        """What is submitted, from the first time on that somebody wants to know."""
        with self._lock:
            if self._submissions is None:
                from blocklayout.runtime.joining import Joining
                from blocklayout.runtime.submissions import Submissions

                batching = self._batching
                joining = None if batching is None else Joining(self._inputs, self._outputs, batching)
                self._submissions = Submissions(self._streams, self._max_waiting, joining)
            return self._submissions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self,
        names: Names,
        feed: Mapping[str, Any],
        out: Given | None = None,
        times: list[int] | None = None,
        stop: dnnl.Stop | None = None,
    ) -> list[Any]:
        """Run once; with a list for the times of entries and steps, report them to the watches."""
        wanted = self._outputs if names is None else check_wanted(names, self._outputs)
        pieces = self._pieces
        if pieces is None:
            try:
                return _without_refusals(self._run_once, wanted, feed, out, times, stop)
            except CutError as cut:
                pieces = cut.pieces
        return pieces.run(wanted, feed, out, stop)

    def _run_once(
        self,
        wanted: Sequence[OutputInfo],
        feed: Mapping[str, Any],
        out: Given | None,
        times: list[int] | None,
        stop: dnnl.Stop | None,
    ) -> list[Any]:
        bound, buffers = self._found_bound(feed)
        kept = bound.kept
        if times:
            times.clear()  # of a run that was refused
        kept.last_run = next(self._clock)
        constants = kept.ready.constants
        known = (
            {info.name: constant(info, kept.ready) for info in wanted if info.name in constants} if constants else {}
        )
        direct = None
        if out is not None:
            extents = {result.name: result.extents for result in bound.workspace.results}
            check_given(out, wanted, {name: array.shape for name, array in known.items()} | extents)
            direct = bindable(out, buffers)
        try:
            check = self._check or check_mode.get()
            results = bound.workspace.run(bound.executable, buffers, direct, times, check, stop)
        except RefusedError:
            self._drop(kept)
            raise
        if times is not None:
            for part in each_part(kept.ready.plan, times):
                report_run(kept.ready.plan, bound.descs, part)
        if out or known:
            results |= known
            return [deliver(info.name, results[info.name], (out or {}).get(info.name)) for info in wanted]
        return [results[info.name] for info in wanted]

    def _found_bound(self, feed: Mapping[str, Any]) -> tuple[_Bound, list[np.ndarray]]:
        """The executable for this feed, and its buffers.

        A feed of arrays and Tensors whose descriptors were found to fit before is not looked at again.
        """
        if not isinstance(feed, dict):
            return self._checked(feed)
        key: list[Any] = [self._streams.here]
        buffers: list[np.ndarray] = []
        for name in self._names:
            source = feed.get(name)
            if type(source) is np.ndarray and source.flags.aligned:
                key.append((source.dtype, source.shape, source.strides))
                buffers.append(source)
            elif type(source) is Tensor:
                key.append(id(source.desc))  # held by what it leads to
                buffers.append(source.buffer)
            else:
                return self._checked(feed)
        if len(feed) != len(buffers):
            return self._checked(feed)
        bound = self._bound.get(tuple(key))
        if bound is None:
            return self._checked(feed, tuple(key), buffers)
        for place, contents in bound.deciding:
            if buffers[place].tobytes() != contents:
                return self._checked(feed, tuple(key), buffers)
        return bound, buffers

    def _checked(
        self, feed: Mapping[str, Any], key: tuple[Any, ...] = (), sources: Sequence[np.ndarray] = ()
    ) -> tuple[_Bound, list[np.ndarray]]:
        """The same after a closer look.

        Args:
            feed: What is fed.
            key: Describes it, and everything of that description.
            sources: The callers' memory.
        """
        feeds = check_feeds(self._inputs, feed, self._signature.defaults)
        shapes = tuple((name, fed.shape) for name, fed in feeds.items())
        kept = self._ready(shapes, lambda name: feeds[name].contents())
        workspace = self._workspace(kept)
        feeds = part_feeds(kept.ready.plan, feeds)
        descs = {name: fed.desc for name, fed in feeds.items()}
        buffers = [fed.buffer for fed in feeds.values()]
        deciding = tuple(
            (place, source.tobytes())
            for place, (name, source) in enumerate(zip(feeds, sources, strict=False))
            if name in kept.ready.contents
        )
        bound = _Bound(kept, workspace, workspace.executable(descs), descs, deciding)
        is_copied = any(_address(given) != _address(read) for given, read in zip(sources, buffers, strict=False))
        if key and not is_copied:
            with self._lock:
                while len(self._bound) >= _MAX_BOUND:
                    del self._bound[next(iter(self._bound))]
                if kept in self._plans.values():
                    self._bound[key] = bound
        return bound, buffers

    def profile(self, feed: Mapping[str, Any], *, n_runs: int = 20) -> Profile:
        """See where the time of a run goes, step by step. Costs nothing where it is not called.

        Args:
            feed: As for :meth:`run`.
            n_runs: Runs whose median is taken; one more comes before them.

        Returns:
            A typical run: print it, or ``save_chrome_trace`` it.

        Raises:
            InputError: As :meth:`run`.
        """
        from blocklayout.runtime.ceilings import measured_machine
        from blocklayout.show.profile import check_n_runs, profile_of

        check_n_runs(n_runs)
        pieces = self._pieces
        if pieces is None:
            try:
                plan, runs, wall = self._streams.call(self._timed, feed, n_runs)
                return profile_of(plan, runs, wall, measured_machine(plan.isa, plan.n_threads, plan.dtype))
            except CutError as cut:
                pieces = cut.pieces
        return pieces.profile(feed, n_runs)

    def report(self, feed: Mapping[str, Any] | None = None, *, n_runs: int = 5) -> Report:
        """A page about the plan: layouts, reasons, memory, and times where there is something to run on.

        Args:
            feed: As for :meth:`run`; where given, each step is timed and held against what this machine can do, and the
                report is of the plan for its extents. A model that is cut is shown piece by piece.
            n_runs: As for :meth:`profile`.

        Returns:
            The report: ``save("report.html")`` it, or have a notebook show it.

        Raises:
            InputError: As :meth:`profile`.
            PlanError: There is no plan yet, or several and no feed to tell which.
        """
        from blocklayout.runtime.ceilings import measured_machine
        from blocklayout.show.profile import check_n_runs, profile_of
        from blocklayout.show.report import Report

        check_n_runs(n_runs)
        if self._pieces is not None:
            return self._pieces.report(feed, n_runs)
        if feed is None:
            plans = self.plans
            if len(plans) != 1:
                rule = "give a feed, whose extents tell which" if plans else "give a feed, or shapes= when loading"
                raise PlanError(f"the session has {len(plans)} plans: {rule}")
            return last_report(self)
        try:
            plan, runs, wall = self._streams.call(self._timed, feed, n_runs)
        except CutError as cut:
            return cut.pieces.report(feed, n_runs)
        machine = measured_machine(plan.isa, plan.n_threads, plan.dtype)
        return Report.of(plan, machine, profile_of(plan, runs, wall, machine), nodes=self._nodes(plan))

    def _nodes(self, plan: Plan) -> Sequence[dict[str, Any]] | None:
        """The nodes of the model that a plan computes, as records; ``None`` where the model is not at hand."""
        made_for = next(((shapes, ready) for shapes, ready in self._by_last_run() if ready.plan is plan), None)
        if self._describe_nodes is None or made_for is None:
            return None
        shapes, ready = made_for
        with self._planning:  # it reads the model, too
            return self._describe_nodes(shapes, ready.contents)

    def _timed(self, feed: Mapping[str, Any], n_runs: int) -> tuple[Plan, list[Sequence[int]], list[int]]:
        """For each run, or part of one, the nanoseconds of each step, and of all of it."""
        runs: list[Sequence[int]] = []
        wall: list[int] = []
        for _ in range(n_runs + 1):
            times: list[int] = []
            start = time.monotonic_ns()
            bound, buffers = self._found_bound(feed)
            bound.workspace.run(bound.executable, buffers, times=times)
            ns, plan = time.monotonic_ns() - start, bound.kept.ready.plan
            runs += each_part(plan, times)
            wall += [ns // plan.parts] * plan.parts
        return plan, runs[plan.parts :], wall[plan.parts :]

    def __call__(self, *arrays: Any) -> Any:
        """Run on positional inputs; a single output comes without its list.

        Raises:
            InputError: As :meth:`run`, and when the number of arrays is not the number of inputs.
        """
        if len(arrays) != len(self._inputs):
            names = ", ".join(info.name for info in self._inputs)
            raise InputError(f"the model takes {len(self._inputs)} inputs ({names}), got {len(arrays)}")
        feed = {info.name: array for info, array in zip(self._inputs, arrays, strict=True)}
        outputs = self.run(None, feed)
        return outputs[0] if len(outputs) == 1 else outputs

    def prepare(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Any] | None = None) -> Plan:
        """Make the plan for these input shapes now, rather than at the first run.

        Args:
            shapes: The extents of each input, as the caller's arrays have them.
            contents: Arrays by input; those whose contents decide extents are looked at, such as the target
                of a Reshape.

        Raises:
            InputError: Names or extents do not fit, or (``ContentsNeededError``) ``contents`` lacks an input
                that decides extents. Or the session is closed.
        """
        self._streams.check_open()
        given = dict(contents or {})
        try:
            wanted = self._key(shapes)
            for info in self._inputs:
                check_ranges(info, shapes[info.name])
            kept = self._ready(wanted, lambda name: self._given(name, given))
        except CutError as cut:
            pieces = cut.pieces
        else:
            self._workspace(kept)
            return kept.ready.plan
        pieces.prepare(shapes, given)
        if not pieces.plans:
            raise ContentsNeededError("the model is cut, and its first piece has no plan: run once")
        return pieces.plans[0]

    @property
    def plan(self) -> Plan:
        """The session's only plan.

        Raises:
            PlanError: There is none yet, or more than one.
        """
        self._check_whole()
        with self._lock:
            plans = [kept.ready.plan for kept in self._plans.values()]
        if not plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        if len(plans) > 1:
            raise PlanError(f"the session has {len(plans)} plans: ask plan_for({{name: shape}})")
        return plans[0]

    @property
    def plans(self) -> list[Plan]:
        """All plans that there are: the one that ran last at the end, and of a model in pieces, piece by piece."""
        return [ready.plan for _, ready in self._by_last_run()] if self._pieces is None else self._pieces.plans

    @property
    def pieces(self) -> Pieces | None:
        """The pieces of a model that is cut where only data settle extents; ``None`` while it runs as a whole.

        Print them for each piece's plan, and why the model is cut between them.
        """
        return self._pieces

    def _check_whole(self) -> None:
        if self._pieces is not None:
            raise PlanError(
                f"the model is cut into {len(self._pieces)} pieces, each with plans of its own: print(session.pieces), "
                "or see session.plans"
            )

    def plan_for(self, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """The plan for these input shapes; where contents decide as well, the one that ran last.

        Raises:
            PlanError: None was made for them.
        """
        self._check_whole()
        wanted = self._key(shapes)
        plans = self._by_last_run()
        for made_for, ready in reversed(plans):
            if made_for[: len(wanted)] == wanted:
                return ready.plan
        known = "; ".join(str(dict(made_for)) for made_for, _ in plans) or "none"
        raise PlanError(f"no plan for {dict(shapes)}; the session has plans for {known}")

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
        safetensors file: it is there as a whole, or as it was before.

        Args:
            path: The file to write.
            targets: The instruction sets that it is for, such as ``("avx2", "avx512_core")``; :func:`blocklayout.load`
                takes the highest that its CPU has. For lower ones than this session's, the model is planned and packed
                for the same extents in a process of its own. What this CPU has not cannot be packed here:
                :func:`blocklayout.merge_sessions` makes one file of those that several machines wrote. By default the
                session's own alone.
            feeds: Typical inputs of a model in pieces, which those processes run it on.

        Of a model that is cut, each piece is written with its plans and subgraphs, and the nodes between them. What is
        computed by ``onnx.reference`` between plans needs ``onnx`` there, too.

        Raises:
            PlanError: There is no plan yet, also none of a piece, or the file cannot be written; or ``targets`` are
                asked of a session that was saved itself, or with pins that functions decide.
            InputError: ``targets`` are not the names of instruction sets.
            UnsupportedError: This CPU has not one of them.
            BlockLayoutError: The model cannot be planned for one of them.
        """
        if self._pieces is None and not self._by_last_run():
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        try:
            target = Path(path)
        except TypeError:
            raise PlanError(f"path={path!r:.60}: give the path of a file") from None
        try:
            if targets is None:
                self._write(target, contents_of(self))
            else:
                self._write_targets(target, contents_of(self), targets, feeds)
        except OSError as error:
            raise PlanError(f"the session cannot be saved as {path}: {error.strerror or error}") from error

    def plan_all(self, wanted: Iterable[tuple[Shapes, Mapping[str, np.ndarray]]]) -> None:
        """Make the plans that another session of the model has.

        Args:
            wanted: Logical extents of each plan's inputs, and those of them whose contents it was made for.

        Raises:
            BlockLayoutError: As :meth:`prepare`.
        """
        infos = {info.name: info for info in (*self._inputs, *self._signature.defaults)}
        for shapes, contents in wanted:
            undeciding = {
                name: np.zeros(shape, infos[name].numpy_dtype) for name, shape in shapes if name not in contents
            }
            self._ready(shapes, {**undeciding, **contents}.__getitem__)

    @property
    def streams(self) -> int:
        """How many runs go on at a time."""
        return self._streams.n

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
        sessions = self._sessions()
        pieces_nbytes = sum(each._originals_nbytes() for each in sessions[1:])  # noqa: SLF001 - of its own class
        # what a model in pieces holds, pieces hold as well
        return MemoryUse.of(
            [held for each in sessions for held in each._held()],  # noqa: SLF001
            max(self._originals_nbytes(), pieces_nbytes),
        )

    def _sessions(self) -> list[Session]:
        """This one, and those of pieces."""
        inner = () if self._pieces is None else self._pieces.sessions
        return [self, *(each for session in inner for each in session._sessions())]  # noqa: SLF001

    def _held(self) -> list[tuple[ReadyPlan, list[Workspace]]]:
        with self._lock:
            return [(kept.ready, list(kept.workspaces.values())) for kept in self._plans.values()]

    def __repr__(self) -> str:
        from blocklayout.show.plan_text import session_text

        plans = self.plans
        threads = "1 thread" if self._streams.n_threads == 1 else f"{self._streams.n_threads} threads"
        facts = [threads, f"{self.streams} streams" if self.streams > 1 else ""]
        facts += [] if self._pieces is None else [f"cut into {len(self._pieces)} pieces"]
        facts += [f"{self.executor} executor", f"check={self._check!r}" if self._check else ""]
        facts.append(f"batches of up to {self._batching.max_batch}" if self._batching else "")
        facts.append(f"at most {self._max_waiting} wait" if self._max_waiting else "")
        facts.append("closed" if self._streams.is_closed else "")
        inputs, outputs = ([info.text for info in infos] for infos in (self._inputs, self._outputs))
        return session_text(inputs, outputs, plans, self._asked, [fact for fact in facts if fact])

    def _repr_html_(self) -> str:
        from blocklayout.show.plan_text import session_html

        return session_html(repr(self), self.plans[-1:] if self._pieces is None else self.plans)

    def settle(self, feed: Mapping[str, Any], policy: str, share: float) -> None:
        """Have ``auto`` take a policy that was seen to be faster, in this session and in later loads.

        Nothing changes for a model in pieces or in parts, without a plan for these extents, with another policy than
        ``auto``, or with ``tune="model"``.

        Args:
            feed: What both were run on.
            policy: The faster one.
            share: Its time next to that of this session, in turn with it.
        """
        shapes = tuple((info.name, info.logical(np.shape(feed[info.name]))) for info in self._inputs)
        contents = partial(self._given, contents=feed)
        kept = self._found(shapes, contents) if self._pieces is None else None
        if self._settle is None or kept is None or kept.ready.plan.parts > 1 or kept.ready.plan.policy != "auto":
            return
        with self._planning:
            ready = self._settle(shapes, contents, (policy, share))
            self._drop(kept)
            self._keep(shapes, ready)

    def _key(self, shapes: Mapping[str, Sequence[int]]) -> Shapes:
        check_mapping("shapes", shapes, "{'x': (1, 3, 224, 224)}")
        names = {info.name for info in self._inputs}
        if set(shapes) != names:
            got = ", ".join(sorted(map(str, shapes)))
            raise InputError(f"shapes are wanted for {', '.join(sorted(names))}, got {got}")
        return tuple((info.name, info.logical(_extents(info.name, shapes[info.name]))) for info in self._inputs)

    def _given(self, name: str, contents: Mapping[str, Any]) -> np.ndarray:
        if name not in contents:
            raise ContentsNeededError(
                f"extents follow from what the input {name!r} holds: run once, or prepare(shapes, contents={{...}})"
            )
        info = next(info for info in self._inputs if info.name == name)
        return check_feed(info, contents[name]).contents()

    def _by_last_run(self) -> list[tuple[Shapes, ReadyPlan]]:
        """The plans with their extents, the one that ran last at the end."""
        with self._lock:
            plans = sorted(self._plans.items(), key=lambda item: item[1].last_run)
        return [(key.shapes, kept.ready) for key, kept in plans]

    def _ready(self, shapes: Shapes, contents: Contents) -> _Kept:
        """The plan for these, found or made."""
        kept = self._found(shapes, contents)
        if kept is not None:
            return kept
        with self._planning:
            if self._pieces is not None:
                raise CutError(self._pieces)
            kept = self._found(shapes, contents)  # somebody may have planned meanwhile
            try:
                with nothing_collected():
                    return kept or _without_refusals(lambda: self._keep(shapes, self._make_plan(shapes, contents)))
            except CutError as cut:
                self._pieces = cut.pieces
                raise

    def _found(self, shapes: Shapes, contents: Contents) -> _Kept | None:
        with self._lock:
            if kept := self._plans.get(PlanKey(shapes)):
                return kept
            alike = [(key, kept) for key, kept in self._plans.items() if key.shapes == shapes]
            given = {name: contents(name).tobytes() for key, _ in alike for name, _ in key.contents}
            return next((kept for key, kept in alike if all(given[name] == had for name, had in key.contents)), None)

    def _workspace(self, kept: _Kept) -> Workspace:
        """The one in which this stream runs a plan."""
        stream = self._streams.here
        if stream not in kept.workspaces:
            is_ranged = any(info.ranges for info in self._inputs)
            room = self._room(stream, kept.ready.plan) if is_ranged else None
            make = partial(workspace_of, kept.ready, room)
            made = kept.workspaces[stream] = dnnl.run_parallel(make, kept.ready.plan.n_threads)
            if room is not None:
                self._leave_other_arenas(stream, made)
        return kept.workspaces[stream]

    def _room(self, stream: int, plan: Plan) -> Room:
        """Where a stream runs all plans for a range of extents; it may begin with small ones."""
        self._arena_nbytes = max(self._arena_nbytes, plan.roomy_arena_nbytes)
        room = self._rooms.setdefault(stream, Room())
        room.hold(self._arena_nbytes, 0)
        return room

    def _leave_other_arenas(self, stream: int, made: Workspace) -> None:
        """Have no workspaces that a stream made before its room had to grow: they would keep it as it was."""
        with self._lock:
            for kept in self._plans.values():
                if stream in kept.workspaces and kept.workspaces[stream].arena is not made.arena:
                    del kept.workspaces[stream]
            left = {id(each) for kept in self._plans.values() for each in kept.workspaces.values()} | {id(made)}
            self._bound = {fed: bound for fed, bound in self._bound.items() if id(bound.workspace) in left}

    def _keep(self, shapes: Shapes, ready: ReadyPlan) -> _Kept:
        with self._lock:
            while len(self._plans) >= self._max_plans:  # only now: what an old plan has packed may serve the new one
                self._remove(min(self._plans, key=lambda key: self._plans[key].last_run))
        kept = _Kept(ready, next(self._clock))
        self._workspace(kept)
        with self._lock:
            contents = tuple((name, array.tobytes()) for name, array in ready.contents.items())
            self._plans[PlanKey(shapes, contents)] = kept
        return kept

    def _drop(self, kept: _Kept) -> None:
        """Have no such plan any more, so that one is made anew."""
        with self._lock:
            for key in [key for key, each in self._plans.items() if each is kept]:
                self._remove(key)

    def _remove(self, key: PlanKey) -> None:
        kept = self._plans.pop(key)
        self._bound = {fed: bound for fed, bound in self._bound.items() if bound.kept is not kept}


def last_report(session: Session) -> Report:
    """The report of the plan that ran last, without times; of a model that is cut, of each piece's."""
    from blocklayout.show.report import Report

    if session.pieces is not None:
        return session.report()
    plan = session.plans[-1]
    return Report.of(plan, plan.machine(), nodes=session._nodes(plan))  # noqa: SLF001 - of this file


def contents_of(session: Session) -> SessionContents:
    """What a session is made of, plans that were run last at the end."""
    plans = session._by_last_run() if session.pieces is None else []  # noqa: SLF001 - of this file
    return SessionContents(session._signature, plans, session.pieces)  # noqa: SLF001


def _extents(name: str, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        rule = "must be integers such as (1, 3, 224, 224)"
        raise InputError(f"the shape of input {name!r} {rule}, not {shape!r:.60}") from None


def _check_deadline(deadline: Any) -> None:
    is_number = isinstance(deadline, int | float) and not isinstance(deadline, bool)
    if deadline is not None and not (is_number and 0 < deadline < inf):
        raise InputError(f"deadline={deadline!r}: give a positive number of seconds, or nothing")


def _refuse_targets(path: Path, contents: SessionContents, targets: Any, feeds: object) -> None:
    del path, contents, feeds
    raise PlanError(f"targets={targets!r:.60}: the session was saved itself; load the model to plan for others")


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _without_refusals(
    attempt: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """The result of the first attempt in which the library refuses nothing.

    What was refused is remembered, so that an attempt which plans again passes it over.

    Raises:
        RefusedError: The same is refused again.
    """
    met: dict[object, str] = {}  # not the errors themselves, which would hold what was made until garbage is collected
    while True:
        try:
            return attempt(*args, **kwargs)
        except RefusedError as error:
            if error.spec in met:
                raise
            met[error.spec] = str(error)
        except BlockLayoutError as error:
            for refusal in met.values():
                error.add_note(refusal)
            raise
