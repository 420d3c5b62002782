"""A session: a model bound to plans, one per set of input shapes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blocklayout import dnnl
from blocklayout.errors import InputError, PlanError
from blocklayout.runtime.context import Context
from blocklayout.runtime.feeding import InputInfo, OutputInfo, check_feeds

if TYPE_CHECKING:
    import numpy as np

    from blocklayout.plan import Plan
    from blocklayout.runtime.host import Compute

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Extents of every input, in the model's order."""

MAX_PLANS = 8


@dataclass(frozen=True, eq=False)
class ReadyPlan:
    """A plan with everything it needs to run.

    Attributes:
        plan: The plan.
        packed: Bytes of its packed constants, by buffer.
        constants: Outputs that are known without running, by name.
        computes: What runs the plan's plain steps, by their number.
    """

    plan: Plan
    packed: Mapping[int, np.ndarray]
    constants: Mapping[str, np.ndarray]
    computes: Mapping[int, Compute] = field(default_factory=dict)


class Session:
    """A model ready to run; safe to share among threads.

    Made by :func:`blocklayout.load`.
    """

    def __init__(
        self,
        inputs: Sequence[InputInfo],
        outputs: Sequence[OutputInfo],
        make_plan: Callable[[Shapes], ReadyPlan],
    ) -> None:
        """Bind a model's signature to a maker of plans.

        Args:
            inputs: The model's inputs; extents unknown until fed are ``None`` or names.
            outputs: The model's outputs.
            make_plan: Plans for one set of input shapes.
        """
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._make_plan = make_plan
        self._lock = threading.Lock()
        self._plans: OrderedDict[Shapes, tuple[ReadyPlan, Context]] = OrderedDict()

    def get_inputs(self) -> list[InputInfo]:
        """Name, declared shape and type of every input."""
        return list(self._inputs)

    def get_outputs(self) -> list[OutputInfo]:
        """Name, declared shape and type of every output."""
        return list(self._outputs)

    def run(self, output_names: Sequence[str] | None, feed: Mapping[str, Any]) -> list[np.ndarray]:
        """Run the model once.

        Args:
            output_names: Which outputs to return, in that order; ``None`` for all.
            feed: Arrays, torch tensors or Tensors by input name, any strides. They are only read.

        Returns:
            Fresh row-major arrays in the model's declared types.

        Raises:
            InputError: A name, type, rank or extent that does not fit; the message says what would.
        """
        wanted = self._wanted(output_names)
        feeds = check_feeds(self._inputs, feed)
        shapes = tuple((info.name, feeds[info.name].desc.dims) for info in self._inputs)
        ready, context = self._ready(shapes)
        computed = dnnl.run_parallel(lambda: context.execute(feeds), ready.plan.n_threads)
        return [computed[name] if name in computed else ready.constants[name].copy() for name in wanted]

    def __call__(self, *arrays: Any) -> np.ndarray | list[np.ndarray]:
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

    def prepare(self, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """Make the plan for these input shapes now, rather than at the first run."""
        return self._ready(self._key(shapes))[0].plan

    @property
    def plan(self) -> Plan:
        """The session's only plan.

        Raises:
            PlanError: There is none yet, or more than one.
        """
        plans = [ready.plan for ready, _ in self._plans.values()]
        if not plans:
            raise PlanError("no plan yet: give shapes= when loading, or run once")
        if len(plans) > 1:
            raise PlanError(f"the session has {len(plans)} plans: ask plan_for({{name: shape}})")
        return plans[0]

    def plan_for(self, shapes: Mapping[str, Sequence[int]]) -> Plan:
        """The plan for these input shapes.

        Raises:
            PlanError: None was made for them.
        """
        key = self._key(shapes)
        if key not in self._plans:
            known = "; ".join(str(dict(shapes)) for shapes in self._plans) or "none"
            raise PlanError(f"no plan for {dict(shapes)}; the session has plans for {known}")
        return self._plans[key][0].plan

    def _key(self, shapes: Mapping[str, Sequence[int]]) -> Shapes:
        names = {info.name for info in self._inputs}
        if set(shapes) != names:
            raise InputError(f"shapes are wanted for {', '.join(sorted(names))}, got {', '.join(sorted(shapes))}")
        return tuple((info.name, tuple(shapes[info.name])) for info in self._inputs)

    def _ready(self, shapes: Shapes) -> tuple[ReadyPlan, Context]:
        with self._lock:
            if shapes not in self._plans:
                ready = self._make_plan(shapes)
                context = dnnl.run_parallel(
                    lambda: Context(ready.plan, ready.packed, ready.computes), ready.plan.n_threads
                )
                self._plans[shapes] = ready, context
                if len(self._plans) > MAX_PLANS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(shapes)
            return self._plans[shapes]

    def _wanted(self, output_names: Sequence[str] | None) -> list[str]:
        names = [info.name for info in self._outputs]
        if output_names is None:
            return names
        for name in output_names:
            if name not in names:
                raise InputError(f"the model has no output {name!r}; it has {', '.join(names)}")
        return list(output_names)
