"""Plan book: the plans of a model by extents and deciding contents, and runs of each feed by its plan."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct, field

from blocklayout import dnnl
from blocklayout.errors import BlockLayoutError, InputError, PlanError, RefusedError
from blocklayout.forking import Lock
from blocklayout.garbage import nothing_collected
from blocklayout.layout_events import watches_around
from blocklayout.resource_limits import in_force
from blocklayout.runtime.inputs import InputInfo, OutputInfo, check_feed, check_feeds, check_mapping, check_ranges
from blocklayout.runtime.outputs import bindable, check_given, check_wanted, constant, deliver
from blocklayout.runtime.row_parts import each_part, part_feeds, workspace_of
from blocklayout.runtime.streams import Streams
from blocklayout.runtime.workspace import ReadyPlan, Room, Workspace
from blocklayout.show.events import report_run
from blocklayout.tensor import Tensor
from blocklayout.value_checks import check_mode

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.plan import Plan, Request
    from blocklayout.runtime.pieces import Pieces
    from blocklayout.value_checks import CheckMode

    Names = Sequence[str] | None
    Given = Mapping[str, np.ndarray]

_Result = TypeVar("_Result")

Shapes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Logical extents of every input, in the model's order; those of defaults follow where they are fed."""

Contents: TypeAlias = Callable[[str], np.ndarray]
"""Returns the array fed to an input, in logical order."""

MAX_PLANS = 8

_MAX_BOUND = 256
"""Kinds of feeds whose executable is kept; the oldest makes room."""


class ContentsNeededError(InputError):
    """A plan cannot be made from extents alone: others follow from the contents of an input."""


class Signature(Struct, frozen=True):
    """A model's inputs and outputs.

    Attributes:
        inputs: Extents unknown until fed are ``None`` or names.
        outputs: Likewise.
        defaults: Initializers that are used where nothing is fed in their place.
        rows: Extents of single rows, and sizes of batches, for which rows are proven to be computed apart.
    """

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    defaults: tuple[InputInfo, ...] = ()
    rows: tuple[tuple[Shapes, tuple[int, ...]], ...] = ()


class Maker(Protocol):
    """Makes the plans of a model; ``request`` is ``None`` where none can be made."""

    @property
    def request(self) -> Request | None: ...

    def make(self, shapes: Shapes, contents: Contents) -> ReadyPlan | Pieces:
        """The plan for these extents, or the pieces of a model that is cut where only data settle extents."""

    def settle(self, shapes: Shapes, contents: Contents, faster: tuple[str, float]) -> ReadyPlan | None:
        """The plan by a policy that was seen to be faster, remembered for ``auto``; ``None`` where none is."""

    def originals_nbytes(self) -> int:
        """Bytes of the model's own weights that are held for plans to come."""

    def describe_nodes(self, shapes: Shapes, contents: Given) -> Sequence[dict[str, Any]] | None:
        """The model's nodes as records; ``None`` where the model is not at hand."""


class PlanKey(Struct, frozen=True):
    """Plan-cache key: input shapes, and the bytes of inputs that determine shapes, by name."""

    shapes: Shapes
    contents: tuple[tuple[str, bytes], ...] = ()


class Whole(Struct, eq=False):
    """The plan of a whole model, and a workspace for each stream that has run it, by the stream's number."""

    ready: ReadyPlan
    last_run: int
    workspaces: dict[int, Workspace] = field(default_factory=dict)


class Bound(Struct, frozen=True, eq=False):
    """The workspace and executable for feeds of certain descriptors on a stream.

    Where contents decide as well, ``deciding`` has the bytes of these inputs, by their places among the buffers.
    """

    whole: Whole
    workspace: Workspace
    executable: dnnl.Executable
    descs: dict[str, MemoryDesc]
    deciding: tuple[tuple[int, bytes], ...] = ()
    call: Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None = None
    """Runs it in the shortest way while the workspace's room is held; ``None`` where that is not all."""


class PlanBook:
    """Plans of one model: each made once, the newest kept, those that the library refuses dropped.

    Safe to share among threads.

    Attributes:
        check: The mode of the checks of each run; see :func:`blocklayout.checking`.
        pieces: Those of a model that is cut; ``None`` while it runs as a whole.
        planning: Held while a plan is made, or the model is read for anything else.
    """

    def __init__(
        self,
        signature: Signature,
        maker: Maker,
        *,
        plans: Sequence[tuple[Shapes, ReadyPlan]] = (),
        pieces: Pieces | None = None,
        max_plans: int = MAX_PLANS,
        streams: Streams | None = None,
        check: CheckMode | None = None,
    ) -> None:
        """Open a book; of ``plans`` that are made already, each with the extents it is for."""
        self.signature = signature
        self.maker = maker
        self.streams = streams or Streams()
        self.check = check
        self.pieces = pieces
        self.planning = Lock()  # taken before the other one; other plans run meanwhile
        self._max_plans = max_plans
        self._names = tuple(info.name for info in signature.inputs)
        self._rooms: dict[int, Room] = {}  # by the stream's number, where there are ranges of extents
        self._arena_nbytes = max((ready.plan.roomy_arena_nbytes for _, ready in plans), default=0)
        self._plans: dict[PlanKey, Whole] = {}
        self._bound: dict[tuple[Any, ...], Bound] = {}
        self._clock = count()
        self._latest: Whole | None = None
        self._lock = Lock()  # of the plans that there are
        for shapes, ready in plans:
            self._keep(shapes, ready)

    # Runs

    def run(
        self, names: Names, feed: Mapping[str, Any], out: Given | None = None, stop: dnnl.Stop | None = None
    ) -> list[Any]:
        """Run the model once on the calling thread, one of a stream's; as :meth:`blocklayout.Session.run`.

        ``stop`` is looked at before each step, and ends the run by a StoppedError or a DeadlineExceededError.
        """
        if names is None and out is None and stop is None and type(feed) is dict:
            results = self.run_at_once(feed)
            if results is not None:
                return results
        wanted = self.signature.outputs if names is None else check_wanted(names, self.signature.outputs)
        try:
            return self._run_once(wanted, feed, out, stop)
        except RefusedError as error:
            return _without_refusals(lambda: self._run_once(wanted, feed, out, stop), error)

    def run_at_once(self, feed: dict[str, Any]) -> list[np.ndarray] | None:
        """Run a feed like one before by one call into C; ``None`` where that is not all of it, or other callers run."""
        # All that a run like the last one takes, in one place: its code is not in the caches when it comes.
        key: list[Any] = [0 if self.streams.n == 1 else self.streams.here]
        buffers = []
        for name in self._names:
            source = feed.get(name)
            if type(source) is not np.ndarray or not source.flags.aligned:
                break
            key.append((source.dtype, source.shape, source.strides))
            buffers.append(source)
        bound = self._bound.get(tuple(key))
        is_seen = watches_around() or check_mode.get() or in_force.get()
        if bound is not None and bound.call is not None and len(buffers) == len(feed) and not is_seen:
            if bound.whole is not self._latest:
                bound.whole.last_run, self._latest = next(self._clock), bound.whole
            lock = bound.workspace.room.lock
            if lock.acquire(blocking=False):
                try:
                    return bound.call(buffers)
                except RefusedError:
                    return None  # by the other way its kernel is named
                finally:
                    lock.release()
        return None

    def _run_once(
        self, wanted: Sequence[OutputInfo], feed: Mapping[str, Any], out: Given | None, stop: dnnl.Stop | None
    ) -> list[Any]:
        found = self._found_bound(feed)
        if not isinstance(found, tuple):
            return found.run(wanted, feed, out, stop)
        bound, buffers = found
        whole = bound.whole
        if whole is not self._latest:
            whole.last_run, self._latest = next(self._clock), whole
        try:
            if out is not None or whole.ready.constants or watches_around():
                return self._run_into(bound, buffers, wanted, {} if out is None else out, stop)
            check = self.check or check_mode.get()
            results = bound.workspace.run(bound.executable, buffers, None, None, check, stop)
            return [results[info.name] for info in wanted]
        except RefusedError:
            self._drop(whole)
            raise

    def _run_into(
        self, bound: Bound, buffers: list[np.ndarray], wanted: Sequence[OutputInfo], out: Given, stop: dnnl.Stop | None
    ) -> list[Any]:
        """Run once where outputs have arrays, or are known without running, or watches get reports."""
        ready, workspace = bound.whole.ready, bound.workspace
        known = {info.name: constant(info, ready) for info in wanted if info.name in ready.constants}
        extents = {result.name: result.extents for result in workspace.results}
        check_given(out, wanted, {name: array.shape for name, array in known.items()} | extents)
        results = self._run_watched(bound, bound.executable, buffers, bindable(out, buffers), stop) | known
        return [deliver(info.name, results[info.name], out.get(info.name)) for info in wanted]

    def _run_watched(
        self,
        bound: Bound,
        executable: dnnl.Executable,
        buffers: list[np.ndarray],
        out: Mapping[str, Any] | None,
        stop: dnnl.Stop | None = None,
    ) -> dict[str, np.ndarray | Tensor]:
        """Run once, with the checks that are asked for, and reports to watches."""
        times: list[int] | None = [] if watches_around() else None
        results = bound.workspace.run(executable, buffers, out, times, self.check or check_mode.get(), stop)
        if times is not None:
            plan = bound.whole.ready.plan
            for part in each_part(plan, times):
                report_run(plan, bound.descs, part)
        return results

    def run_held(self, feed: Mapping[str, Any], held: Mapping[str, Tensor]) -> dict[str, Any]:
        """Run once: the outputs ``held`` are written to these Tensors, in the plan's formats and apart from all others.

        The others are fresh. All come by name.
        """
        found = self._found_bound(feed)
        assert isinstance(found, tuple)  # noqa: S101 - a network of a Builder, which is never cut
        (bound, buffers), workspace = found, found[0].workspace
        free = frozenset(result.name for result in workspace.results if result.is_tensor and result.name in held)
        results = self._run_watched(bound, workspace.executable(bound.descs, free), buffers, held)
        ready = bound.whole.ready
        known = {info.name: constant(info, ready) for info in self.signature.outputs if info.name in ready.constants}
        return {**results, **known}

    def timed(self, feed: Mapping[str, Any], n_runs: int) -> tuple[Plan, list[Sequence[int]], list[int]] | Pieces:
        """The plan for a feed, and of each run, or part of one, the nanoseconds of its steps, and of all of it.

        The first run is not among them. Of a model that is cut, its pieces.
        """
        runs: list[Sequence[int]] = []
        wall: list[int] = []
        for _ in range(n_runs + 1):
            times: list[int] = []
            start = time.monotonic_ns()
            found = self._found_bound(feed)
            if not isinstance(found, tuple):
                return found
            bound, buffers = found
            bound.workspace.run(bound.executable, buffers, times=times)
            ns, plan = time.monotonic_ns() - start, bound.whole.ready.plan
            runs += each_part(plan, times)
            wall += [ns // plan.parts] * plan.parts
        return plan, runs[plan.parts :], wall[plan.parts :]

    def _found_bound(self, feed: Mapping[str, Any]) -> tuple[Bound, list[np.ndarray]] | Pieces:
        """The executable for this feed, and its buffers; of a model that is cut, its pieces.

        A feed of arrays and Tensors whose descriptors were found to fit before is not looked at again.
        """
        if not isinstance(feed, dict):
            return self._checked(feed)
        streams = self.streams
        key: list[Any] = [0 if streams.n == 1 else streams.here]
        buffers: list[np.ndarray] = []
        for name in self._names:
            source = feed.get(name)
            if type(source) is np.ndarray and source.flags.aligned:
                key.append((source.dtype, source.shape, source.strides))
                buffers.append(source)
            elif type(source) is Tensor:
                key.append(id(source.desc))  # held by the value of this key
                buffers.append(source.buffer)
            else:
                return self._checked(feed)
        if len(feed) != len(buffers):
            return self._checked(feed)
        described = tuple(key)
        bound = self._bound.get(described)
        if bound is None:
            return self._checked(feed, described, buffers)
        for place, contents in bound.deciding:
            if buffers[place].tobytes() != contents:
                return self._checked(feed, described, buffers)
        return bound, buffers

    def _checked(
        self, feed: Mapping[str, Any], key: tuple[Any, ...] = (), sources: Sequence[np.ndarray] = ()
    ) -> tuple[Bound, list[np.ndarray]] | Pieces:
        """The same after a closer look; ``key`` describes the feed, ``sources`` is the caller's memory."""
        if self.pieces is not None:
            return self.pieces
        feeds = check_feeds(self.signature.inputs, feed, self.signature.defaults)
        shapes = tuple((name, fed.shape) for name, fed in feeds.items())
        whole = self.get(shapes, lambda name: feeds[name].contents())
        if not isinstance(whole, Whole):
            return whole
        workspace = self.workspace(whole)
        feeds = part_feeds(whole.ready.plan, feeds)
        descs = {name: fed.desc for name, fed in feeds.items()}
        buffers = [fed.buffer for fed in feeds.values()]
        deciding = tuple(
            (place, source.tobytes())
            for place, (name, source) in enumerate(zip(feeds, sources, strict=False))
            if name in whole.ready.contents
        )
        executable, call = workspace.executable(descs), None
        if not (self.check or whole.ready.constants or deciding):
            call = workspace.caller(executable, [info.name for info in self.signature.outputs])
        bound = Bound(whole, workspace, executable, descs, deciding, call)
        is_copied = any(_address(given) != _address(read) for given, read in zip(sources, buffers, strict=False))
        if key and not is_copied:
            with self._lock:
                while len(self._bound) >= _MAX_BOUND:
                    del self._bound[next(iter(self._bound))]
                if whole in self._plans.values():
                    self._bound[key] = bound
        return bound, buffers

    # Plans

    def get(self, shapes: Shapes, contents: Contents) -> Whole | Pieces:
        """The plan for these extents, found or made; of a model that is cut, its pieces.

        ``contents`` is asked for those of inputs that decide extents.
        """
        whole = self._find(shapes, contents)
        if whole is not None:
            return whole
        with self.planning:
            if self.pieces is not None:
                return self.pieces
            whole = self._find(shapes, contents)  # somebody may have planned meanwhile
            if whole is not None:
                return whole
            with nothing_collected():
                return _without_refusals(lambda: self._made(shapes, contents))

    def _made(self, shapes: Shapes, contents: Contents) -> Whole | Pieces:
        made = self.maker.make(shapes, contents)
        if isinstance(made, ReadyPlan):
            return self._keep(shapes, made)
        self.pieces = made
        return made

    def prepare(self, shapes: Mapping[str, Sequence[int]], contents: Mapping[str, Any] | None = None) -> Plan:
        """The plan for these extents, made now; as :meth:`blocklayout.Session.prepare`."""
        self.streams.check_open()
        given = dict(contents or {})
        wanted = self.logical(shapes)
        for info in self.signature.inputs:
            check_ranges(info, shapes[info.name])
        found = self.get(wanted, lambda name: self._given(name, given)) if self.pieces is None else self.pieces
        if isinstance(found, Whole):
            self.workspace(found)
            return found.ready.plan
        found.prepare(shapes, given)
        if not found.plans:
            raise ContentsNeededError("the model is cut, and its first piece has no plan: run once")
        return found.plans[0]

    def prepare_all(self, wanted: Iterable[tuple[Shapes, Mapping[str, np.ndarray]]]) -> None:
        """Make the plans that another book of the model has, for extents and the contents that decided others."""
        infos = {info.name: info for info in (*self.signature.inputs, *self.signature.defaults)}
        for shapes, contents in wanted:
            undeciding = {
                name: np.zeros(shape, infos[name].numpy_dtype) for name, shape in shapes if name not in contents
            }
            self.get(shapes, {**undeciding, **contents}.__getitem__)

    def settle(self, feed: Mapping[str, Any], policy: str, share: float) -> None:
        """Take a policy that was seen to be faster for ``auto``; as :meth:`blocklayout.Session.settle`."""
        shapes = tuple((info.name, info.logical(np.shape(feed[info.name]))) for info in self.signature.inputs)
        contents = partial(self._given, contents=feed)
        whole = self._find(shapes, contents) if self.pieces is None else None
        if whole is None or whole.ready.plan.parts > 1 or whole.ready.plan.config.policy != "auto":
            return
        with self.planning:
            ready = self.maker.settle(shapes, contents, (policy, share))
            if ready is not None:
                self._drop(whole)
                self._keep(shapes, ready)

    def by_last_run(self) -> list[tuple[Shapes, ReadyPlan]]:
        """The plans of the whole model with their extents, the one that ran last at the end."""
        with self._lock:
            plans = sorted(self._plans.items(), key=lambda item: item[1].last_run)
        return [(key.shapes, whole.ready) for key, whole in plans]

    @property
    def plan(self) -> Plan:
        """The only plan; a ``PlanError`` where there is none yet, or more than one, or the model is cut."""
        self._check_whole()
        plans = self.plans
        if not plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        if len(plans) > 1:
            raise PlanError(f"the session has {len(plans)} plans: ask plan_for({{name: shape}})")
        return plans[0]

    def plan_for(self, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """The plan for these extents; as :meth:`blocklayout.Session.plan_for`."""
        self._check_whole()
        wanted = self.logical(shapes)
        plans = self.by_last_run()
        for made_for, ready in reversed(plans):
            if made_for[: len(wanted)] == wanted:
                return ready.plan
        known = "; ".join(str(dict(made_for)) for made_for, _ in plans) or "none"
        raise PlanError(f"no plan for {dict(shapes)}; the session has plans for {known}")

    def _check_whole(self) -> None:
        if self.pieces is not None:
            raise PlanError(
                f"the model is cut into {len(self.pieces)} pieces, each with plans of its own: print(session.pieces), "
                "or see session.plans"
            )

    @property
    def plans(self) -> list[Plan]:
        """All plans that there are: the one that ran last at the end, and of a model in pieces, piece by piece."""
        return [ready.plan for _, ready in self.by_last_run()] if self.pieces is None else self.pieces.plans

    @property
    def books(self) -> list[PlanBook]:
        """This one, and those of pieces."""
        inner = () if self.pieces is None else self.pieces.books
        return [self, *(each for book in inner for each in book.books)]

    def held(self) -> list[tuple[ReadyPlan, list[Workspace]]]:
        """The plans of the whole model, each with its workspaces."""
        with self._lock:
            return [(whole.ready, list(whole.workspaces.values())) for whole in self._plans.values()]

    def nodes(self, plan: Plan) -> Sequence[dict[str, Any]] | None:
        """The nodes of the model that a plan computes, as records; ``None`` where the model is not at hand."""
        made_for = next(((shapes, ready) for shapes, ready in self.by_last_run() if ready.plan is plan), None)
        if made_for is None:
            return None
        shapes, ready = made_for
        with self.planning:
            return self.maker.describe_nodes(shapes, ready.contents)

    def logical(self, shapes: Mapping[str, Sequence[int]]) -> Shapes:
        """Logical extents, of extents as the caller's arrays have them."""
        check_mapping("shapes", shapes, "{'x': (1, 3, 224, 224)}")
        if set(shapes) != {*self._names}:
            got = ", ".join(sorted(map(str, shapes)))
            raise InputError(f"shapes are wanted for {', '.join(sorted(self._names))}, got {got}")
        return tuple(
            (info.name, info.logical(_extents(info.name, shapes[info.name]))) for info in self.signature.inputs
        )

    def workspace(self, whole: Whole) -> Workspace:
        """The workspace in which this stream runs a plan."""
        stream = self.streams.here
        if stream not in whole.workspaces:
            is_ranged = any(info.ranges for info in self.signature.inputs)
            room = self._room(stream, whole.ready.plan) if is_ranged else None
            make = partial(workspace_of, whole.ready, room)
            made = whole.workspaces[stream] = dnnl.run_parallel(make, whole.ready.plan.config.n_threads)
            if room is not None:
                self._leave_other_arenas(stream, made)
        return whole.workspaces[stream]

    def close(self) -> None:
        """Free arenas and primitives, also those of pieces; plans can still be looked at."""
        self.streams.close()
        for book in self.books:
            with book._lock:  # noqa: SLF001 - of its own class
                for whole in book._plans.values():  # noqa: SLF001
                    whole.workspaces.clear()
                book._bound.clear()  # noqa: SLF001
                book._rooms.clear()  # noqa: SLF001

    def _given(self, name: str, contents: Mapping[str, Any]) -> np.ndarray:
        if name not in contents:
            raise ContentsNeededError(
                f"extents follow from what the input {name!r} holds: run once, or prepare(shapes, contents={{...}})"
            )
        info = next(info for info in self.signature.inputs if info.name == name)
        return check_feed(info, contents[name]).contents()

    def _find(self, shapes: Shapes, contents: Contents) -> Whole | None:
        with self._lock:
            if whole := self._plans.get(PlanKey(shapes)):
                return whole
            alike = [(key, whole) for key, whole in self._plans.items() if key.shapes == shapes]
            given = {name: contents(name).tobytes() for key, _ in alike for name, _ in key.contents}
            return next((whole for key, whole in alike if all(given[name] == had for name, had in key.contents)), None)

    def _room(self, stream: int, plan: Plan) -> Room:
        """The memory in which a stream runs all plans for a range of extents; it may begin with small ones."""
        self._arena_nbytes = max(self._arena_nbytes, plan.roomy_arena_nbytes)
        room = self._rooms.setdefault(stream, Room())
        room.hold(self._arena_nbytes, 0)
        return room

    def _leave_other_arenas(self, stream: int, made: Workspace) -> None:
        """Drop workspaces that a stream made before its room had to grow: they would keep it as it was."""
        with self._lock:
            for whole in self._plans.values():
                if stream in whole.workspaces and whole.workspaces[stream].arena is not made.arena:
                    del whole.workspaces[stream]
            left = {id(each) for whole in self._plans.values() for each in whole.workspaces.values()} | {id(made)}
            self._bound = {fed: bound for fed, bound in self._bound.items() if id(bound.workspace) in left}

    def _keep(self, shapes: Shapes, ready: ReadyPlan) -> Whole:
        with self._lock:
            while len(self._plans) >= self._max_plans:  # only now: packed weights of an old plan may serve the new one
                self._remove(min(self._plans, key=lambda key: self._plans[key].last_run))
        whole = Whole(ready, next(self._clock))
        self.workspace(whole)
        with self._lock:
            contents = tuple((name, array.tobytes()) for name, array in ready.contents.items())
            self._plans[PlanKey(shapes, contents)] = self._latest = whole
        return whole

    def _drop(self, whole: Whole) -> None:
        """Forget a plan, so that one is made anew."""
        with self._lock:
            for key in [key for key, each in self._plans.items() if each is whole]:
                self._remove(key)

    def _remove(self, key: PlanKey) -> None:
        whole = self._plans.pop(key)
        self._latest = None if whole is self._latest else self._latest
        self._bound = {fed: bound for fed, bound in self._bound.items() if bound.whole is not whole}


def _extents(name: str, shape: Any) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        rule = "must be integers such as (1, 3, 224, 224)"
        raise InputError(f"the shape of input {name!r} {rule}, not {shape!r:.60}") from None


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _without_refusals(attempt: Callable[[], _Result], first: RefusedError | None = None) -> _Result:
    """The result of the first attempt in which the library refuses nothing that it did not refuse before.

    Refusals are remembered, so that an attempt which plans again passes them over. ``first`` is one met before.
    """
    # Not the errors themselves, which would hold all that was made until garbage is collected.
    met: dict[object, str] = {} if first is None else {first.spec: str(first)}
    del first
    while True:
        try:
            return attempt()
        except RefusedError as error:
            if error.spec in met:
                raise
            met[error.spec] = str(error)
        except BlockLayoutError as error:
            for refusal in met.values():
                error.add_note(refusal)
            raise
