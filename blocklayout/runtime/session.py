"""A session: a model bound to plans, one per set of input shapes."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dnnl
from blocklayout.errors import InputError, PlanError
from blocklayout.layout import MemoryDesc
from blocklayout.runtime.context import Context
from blocklayout.runtime.feeding import CheckedFeed, InputInfo, OutputInfo, check_feed, check_feeds
from blocklayout.runtime.giving import bindable, check_given, deliver
from blocklayout.runtime.memory import MemoryUse, packed_nbytes, process_nbytes
from blocklayout.runtime.ready import ReadyPlan
from blocklayout.tensor import Tensor, reorder

if TYPE_CHECKING:
    from blocklayout.plan import Plan
    from blocklayout.runtime.profile import Profile

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Logical extents of every input, in the model's order; those of defaults follow where they are fed."""

Contents = Callable[[str], np.ndarray]
"""Gives what an input is fed, in logical order."""

MAX_PLANS = 8


class ContentsNeededError(InputError):
    """A plan cannot be made from extents alone: others follow from what an input holds."""


@dataclass(frozen=True, eq=False)
class _MadeFor:
    """The extents and contents that a plan is right for; contents compare by their bits, so it is found by looking."""

    shapes: Shapes
    contents: Mapping[str, np.ndarray]

    def fits(self, shapes: Shapes, contents: Contents) -> bool:
        return self.shapes == shapes and all(_same_bits(contents(name), known) for name, known in self.contents.items())


class Session:
    """A model ready to run; safe to share among threads.

    Made by :func:`blocklayout.load`.
    """

    def __init__(
        self,
        inputs: Sequence[InputInfo],
        outputs: Sequence[OutputInfo],
        make_plan: Callable[[Shapes, Contents], ReadyPlan],
        *,
        defaults: Sequence[InputInfo] = (),
        max_plans: int = MAX_PLANS,
        plans: Sequence[tuple[Shapes, ReadyPlan]] = (),
        originals_nbytes: Callable[[], int] = int,
    ) -> None:
        """Bind a model's signature to a maker of plans.

        Args:
            inputs: The model's inputs; extents unknown until fed are ``None`` or names.
            outputs: The model's outputs.
            make_plan: Plans for one set of input shapes; asks for the contents of inputs that decide others.
            defaults: Initializers that are used where nothing is fed in their place.
            max_plans: Plans that are kept; the one that ran least lately makes room.
            plans: Those that are made already, with the extents they are for.
            originals_nbytes: Bytes of the model's own weights that ``make_plan`` holds at the moment.

        Raises:
            DnnlError: One of these cannot run here.
        """
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._defaults = tuple(defaults)
        self._make_plan = make_plan
        self._max_plans = max_plans
        self._originals_nbytes = originals_nbytes
        self._lock = threading.Lock()
        self._plans: OrderedDict[_MadeFor, tuple[ReadyPlan, Context]] = OrderedDict()
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
        """Run the model once.

        Args:
            output_names: Which outputs to return, in that order; ``None`` for all.
            feed: Arrays, torch tensors or Tensors by input name, any strides. They are only read.
            out: Arrays to write outputs to, by name. Those without holes are written directly, others, and those that
                share memory with what is fed, by a copy.

        Returns:
            Row-major arrays in the model's declared types, fresh unless they are those of ``out``; a Tensor where
            ``io_layout`` asks for blocks.

        Raises:
            InputError: A name, type, rank or extent that does not fit; the message says what would.
        """
        wanted = self._wanted(output_names)
        feeds, ready, context = self._fed(feed)
        constants = {info.name: _constant(info, ready) for info in wanted if info.name in ready.constants}
        given = dict(out or {})
        if given:
            known = {name: array.shape for name, array in constants.items()}
            check_given(given, wanted, known | context.result_extents)
        bound = bindable(given, feeds.values())
        results = constants | dnnl.run_parallel(lambda: context.execute(feeds, bound), ready.plan.n_threads)
        return [deliver(results[info.name], given.get(info.name)) for info in wanted]

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
        runs, wall = [], []
        for number in range(n_runs + 1):
            start = time.monotonic_ns()
            feeds, ready, context = self._fed(feed)
            times = dnnl.run_parallel(partial(context.execute_timed, feeds), ready.plan.n_threads)
            if number:
                runs.append(times)
                wall.append(time.monotonic_ns() - start)
        machine = machine_with_ceilings(ready.plan.isa, ready.plan.n_threads, CostStore.open())
        return profile_of(ready.plan, runs, wall, machine)

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
                that decides extents.
        """
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
        from blocklayout.runtime.session_file import write_session

        with self._lock:
            plans = [(made_for.shapes, ready) for made_for, (ready, _) in self._plans.items()]
        if not plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        try:
            write_session(Path(path), (self._inputs, self._outputs, self._defaults), plans)
        except OSError as error:
            raise PlanError(f"the session cannot be saved as {path}: {error.strerror or error}") from error

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
            ready = [each for each, _ in self._plans.values()]
        packed, mapped = packed_nbytes(array for each in ready for array in each.packed.values())
        now, most = process_nbytes()
        return MemoryUse(
            n_plans=len(ready),
            n_contexts=len(ready),
            originals_nbytes=self._originals_nbytes(),
            packed_nbytes=packed,
            mapped_nbytes=mapped,
            arena_nbytes=sum(each.plan.arena_nbytes for each in ready),
            arena_lower_bound=sum(each.plan.arena_lower_bound for each in ready),
            scratchpad_nbytes=sum(each.plan.scratchpad_nbytes for each in ready),
            process_nbytes=now,
            process_peak_nbytes=most,
        )

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
        with self._lock:
            made_for = next((each for each in reversed(self._plans) if each.fits(shapes, contents)), None)
            if made_for is None:
                return self._add_plan(shapes, contents)
            self._plans.move_to_end(made_for)
            return self._plans[made_for]

    def _add_plan(self, shapes: Shapes, contents: Contents) -> tuple[ReadyPlan, Context]:
        return self._keep(shapes, self._make_plan(shapes, contents))

    def _keep(self, shapes: Shapes, ready: ReadyPlan) -> tuple[ReadyPlan, Context]:
        while len(self._plans) >= self._max_plans:  # only now: what an old plan has packed may serve the new one
            self._plans.popitem(last=False)
        context = dnnl.run_parallel(lambda: Context(ready), ready.plan.n_threads)
        self._plans[_MadeFor(shapes, ready.contents)] = ready, context
        return ready, context

    def _wanted(self, output_names: Sequence[str] | None) -> Sequence[OutputInfo]:
        if output_names is None:
            return self._outputs
        by_name = {info.name: info for info in self._outputs}
        for name in output_names:
            if name not in by_name:
                raise InputError(f"the model has no output {name!r}; it has {', '.join(by_name)}")
        return [by_name[name] for name in output_names]


def _constant(info: OutputInfo, ready: ReadyPlan) -> np.ndarray | Tensor:
    """An output that no step computes, as fresh as the others."""
    array = ready.constants[info.name]
    if info.is_free or info.is_blocked:
        desc = MemoryDesc(array.shape or (1,), info.dtype, info.layout)
        return reorder(array, desc, threads=ready.plan.n_threads)
    return np.array(array if info.order is None else array.transpose(info.order), order="C")


def _same_bits(array: np.ndarray, known: np.ndarray) -> bool:
    """Whether two arrays of one type and shape hold the same bits, NaN or not."""
    return array is known or np.array_equal(_bits(array), _bits(known))


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
