"""A session: a model bound to plans, one per set of input shapes."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from msgspec import Struct

from blocklayout import dnnl
from blocklayout.errors import InputError, PlanError, RefusedError
from blocklayout.runtime.context import Context
from blocklayout.runtime.feeding import CheckedFeed, InputInfo, OutputInfo, check_feed, check_feeds
from blocklayout.runtime.forking import Lock
from blocklayout.runtime.giving import bindable, check_given, check_wanted, constant, deliver
from blocklayout.runtime.made_for import Contents, MadeFor, Shapes
from blocklayout.runtime.memory import MemoryUse
from blocklayout.runtime.ready import ReadyPlan
from blocklayout.runtime.refusals import without_refusals
from blocklayout.runtime.streams import Streams
from blocklayout.runtime.watched import execute_told
from blocklayout.watching import carry, is_watched

if TYPE_CHECKING:
    from concurrent.futures import Future

    from blocklayout.plan import Plan
    from blocklayout.runtime.profile import Profile

    WriteSession = Callable[[Path, "Signature", Sequence[tuple[Shapes, ReadyPlan]]], None]
    Names = Sequence[str] | None
    Given = Mapping[str, np.ndarray]
    Contexts = dict[int, Context]  # by the number of the stream that runs in it

MAX_PLANS = 8


class ContentsNeededError(InputError):
    """A plan cannot be made from extents alone: others follow from what an input holds."""


class Signature(Struct, frozen=True):
    """A model's inputs and outputs.

    Attributes:
        inputs: Extents unknown until fed are ``None`` or names.
        outputs: Likewise.
        defaults: Initializers that are used where nothing is fed in their place.
    """

    inputs: tuple[InputInfo, ...]
    outputs: tuple[OutputInfo, ...]
    defaults: tuple[InputInfo, ...] = ()


class Session:
    """A model ready to run; safe to share among threads.

    Made by :func:`blocklayout.load`. The threads of its streams end when it is closed, by :meth:`close` or as a context
    manager, and when nobody refers to it any more.
    """

    def __init__(
        self,
        signature: Signature,
        make_plan: Callable[[Shapes, Contents], ReadyPlan],
        write: WriteSession,
        *,
        max_plans: int = MAX_PLANS,
        plans: Sequence[tuple[Shapes, ReadyPlan]] = (),
        originals_nbytes: Callable[[], int] = int,
        streams: Streams | None = None,
    ) -> None:
        """Bind a model's signature to a maker of plans.

        Args:
            signature: The model's inputs and outputs.
            make_plan: Plans for one set of input shapes; asks for the contents of inputs that decide others.
            write: Writes plans with their packed weights to a file, for :meth:`save`.
            max_plans: Plans that are kept; the one that ran least lately makes room.
            plans: Those that are made already, with the extents they are for.
            originals_nbytes: Bytes of the model's own weights that ``make_plan`` holds at the moment.
            streams: What runs it; one if ``None``.

        Raises:
            DnnlError: One of these cannot run here.
        """
        self._signature = signature
        self._inputs = signature.inputs
        self._outputs = signature.outputs
        self._defaults = signature.defaults
        self._make_plan = make_plan
        self._write = write
        self._max_plans = max_plans
        self._originals_nbytes = originals_nbytes
        self._streams = streams or Streams()
        self._plans: OrderedDict[MadeFor, tuple[ReadyPlan, Contexts]] = OrderedDict()
        self._lock = Lock()  # for the plans that there are
        self._planning = Lock()  # taken first; other plans run meanwhile
        for shapes, ready in plans:
            self._keep(shapes, ready)

    def get_inputs(self) -> list[InputInfo]:
        """Name, declared shape and type of every input."""
        return list(self._inputs)

    def get_outputs(self) -> list[OutputInfo]:
        """Name, declared shape and type of every output."""
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[InputInfo]:
        """What may be fed as well: initializers that the model lists among its inputs."""
        return list(self._defaults)

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
        """
        if is_watched():
            return self._streams.call(carry(partial(self._run, output_names, feed, out, is_told=True)))
        return self._streams.call(partial(self._run, output_names, feed, out))

    def submit(
        self, feed: Mapping[str, Any], output_names: Sequence[str] | None = None, *, out: Given | None = None
    ) -> Future[list[Any]]:
        """Have the model run once, as soon as a stream is free, and go on.

        What is submitted begins in the order in which it came; nothing limits how much may wait. Until the future is
        done, the arrays of ``feed`` are read and must not change, and those of ``out`` are written.

        Args:
            feed: As for :meth:`run`. The mapping may change, its arrays may not.
            output_names: As for :meth:`run`.
            out: As for :meth:`run`.

        Returns:
            A future of what :meth:`run` returns. Whatever :meth:`run` raises, this raises: what is fed is looked at by
            the stream. Its callbacks run on the stream's thread.

        Raises:
            InputError: The session is closed.
        """
        run = partial(self._run, output_names, dict(feed), dict(out or {}))
        return self._streams.submit(carry(partial(run, is_told=True)) if is_watched() else run)

    def close(self) -> None:
        """Finish what was submitted, end the threads, and free arenas and primitives; plans can still be looked at.

        A second call does nothing. Runs are refused from now on.
        """
        self._streams.close()
        with self._lock:
            for _, contexts in self._plans.values():
                contexts.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(
        self, output_names: Names, feed: Mapping[str, Any], out: Given | None, *, is_told: bool = False
    ) -> list[Any]:
        wanted = check_wanted(output_names, self._outputs)
        return without_refusals(lambda: self._run_once(wanted, feed, out, is_told=is_told))

    def _run_once(
        self, wanted: Sequence[OutputInfo], feed: Mapping[str, Any], out: Given | None, *, is_told: bool
    ) -> list[Any]:
        feeds, ready, context = self._fed(feed)
        constants = {info.name: constant(info, ready) for info in wanted if info.name in ready.constants}
        given = dict(out or {})
        if given:
            known = {name: array.shape for name, array in constants.items()}
            check_given(given, wanted, known | context.result_extents)
        bound = bindable(given, feeds.values())
        try:
            if is_told:
                results = constants | execute_told(ready.plan, context, feeds, bound)
            else:
                results = constants | context.execute(feeds, bound)
        except RefusedError:
            self._drop(ready)
            raise
        return [deliver(info.name, results[info.name], given.get(info.name)) for info in wanted]

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
        from blocklayout.plan.costs.ceilings import machine_with_ceilings
        from blocklayout.plan.costs.store import CostStore
        from blocklayout.runtime.profile import profile_of

        if n_runs < 1:
            raise InputError(f"n_runs={n_runs}: give at least 1")
        plan, runs, wall = self._streams.call(partial(self._run_timed, feed, n_runs))
        return profile_of(plan, runs, wall, machine_with_ceilings(plan.isa, plan.n_threads, CostStore.open()))

    def _run_timed(self, feed: Mapping[str, Any], n_runs: int) -> tuple[Plan, list[list[int]], list[int]]:
        """For each run the nanoseconds of each step, and of all of it."""
        runs, wall = [], []
        for number in range(n_runs + 1):
            start = time.monotonic_ns()
            feeds, ready, context = self._fed(feed)
            _, times = context.execute_timed(feeds)
            if number:
                runs.append(times)
                wall.append(time.monotonic_ns() - start)
        return ready.plan, runs, wall

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
        return self._ready(self._key(shapes), lambda name: self._given(name, given))[0].plan

    @property
    def plan(self) -> Plan:
        """The session's only plan.

        Raises:
            PlanError: There is none yet, or more than one.
        """
        with self._lock:
            plans = [ready.plan for ready, _ in self._plans.values()]
        if not plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        if len(plans) > 1:
            raise PlanError(f"the session has {len(plans)} plans: ask plan_for({{name: shape}})")
        return plans[0]

    def plan_for(self, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """The plan for these input shapes; where contents decide as well, the one that ran last.

        Raises:
            PlanError: None was made for them.
        """
        key = self._key(shapes)
        with self._lock:
            plans = [(made_for.shapes, ready.plan) for made_for, (ready, _) in self._plans.items()]
        for made_for, plan in reversed(plans):
            if made_for[: len(key)] == key:
                return plan
        known = "; ".join(str(dict(made_for)) for made_for, _ in plans) or "none"
        raise PlanError(f"no plan for {dict(shapes)}; the session has plans for {known}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write its plans and their packed weights to one file, which :func:`blocklayout.load` takes.

        A session loaded from it needs neither the model nor ``onnx``, plans nothing and packs nothing; its weights are
        mapped, so that several processes share them. It runs with the extents of these plans only. The file is a
        safetensors file: it is there as a whole, or as it was before.

        Args:
            path: The file to write.

        Raises:
            PlanError: There is no plan yet, or the file cannot be written.
        """
        with self._lock:
            plans = [(made_for.shapes, ready) for made_for, (ready, _) in self._plans.items()]
        if not plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        try:
            self._write(Path(path), self._signature, plans)
        except OSError as error:
            raise PlanError(f"the session cannot be saved as {path}: {error.strerror or error}") from error

    @property
    def streams(self) -> int:
        """How many runs go on at a time."""
        return self._streams.n

    @property
    def executor(self) -> str:
        """What runs the steps: ``C``, all in one call, or ``Python``, where no compiler built the other."""
        return "C" if dnnl.has_native_executor() else "Python"

    def memory(self) -> MemoryUse:
        """What holds how much memory; print it for a table.

        Example:
            >>> from blocklayout import Builder, load
            >>> b = Builder()
            >>> b.output("y", b.input("x", (1, 16, 8, 8)).relu())
            >>> load(b).memory().n_plans
            1
        """
        with self._lock:
            held = [(ready, len(contexts)) for ready, contexts in self._plans.values()]
        return MemoryUse.of(held, self._originals_nbytes())

    def _key(self, shapes: Mapping[str, Sequence[int]]) -> Shapes:
        names = {info.name for info in self._inputs}
        if set(shapes) != names:
            raise InputError(f"shapes are wanted for {', '.join(sorted(names))}, got {', '.join(sorted(shapes))}")
        return tuple((info.name, info.logical(shapes[info.name])) for info in self._inputs)

    def _given(self, name: str, contents: Mapping[str, Any]) -> np.ndarray:
        if name not in contents:
            raise ContentsNeededError(
                f"extents follow from what the input {name!r} holds: run once, or prepare(shapes, contents={{...}})"
            )
        info = next(info for info in self._inputs if info.name == name)
        return check_feed(info, contents[name]).contents()

    def _fed(self, feed: Mapping[str, Any]) -> tuple[dict[str, CheckedFeed], ReadyPlan, Context]:
        """What is fed, checked, and the plan that takes it."""
        feeds = check_feeds(self._inputs, feed, self._defaults)
        shapes = tuple((name, fed.shape) for name, fed in feeds.items())
        return feeds, *self._ready(shapes, lambda name: feeds[name].contents())

    def _ready(self, shapes: Shapes, contents: Contents) -> tuple[ReadyPlan, Context]:
        ready, contexts = self._found(shapes, contents) or self._added(shapes, contents)
        stream = self._streams.here
        if stream not in contexts:
            contexts[stream] = _context(ready)
        return ready, contexts[stream]

    def _found(self, shapes: Shapes, contents: Contents) -> tuple[ReadyPlan, Contexts] | None:
        with self._lock:
            made_for = next((each for each in reversed(self._plans) if each.fits(shapes, contents)), None)
            if made_for is None:
                return None
            self._plans.move_to_end(made_for)
            return self._plans[made_for]

    def _added(self, shapes: Shapes, contents: Contents) -> tuple[ReadyPlan, Contexts]:
        with self._planning:
            found = self._found(shapes, contents)  # somebody may have planned meanwhile
            return found or without_refusals(lambda: self._keep(shapes, self._make_plan(shapes, contents)))

    def _keep(self, shapes: Shapes, ready: ReadyPlan) -> tuple[ReadyPlan, Contexts]:
        with self._lock:
            while len(self._plans) >= self._max_plans:  # only now: what an old plan has packed may serve the new one
                self._plans.popitem(last=False)
        contexts = {self._streams.here: _context(ready)}
        with self._lock:
            self._plans[MadeFor(shapes, ready.contents)] = ready, contexts
        return ready, contexts

    def _drop(self, ready: ReadyPlan) -> None:
        """Have no such plan any more, so that one is made anew."""
        with self._lock:
            for made_for in [each for each, (kept, _) in self._plans.items() if kept is ready]:
                del self._plans[made_for]


def _context(ready: ReadyPlan) -> Context:
    return dnnl.run_parallel(lambda: Context(ready), ready.plan.n_threads)
