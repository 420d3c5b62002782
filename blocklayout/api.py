"""Load a model into a session, or save one: the composition root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from blocklayout import dnnl, model
from blocklayout.errors import InputError, PlainKernelWarning
from blocklayout.kernels import HostSpec
from blocklayout.plan import Machine, make_plan
from blocklayout.plan.prepack import PackedWeights
from blocklayout.runtime import InputInfo, OutputInfo, ReadyPlan, Session

if TYPE_CHECKING:
    from onnx import ModelProto

    from blocklayout.kernels import Program
    from blocklayout.model import Builder, Graph, OnnxModel
    from blocklayout.plan import Plan
    from blocklayout.runtime.host import Compute
    from blocklayout.runtime.session import Shapes

Source: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | Builder | Graph | OnnxModel"
"""What a model can be loaded from; the last two are what :mod:`blocklayout.model` reads."""

Progress = Callable[[str], None]
"""Told what is being done, in a few words, before each stage that may take a while."""


def load(
    source: Source,
    *,
    dtype: str = "f32",
    layout: str = "auto",
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress | None = None,
) -> Session:
    """Load a model and choose a layout for each of its tensors.

    Args:
        source: Path of an ONNX file, its bytes, a ``ModelProto``, or a Builder.
        dtype: Data type of the activations inside: ``f32`` or ``bf16``. Inputs and outputs keep
            the types the model declares.
        layout: ``auto`` (by cost, over the whole graph), ``any`` (each primitive's own favourite),
            ``blocked``, ``nhwc``, ``plain``, ``per-op`` (reorder around every primitive), or a
            oneDNN tag such as ``nChw8c``.
        threads: Threads a run uses; by default what this process may use.
        shapes: Extents of the inputs, by name. With them, or where the model fixes all extents, the
            plan is made now; else at the first run of each set of shapes.
        progress: Called with a few words before each stage that may take a while.

    Returns:
        A session, with onnxruntime's ``run``.

    Raises:
        ModelError: Not an ONNX file, or a graph against its operators' specifications.
        UnsupportedError: An operator, data type or platform that cannot run here.
        InputError: ``shapes`` or ``threads`` do not fit.
        PlanError: No such policy or data type.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder
        >>> b = Builder()
        >>> x = b.input("x", (1, 3, 8, 8))
        >>> b.output("y", x.conv(np.ones((17, 3, 3, 3), np.float32), pads=1).relu())
        >>> load(b)(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 17, 8, 8)
    """
    n_threads = _checked_threads(threads)
    tell = progress if progress is not None else _silent
    tell("reading the model")
    opened = model.open_model(source)
    maker = _PlanMaker(opened, dtype, layout, Machine(dnnl.isa(), n_threads), tell)
    inputs, outputs = model.signature(opened)
    if any(info.dtype == "f16" for info in (*inputs, *outputs)):
        message = "the model is declared in f16 and computed in f32; inputs and outputs are converted"
        warnings.warn(message, stacklevel=2)
    session = Session(
        [InputInfo(info.name, info.extents, info.dtype) for info in inputs],
        [OutputInfo(info.name, info.extents, info.dtype) for info in outputs],
        maker,
    )
    if shapes is not None or not model.free_extents(opened):
        session.prepare(model.input_shapes(opened, shapes))
        dnnl.release_pool()  # whoever runs the session may be another thread
    return session


def save(source: Builder, path: str | os.PathLike[str]) -> None:
    """Save what a Builder built as an ONNX file that other runtimes read.

    Raises:
        ModelError: The model is incomplete or against its operators' specifications.
    """
    model.write(source, path)


@dataclass
class _PlanMaker:
    """Makes the plan for one set of input shapes; keeps packed weights for the next."""

    opened: OnnxModel | Graph
    dtype: str
    layout: str
    machine: Machine
    tell: Progress
    weights: PackedWeights = field(default_factory=PackedWeights)
    has_warned: bool = False

    def __call__(self, shapes: Shapes) -> ReadyPlan:
        self.tell("simplifying the graph")
        program = lowered(self.opened, dict(shapes))
        self.tell("choosing layouts")
        plan = make_plan(program, policy=self.layout, dtype=self.dtype, machine=self.machine)
        self.tell("packing weights")
        packed = self.weights.pack(plan, _constants(program))
        known = {value.name: value.data for value in program.outputs if value.data is not None}
        return ReadyPlan(plan, packed, known, self._computes(plan))

    def _computes(self, plan: Plan) -> dict[int, Compute]:
        """What runs the plain steps; the user is told of them once a model."""
        plain = {number: step.spec for number, step in enumerate(plan.steps) if isinstance(step.spec, HostSpec)}
        computes = {number: model.compute_of(spec) for number, spec in plain.items() if spec.kind == "plain"}
        if computes and not self.has_warned:
            self.has_warned = True
            warnings.warn(_plain_warning(plan), PlainKernelWarning, stacklevel=2)
        return computes


def lowered(opened: OnnxModel | Graph, shapes: Mapping[str, Sequence[int]] | None) -> Program:
    """The kernels of a model for concrete input extents: shapes set, simplified, lowered."""
    return model.lower(model.simplify(model.read(opened, shapes)))


def _plain_warning(plan: Plan) -> str:
    steps = plan.plain_steps
    named = ", ".join(f"{step.kernel} ({step.spec.op_type})" for step in steps if isinstance(step.spec, HostSpec))
    share = sum(step.cost_ns for step in steps) / plan.cost_ns if plan.cost_ns else 0.0
    return (
        f"{plan.model}: no primitive computes {named}; onnx.reference does, on plain layout, at about {share:.0%} of "
        "the estimated time (print the plan for the reasons)"
    )


def _constants(program: Program) -> dict[str, Any]:
    return {constant.name: constant.array for kernel in program.kernels for _, constant in kernel.constants}


def _checked_threads(threads: int | None) -> int:
    if threads is None:
        return dnnl.default_threads()
    if type(threads) is not int or threads < 1:
        raise InputError(f"threads={threads!r}: give a positive number, or None for all this process may use")
    return threads


def _silent(_: str) -> None:
    """Tell nobody."""
