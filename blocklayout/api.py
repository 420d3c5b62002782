"""Load a model into a session, or save one: the composition root."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from blocklayout import dnnl, model
from blocklayout.errors import InputError, LayoutError, ModelError, PlainKernelWarning, PlanError
from blocklayout.kernels import HostSpec
from blocklayout.model.shapes import concrete_extents
from blocklayout.plan import TUNE_SECONDS, LossMode, Plan, Pricing, Request, TuneMode, make_plan
from blocklayout.plan.prepack import PackedWeights
from blocklayout.plan.saving.files import open_plan
from blocklayout.plan.saving.fitting import Terms, check_here, check_wishes
from blocklayout.runtime import MAX_PLANS, ContentsNeededError, InputInfo, OutputInfo, ReadyPlan, Session
from blocklayout.runtime.border import check_names, check_rank, with_layouts
from blocklayout.runtime.racing import time_ready_plans
from blocklayout.saved_plans import SavedPlan, served_extents, warn_of_misfit
from blocklayout.saved_sessions import is_saved_session, load_session

if TYPE_CHECKING:
    from onnx import ModelProto

    from blocklayout.kernels import Compute, Program
    from blocklayout.model import Builder, Graph, OnnxModel
    from blocklayout.runtime.session import Contents, Shapes

Source: TypeAlias = "str | os.PathLike[str] | bytes | ModelProto | Builder | Graph | OnnxModel"
"""What a model can be loaded from; the last two are what :mod:`blocklayout.model` reads."""

Progress = Callable[[str], None]
"""Told what is being done, in a few words, before each stage that may take a while."""


def load(  # noqa: PLR0913 - one argument for each thing a user decides, most of them rarely
    source: Source,
    *,
    dtype: str | None = None,
    layout: str | None = None,
    threads: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    io_layout: Mapping[str, str] | None = None,
    pin: Mapping[str, str] | None = None,
    expect: Mapping[str, str] | None = None,
    on_layout_loss: LossMode | None = None,
    tune: TuneMode = "cached",
    tune_seconds: float = TUNE_SECONDS,
    max_plans: int = MAX_PLANS,
    plan: Plan | str | os.PathLike[str] | None = None,
    on_misfit: Literal["raise", "replan"] = "raise",
    denormals: Literal["flush", "keep"] = "flush",
    verify: bool = True,
    original: Source | None = None,
    progress: Progress | None = None,
) -> Session:
    """Load a model and choose a layout for each of its tensors.

    Args:
        source: Path of an ONNX file, its bytes, a ``ModelProto``, or a Builder; or path of a file that
            :meth:`Session.save` wrote.
        dtype: Data type of the activations inside: ``f32`` (the default) or ``bf16``. Inputs and
            outputs keep the types the model declares.
        layout: ``auto`` (the default: by cost, over the whole graph), ``any`` (each primitive's own favourite),
            ``blocked``, ``nhwc``, ``plain``, ``per-op`` (reorder around every primitive), or a
            oneDNN tag such as ``nChw8c``.
        threads: Threads a run uses; by default what this process may use.
        shapes: Extents of the inputs, by name, as the caller's arrays have them. With them, or where the
            model fixes all extents, the plan is made now; else at the first run of each set of shapes. Where
            extents also follow from what small inputs hold (a Reshape's target), it is made at the first
            run of each such content.
        io_layout: Formats of inputs and outputs, by name: in what order, or in what blocks, the caller holds
            them. With ``{"x": "nhwc"}`` the array fed to ``x`` has the shape (N, H, W, C), and nothing is
            transposed at the border. Outputs in blocks come as Tensors. ``any`` leaves the format to the plan,
            whose ``formats`` tell it: such an input may be fed in that without a reorder, as a Tensor or with
            strides, and such an output is a Tensor. Row-major by default.
        pin: Formats that kernels must write, by the name of a kernel, of a node of the model or of a value:
            ``{"conv_3": "nChw8c"}``. The rest of the network is chosen around them.
        expect: Formats that values must come in, likewise by name; the plan is refused where one does not.
        on_layout_loss: ``warn`` or ``raise`` where an operator drops a run of blocked or channels-last layouts
            to plain; the message names it, and the shapes, strides and types of its inputs.
        tune: Where the costs come from that layouts are chosen by. ``cached``: times that were measured on this
            machine before, and a model where there are none; nothing is measured. ``model``: the model alone.
            ``measure``: what matters is measured now, and kept for later; then the two or three best plans are
            run whole, in turn, and the fastest is taken.
        tune_seconds: How long to measure at most; what matters most comes first.
        max_plans: Plans that are kept, one per set of input shapes; the one that ran least lately makes room.
            From one more on, plans do without primitives that the library never wholly frees, unless all
            others are twice as slow: then memory stays flat however many shapes come.
        plan: A plan made before, or the file :meth:`Plan.save` wrote: nothing is chosen then for the extents it was
            made for. ``dtype``, ``layout``, ``threads`` and ``io_layout`` are the plan's where they are not given.
        on_misfit: What to do with a plan that is damaged, of another model, library or machine, or against the
            other arguments: ``raise``, or ``replan`` with a warning, as if none had been given.
        denormals: ``flush``: numbers below the smallest normal one count as zero during a run, since arithmetic on them
            may be a hundred times slower. ``keep``: they stay what they are, as they do where no compiler built the
            executor (see ``Session.executor``).
        verify: Whether to compare the weights of a saved session with their checksums, which reads them all.
        original: The model that a saved session was made of; loaded in its place where it does not fit, and
            ``on_misfit`` is ``replan``.
        progress: Called with a few words before each stage that may take a while.

    Returns:
        A session, with onnxruntime's ``run``.

    Raises:
        ModelError: Not an ONNX file, a graph against its operators' specifications, or a damaged saved session.
        UnsupportedError: An operator, data type or platform that cannot run here.
        InputError: ``shapes``, ``threads``, ``max_plans`` or ``on_misfit`` do not fit, or ``io_layout`` names what is
            not there.
        LayoutError: ``io_layout`` gives a format that does not exist, or has another rank.
        PlanError: No such policy or data type; a pin that nothing offers, an expectation that is not met, a run
            of layouts that is not to be lost, a name in one of these that nothing
            has, or ``plan`` does not fit.

    Example:
        >>> import numpy as np
        >>> from blocklayout import Builder
        >>> b = Builder()
        >>> x = b.input("x", (1, 3, 8, 8))
        >>> b.output("y", x.conv(np.ones((17, 3, 3, 3), np.float32), pads=1).relu())
        >>> load(b)(np.ones((1, 3, 8, 8), np.float32)).shape
        (1, 17, 8, 8)
    """
    asked = Terms(dtype, layout, None if threads is None else _positive("threads", threads), io_layout)
    if on_misfit not in ("raise", "replan"):
        raise InputError(f"on_misfit={on_misfit!r}: give 'raise' or 'replan'")
    if denormals not in ("flush", "keep"):
        raise InputError(f"denormals={denormals!r}: give 'flush' or 'keep'")
    tell = progress if progress is not None else _silent
    max_plans = _positive("max_plans", max_plans)
    wishes = Request(pins=dict(pin or {}), expected=dict(expect or {}), on_layout_loss=on_layout_loss)
    if is_saved_session(source):
        tell("reading the session")
        keeps = denormals == "keep"
        try:
            return load_session(source, asked, wishes, max_plans=max_plans, keeps_denormals=keeps, verify=verify)
        except (ModelError, PlanError) as error:
            if on_misfit == "raise" or original is None:
                raise
            warn_of_misfit(error, stacklevel=2)
            source = original
    tell("reading the model")
    wishes = replace(wishes, expected={**model.expected(source), **wishes.expected})
    pricing = partial(Pricing.of, mode=tune, seconds=tune_seconds, tell=tell)
    opened = model.open_model(source)
    loading = _Loading(opened, asked, wishes, pricing, shapes, max_plans, tell, denormals == "keep")
    session = loading.anew() if plan is None else loading.with_plan(plan, replans=on_misfit == "replan")
    if any(info.dtype == "f16" for info in (*session.get_inputs(), *session.get_outputs())):
        message = "the model is declared in f16 and computed in f32; inputs and outputs are converted"
        warnings.warn(message, stacklevel=2)
    return session


def save(source: Builder, path: str | os.PathLike[str]) -> None:
    """Save what a Builder built as an ONNX file that other runtimes read.

    Raises:
        ModelError: The model is incomplete or against its operators' specifications.
    """
    model.write(source, path)


def signature_of(opened: OnnxModel | Graph, io_layout: Mapping[str, str]) -> tuple[list[InputInfo], list[OutputInfo]]:
    """Inputs and outputs as the caller sees them, extents in the order of ``io_layout``.

    Raises:
        InputError: ``io_layout`` names what is neither.
        LayoutError: It gives a format that does not exist, or has another rank.
    """
    declared_inputs, declared_outputs = model.signature(opened)
    inputs = [InputInfo(info.name, info.extents, info.dtype) for info in declared_inputs]
    outputs = [OutputInfo(info.name, info.extents, info.dtype) for info in declared_outputs]
    check_names(io_layout, (*inputs, *outputs))
    return with_layouts(inputs, io_layout), with_layouts(outputs, io_layout)


def extents_of(inputs: Sequence[InputInfo], shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The extents of every input as the caller's array has them, from what is given and what is declared.

    Raises:
        InputError: An unknown input, a wrong rank, a contradiction, or an extent left free.
    """
    return concrete_extents([model.InputInfo(info.name, info.dtype, info.shape) for info in inputs], shapes)


def _prepare(session: Session, extents: Mapping[str, tuple[int, ...]]) -> None:
    """Plan for these extents, unless others follow from contents that only a run brings."""
    with suppress(ContentsNeededError):
        session.prepare(extents)
    dnnl.release_pool()  # whoever runs the session may be another thread


@dataclass(frozen=True)
class _Loading:
    """A model that is being loaded, with what its caller asked for."""

    opened: OnnxModel | Graph
    asked: Terms
    wishes: Request
    pricing: Callable[[int], Pricing]
    shapes: Mapping[str, Sequence[int]] | None
    max_plans: int
    tell: Progress
    keeps_denormals: bool

    def anew(self) -> Session:
        """A session that makes its own plans."""
        session, inputs = self._bind(self.asked, SavedPlan(None))
        if self.shapes is not None or not model.free_extents(self.opened):
            _prepare(session, extents_of(inputs, self.shapes or {}))
        return session

    def with_plan(self, plan: Plan | str | os.PathLike[str], *, replans: bool) -> Session:
        """A session that has a plan already; one that makes its own where that does not fit and ``replans`` says so."""
        try:
            return self._with_fitting(plan if isinstance(plan, Plan) else open_plan(plan), replans=replans)
        except PlanError as error:
            if not replans:
                raise
            warn_of_misfit(error, stacklevel=4)
        return self.anew()

    def _with_fitting(self, plan: Plan, *, replans: bool) -> Session:
        check_here(plan, self.asked.threads)
        self._asked_formats().check(plan)
        check_wishes(plan, self.wishes)
        saved = SavedPlan(plan)
        try:
            session, inputs = self._bind(Terms.of(plan), saved)
        except (InputError, LayoutError) as error:
            raise PlanError(f"the plan is of another model ({plan.model}): {error}") from error
        extents = served_extents(plan, inputs, self.shapes or {})
        # Without shapes=, an input that decides extents may have any until it is fed.
        with suppress(*(() if self.shapes is not None else (InputError,))):
            _prepare(session, extents_of(inputs, extents))
        saved.replans = replans
        return session

    def _asked_formats(self) -> Terms:
        """With formats as a plan names them."""
        if self.asked.io_layout is None:
            return self.asked
        infos = chain(*signature_of(self.opened, self.asked.io_layout))
        return replace(self.asked, io_layout={info.name: info.border for info in infos if info.border is not None})

    def _bind(self, terms: Terms, saved: SavedPlan) -> tuple[Session, Sequence[InputInfo]]:
        inputs, outputs = signature_of(self.opened, terms.io_layout or {})
        borders = (*inputs, *outputs)
        request = replace(
            self.wishes,
            policy=terms.layout or "auto",
            dtype=terms.dtype or "f32",
            io_layout={info.name: info.border for info in borders if info.border is not None},
        )
        pricing = self.pricing(terms.threads or dnnl.default_threads())
        maker = _PlanMaker(
            self.opened, request, pricing, self.tell, borders, self.max_plans, self.keeps_denormals, saved
        )
        defaults = [InputInfo(info.name, info.extents, info.dtype) for info in model.defaults(self.opened)]
        return Session(inputs, outputs, maker, defaults=defaults, max_plans=self.max_plans), inputs


@dataclass
class _PlanMaker:
    """Makes the plan for one set of input shapes; keeps packed weights for the next."""

    opened: OnnxModel | Graph
    request: Request
    pricing: Pricing
    tell: Progress
    borders: Sequence[InputInfo]
    max_plans: int
    keeps_denormals: bool
    saved: SavedPlan
    n_made: int = 0
    weights: PackedWeights = field(default_factory=PackedWeights)
    has_warned: bool = False

    def __call__(self, shapes: Shapes, contents: Contents) -> ReadyPlan:
        self.tell("simplifying the graph")
        graph, deciding = self._read(shapes, contents)
        program = model.lower(model.simplify(graph))
        plan = self.saved.plan_for(program, is_decided=bool(deciding)) or self._choose(program)
        return self._ready(plan, program, deciding)

    def _ready(self, plan: Plan, program: Program, deciding: Mapping[str, np.ndarray]) -> ReadyPlan:
        self.tell("packing weights")
        packed = self.weights.pack(plan, _constants(program))
        known = {value.name: value.data for value in program.outputs if value.data is not None}
        return ReadyPlan(plan, packed, known, self._computes(plan), deciding, self.keeps_denormals)

    def _choose(self, program: Program) -> Plan:
        self.tell("choosing layouts")
        plan = make_plan(
            program,
            replace(self.request, is_frugal=self.n_made >= self.max_plans),
            self.pricing.model(),
            price=self.pricing.priced,
            time_plans=partial(self._time, program) if self.pricing.mode == "measure" else None,
        )
        self.n_made += 1
        return plan

    def _time(self, program: Program, plans: Sequence[Plan]) -> list[list[float]]:
        """Run plans whole, in turn."""
        ready = [self._ready(plan, program, {}) for plan in plans]
        self.tell(f"running the {len(plans)} best plans in turn")
        with self.pricing.alone():
            return time_ready_plans(ready)

    def _read(self, shapes: Shapes, contents: Contents) -> tuple[Graph, dict[str, np.ndarray]]:
        overridable = {info.name for info in model.defaults(self.opened)}
        given = {name: np.array(contents(name)) for name, _ in shapes if name in overridable}
        extents = {name: shape for name, shape in shapes if name not in given}
        graph, deciding = model.read_fed(self.opened, extents, contents, given)
        for info in self.borders:
            check_rank(info, graph.shape(info.name) if info.name in graph.values else extents[info.name])
        return graph, deciding

    def _computes(self, plan: Plan) -> dict[int, Compute]:
        """What runs the plain steps; the user is told of them once a model."""
        plain = {number: step.spec for number, step in enumerate(plan.steps) if isinstance(step.spec, HostSpec)}
        computes = {number: model.compute_of(spec) for number, spec in plain.items() if spec.kind == "plain"}
        if computes and not self.has_warned:
            self.has_warned = True
            warnings.warn(_plain_warning(plan), PlainKernelWarning, stacklevel=2)
        return computes


def _plain_warning(plan: Plan) -> str:
    steps = plan.plain_steps
    named = ", ".join(f"{step.kernel} ({step.spec.label})" for step in steps if isinstance(step.spec, HostSpec))
    share = sum(step.cost_ns for step in steps) / plan.cost_ns if plan.cost_ns else 0.0
    return (
        f"{plan.model}: no primitive computes {named}; onnx.reference does, on plain layout, at about {share:.0%} of "
        "the estimated time (print the plan for the reasons)"
    )


def _constants(program: Program) -> dict[str, Any]:
    return {constant.name: constant.array for kernel in program.kernels for _, constant in kernel.constants}


def _positive(name: str, number: int) -> int:
    if type(number) is not int or number < 1:
        raise InputError(f"{name}={number!r}: give a positive number, or nothing for the default")
    return number


def _silent(_: str) -> None:
    """Tell nobody."""
