"""From a model to a session: reading, planning and packing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from itertools import chain
from math import inf, prod
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from blocklayout import dnnl, model
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.errors import (
    InputError,
    LayoutError,
    ModelError,
    PlainKernelWarning,
    PlanError,
    PolicyWarning,
    UnsupportedError,
)
from blocklayout.ir import Demanded, Demands, HostSpec, Names
from blocklayout.layout_events import warn_caller
from blocklayout.loading.cutting import Cutter, Inner
from blocklayout.loading.in_parts import SAME_TIME, RowParts, check_parts, parts_that_fit, prove_parts
from blocklayout.loading.known_files import FileMemory, made_of
from blocklayout.loading.saved_plan import (
    SavedPlan,
    Terms,
    check_here,
    check_wishes,
    computes_of,
    served_extents,
    warn_of_misfit,
)
from blocklayout.loading.saved_session import write_session
from blocklayout.loading.signature import check_rank, extents_of, signature_of, with_ranges
from blocklayout.plan import Plan, Pricing, Request
from blocklayout.plan.policies import unavailable
from blocklayout.plan.prepack import PackedWeights
from blocklayout.plan.refused import is_refused
from blocklayout.runtime import ContentsNeededError, CutError, InputInfo, ReadyPlan, Session, Signature
from blocklayout.runtime.streams import Streams

if TYPE_CHECKING:
    from pathlib import Path

    from blocklayout.ir import Compute, Kernel, Program
    from blocklayout.loading.run_off import RunOff
    from blocklayout.loading.signature import Asked, Opened
    from blocklayout.model import Graph, OnnxModel
    from blocklayout.model.other_extents import Simplified
    from blocklayout.runtime import Pieces
    from blocklayout.runtime.session import Contents, SessionContents, Shapes
    from blocklayout.value_checks import CheckMode

STILL_TO_COME = 0.4
"""How long a load goes on after plans have run, as a share of the time before."""

MAX_BATCH_SECONDS = 1.0
"""Longest that a batch is run for, at once and in parts; the first run of each finds its memory cold."""

N_BATCH_RUNS = 5
"""Runs that it takes at least."""

MIN_NDIMS = 3
"""Lowest rank of values between pieces whose layout is left to plans: vectors and matrices are read row by row."""

MAX_LIKE_RATIO = 16.0
"""How many times more elements an input may have than where layouts were chosen, or fewer, for these to be taken."""


def _silent(_: str) -> None:
    """Progress callback that does nothing."""


def _prepare(session: Session, extents: Mapping[str, tuple[int, ...]]) -> None:
    """Plan for these extents, unless others follow from contents that only a run brings."""
    with suppress(ContentsNeededError):
        session.prepare(extents)


class Loading(Struct, frozen=True):
    """A model that is being loaded, with what its caller asked for."""

    opened: Opened
    asked: Terms
    wishes: Request
    demands: Demands
    pricing: Callable[[int], Pricing]
    shapes: Asked | None
    max_plans: int
    tell: Callable[[str], None]
    keeps_denormals: bool
    check: CheckMode | None = None
    streams: Streams | None = None
    """Of the session that this is a piece of."""
    remembers: bool = True
    """Whether plans outlive the process; those for extents that data decide would crowd out others."""
    inner: Inner = field(default_factory=Inner)
    """Formats of what never reaches the caller, where this is a piece or a subgraph."""

    def anew(self) -> Session:
        """A session that makes its own plans."""
        session, inputs = self._bind(self.asked, SavedPlan(None))
        if self.shapes is not None or not model.free_extents(self.opened):
            _prepare(session, extents_of(inputs, self.shapes or {}))
        return session

    def with_plan(self, plan: Plan | str | os.PathLike[str], *, replans: bool) -> Session:
        """A session that has a plan already; one that makes its own where that does not fit and ``replans`` says so.

        Without ``shapes`` it takes the extents that the plan's session took.
        """
        try:
            plan = plan if isinstance(plan, Plan) else Plan.load(plan)
            loading = replace(self, shapes=dict(plan.ranges)) if plan.ranges and self.shapes is None else self
            return loading._with_fitting(plan, replans=replans)  # noqa: SLF001 - of its own class
        except PlanError as error:
            if not replans:
                raise
            warn_of_misfit(error, stacklevel=4)
        return self.anew()

    def _with_fitting(self, plan: Plan, *, replans: bool) -> Session:
        check_here(plan, self.asked.threads, self.asked.streams)
        self._asked_formats().check(plan)
        check_wishes(plan, self.wishes, self.demands, model.demands(self.opened))
        saved = SavedPlan(plan)
        try:
            session, inputs = self._bind(Terms.of(plan), saved)
        except (InputError, LayoutError) as error:
            raise PlanError(f"the plan is of another model ({plan.model}): {error}") from error
        is_ranged = any(info.ranges for info in inputs)
        served = served_extents(plan, inputs, {} if is_ranged else self.shapes or {})
        # Without shapes=, an input that decides extents may have any until it is fed.
        with suppress(*(() if self.shapes is not None else (InputError,))):
            for extents in (extents_of(inputs, served), served)[: 1 + is_ranged]:
                _prepare(session, extents)
        saved.replans = replans
        return session

    def _asked_formats(self) -> Terms:
        """With formats as a plan names them."""
        if self.asked.io_layout is None:
            return self.asked
        infos = chain(*signature_of(self.opened, self.asked.io_layout))
        return replace(self.asked, io_layout={info.name: info.border for info in infos if info.border is not None})

    def _bind(self, terms: Terms, saved: SavedPlan) -> tuple[Session, Sequence[InputInfo]]:
        n_threads = terms.threads or dnnl.default_threads() // self.asked.streams
        pricing = self.pricing(n_threads)
        said = dict(terms.io_layout or {})
        request = replace(self.wishes, policy=terms.layout or "auto", dtype=terms.dtype or "f32", io_layout=said)
        memory = None
        key = self.demands.key
        if isinstance(self.opened, model.ModelFile) and saved.plan is None and pricing.mode != "model" and key:
            memory = FileMemory.of(self.opened, pricing, request, key)
        inputs, outputs = signature_of(self.opened, {**said, **self.inner.formats})
        if self.shapes is not None:
            inputs = with_ranges(inputs, self.shapes)
        borders = (*inputs, *outputs)
        formats = {info.name: info.border for info in borders if info.border is not None}
        streams = self.streams or Streams(self.asked.streams, n_threads)
        at_cut = signature_of(self.opened, said) if self.inner.formats else (inputs, outputs)
        cutter = Cutter(self.opened, partial(self._piece, pricing, streams), *at_cut, self.inner, self.demands)
        maker = PlanMaker(
            self.opened,
            replace(request, io_layout=formats, carried=self.inner.carried),
            self.demands,
            pricing,
            self.tell,
            borders,
            self.max_plans,
            self.keeps_denormals,
            saved,
            memory,
            partial(self._pieces, cutter, saved),
            is_piece=self.streams is not None,
            remembers=self.remembers,
            inner=frozenset(self.inner.formats),
            ranges=tuple((info.name, info.ranges) for info in inputs if any(each.ranges for each in inputs)),
        )
        is_held = any(info.container for info in inputs)
        defaults = [InputInfo(info.name, info.extents, info.dtype) for info in model.signature(self.opened).defaults]
        session = Session(
            Signature(tuple(inputs), tuple(outputs), tuple(defaults)),
            maker,
            write_session,
            write_targets=partial(self._write_targets, replace(terms, threads=n_threads), pricing),
            max_plans=self.max_plans,
            originals_nbytes=maker.originals_nbytes,
            streams=streams,
            check=self.check,
            asked=maker.request,
            pieces=maker.pieces(None) if is_held else None,
            describe_nodes=maker.describe_nodes,
            settle=maker.settle if pricing.mode != "model" else None,  # which chooses alike each time
        )
        return session, inputs

    def _write_targets(
        self,
        terms: Terms,
        pricing: Pricing,
        path: Path,
        contents: SessionContents,
        targets: Sequence[str],
        feeds: Sequence[Mapping[str, Any]],
    ) -> None:
        """Write plans for several instruction sets; those that this process does not use are made apart."""
        from blocklayout.loading.other_isa import Job
        from blocklayout.loading.targets import write_targets

        def make(isa: str, part: Path) -> None:
            self.tell(f"planning for {isa} in a process of its own")
            opened = model.open_model(self.opened)
            apart = partial(Pricing.of, mode=pricing.mode, seconds=pricing.seconds, tell=_silent)
            loading = replace(self, opened=opened, asked=terms, pricing=apart, tell=_silent)
            Job.of(loading, contents, feeds).do_apart(isa, part)
            if isinstance(self.opened, model.ModelFile):
                self.opened.let_go()

        write_targets(path, contents, targets, make)

    def _pieces(self, cutter: Cutter, saved: SavedPlan, error: model.DependsOnDataError | None) -> Pieces:
        """The pieces of the model.

        Raises:
            PlanError: A plan is given for the whole, or something is demanded of what no plan computes.
        """
        if saved.plan is not None and not saved.replans:
            why = "the model is cut into pieces, each with plans of its own"
            raise PlanError(f"{why}: no plan of the whole can be given; session.save keeps them all")
        return cutter.pieces(error)

    def _piece(
        self,
        pricing: Pricing,
        streams: Streams,
        opened: OnnxModel,
        inner: Inner,
        io_layout: Mapping[str, str] | None = None,
        *,
        is_first: bool = False,
    ) -> Session:
        """The session of a piece; the first one reads nothing but what the caller feeds."""
        loading = replace(
            self,
            opened=opened,
            asked=replace(self.asked, io_layout=io_layout),
            pricing=lambda _: pricing,
            streams=streams,
            shapes=None,
            remembers=self.remembers and is_first,
            inner=inner,
            demands=self.demands.among(model.NodeNames.of(opened.nodes, self._own_inputs(opened)).has),
        )
        return loading._bind(loading.asked, SavedPlan(None))[0]  # noqa: SLF001 - of its own class

    def _own_inputs(self, opened: OnnxModel) -> set[str]:
        """The inputs of a piece that the whole is fed."""
        fed = {info.name for info in model.signature(self.opened).inputs}
        return fed & {info.name for info in opened.signature.inputs}


class PlanMaker(Struct):
    """Makes the plan for one set of input shapes; keeps packed weights for the next."""

    opened: Opened
    request: Request
    demands: Demands
    pricing: Pricing
    tell: Callable[[str], None]
    borders: Sequence[InputInfo]
    max_plans: int
    keeps_denormals: bool
    saved: SavedPlan
    memory: FileMemory | None
    pieces: Callable[[model.DependsOnDataError | None], Pieces]
    is_piece: bool
    remembers: bool
    inner: frozenset[str]
    ranges: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    n_made: int = 0
    last: Plan | None = None
    chosen: list[tuple[Shapes, Plan]] = field(default_factory=list)
    simplified: Simplified | None = None
    weights: PackedWeights = field(default_factory=PackedWeights)
    has_warned: bool = False
    began_s: float = 0.0
    raced: list[ReadyPlan] = field(default_factory=list)
    """Held until the plan that is taken has their packed constants, too."""
    is_part: bool = False
    """Whether the plan at hand is for a part of the rows."""
    faster: tuple[str, float] | None = None
    """A policy that is to be taken for ``auto``, and its time next to that of the plan before."""
    about_parts: tuple[str, Request] | None = None
    """By which it is remembered how these rows are run, where that was not known."""

    def __call__(self, shapes: Shapes, contents: Contents) -> ReadyPlan:
        self.began_s = monotonic()
        if self.last is not None and not is_refused(self.last):
            self.n_made += 1
            self.request = replace(self.request, is_frugal=self.n_made >= self.max_plans)
        self.about_parts = None
        try:
            n_saved = self.saved.parts_for(shapes)
            if n_saved > 1:
                check_parts(n_saved, self.opened, self.borders, shapes)
                return self._part(RowParts(n_saved).of(shapes), contents)
            return self._faster(shapes, contents, self._as_before(shapes, contents) or self._anew(shapes, contents))
        finally:
            self.raced.clear()

    def settle(self, shapes: Shapes, contents: Contents, faster: tuple[str, float]) -> ReadyPlan:
        """The plan by a policy that was seen to be faster, for ``auto`` from now on, and in later loads.

        Args:
            shapes: Logical extents of all inputs.
            contents: Asks for those of inputs that decide extents.
            faster: The policy, and its time next to that of the plan so far.
        """
        self.began_s, self.about_parts, self.faster = monotonic(), None, faster
        self.chosen = [each for each in self.chosen if each[0] != shapes]
        try:
            return self._anew(shapes, contents)
        finally:
            self.faster = None

    def _part(self, shapes: Shapes, contents: Contents) -> ReadyPlan:
        """The plan for a part of the rows."""
        self.is_part = True
        try:
            return self._as_before(shapes, contents) or self._anew(shapes, contents)
        finally:
            self.is_part = False

    def _known_parts(self, about: str, request: Request) -> RowParts | None:
        """In how many parts rows were found to run before, if in several; where that is not known, it is found out."""
        is_fixed = self.saved.plan is not None or self.is_piece or self.ranges or self.request.is_frugal
        if is_fixed or self.is_part or self.request.policy != "auto" or self.pricing.mode == "model":
            return None
        known = self.pricing.recall_as(RowParts, about, request)
        self.about_parts = (about, request) if known is None else None
        return known if known is not None and known.n > 1 else None

    def _faster(self, shapes: Shapes, contents: Contents, whole: ReadyPlan) -> ReadyPlan:
        """The plan for all rows at once, or the one for parts that caches hold, which takes less memory, if as fast."""
        from blocklayout.loading.run_off import share_of_time

        is_brief = self.pricing.mode == "cached"
        n = parts_that_fit(whole.plan, shapes, dnnl.processor.data_caches()) if self.about_parts else 1
        if n == 1 or (is_brief and N_BATCH_RUNS * whole.plan.cost_ns > 1e9 * MAX_BATCH_SECONDS):
            return whole
        try:
            prove_parts(self.opened, self.borders, shapes, n)
        except UnsupportedError:
            self._keep_parts(RowParts(1), shapes)
            return whole
        self.tell(f"running all rows at once and in {n} parts, in turn")
        self.chosen = [each for each in self.chosen if each[1] is not whole.plan]  # a part has layouts of its own
        part = self._part(RowParts(n).of(shapes), contents)
        with nullcontext() if is_brief else self.pricing.alone():
            in_parts = replace(part, plan=replace(part.plan, parts=n))
            share = share_of_time(in_parts, whole, MAX_BATCH_SECONDS if is_brief else inf)
        parts = RowParts(n, share) if share <= SAME_TIME else RowParts(1)
        self._keep_parts(parts, shapes)
        return whole if parts.n == 1 else parts.told(part)

    def _keep_parts(self, parts: RowParts, shapes: Shapes) -> None:
        if self.about_parts is not None:
            self.pricing.keep(parts, *self.about_parts)
        if self.memory is not None and self.memory.file.is_whole:
            self.pricing.keep(parts, self.memory.about_parts(shapes), self.request)

    def _as_before(self, shapes: Shapes, contents: Contents) -> ReadyPlan | None:
        """The plan that this file had before, its constants made of the file's bytes alone."""
        if self.memory is None or self.request.is_frugal:
            return None
        known = self.memory.recall(shapes)
        if known is None:
            return None
        parts = self._known_parts(self.memory.about_parts(shapes), self.request)
        if parts is not None:  # of the same file, so that it is proven
            return parts.told(self._part(parts.of(shapes), contents))
        plan = self._recalled(known.plan, replace(self.request, demanded=known.demanded))
        if plan is None:
            return None
        self._lend(shapes, plan)
        file = self.memory.file.contents
        outputs = {name: np.array(origin.array(file)) for name, origin in known.outputs.items()}
        self.memory.file.let_go()  # the last constant that is packed holds its bytes
        return self._ready(plan, outputs, lambda name: known.constants[name].array(file), {})

    def _anew(self, shapes: Shapes, contents: Contents) -> ReadyPlan:
        self.tell("simplifying the graph")
        program, deciding, demanded = self._lowered(shapes, contents)
        about = f"{made_of(program.name, program.digest)} in parts"
        parts = self._known_parts(about, replace(self.request, demanded=demanded))
        if parts is not None:
            with suppress(UnsupportedError):  # it may be another model, whose constants are others
                prove_parts(self.opened, self.borders, shapes, parts.n)
                return parts.told(self._part(parts.of(shapes), contents))
        plan = self.saved.plan_for(program, is_decided=bool(deciding), is_part=self.is_part)
        plan = plan or self._choose(shapes, program, demanded)
        outputs, constants = known_outputs(program), constants_of(program, plan)
        del program  # so that each of its constants goes as soon as it is packed
        is_chosen = any(plan is chosen for _, chosen in self.chosen)
        if self.memory is not None and is_chosen and not deciding and not self.request.is_frugal:
            self.memory.remember(shapes, plan, constants, outputs, demanded)
        return self._ready(plan, outputs, constants.pop, deciding)

    def _lowered(self, shapes: Shapes, contents: Contents) -> tuple[Program, dict[str, np.ndarray], Demanded]:
        """The program, the contents it depends on, and what is demanded of its kernels.

        The model's own weights are released on the way.
        """
        graph, deciding = self._simplified(shapes, contents)
        program = model.lower(model.legalize(graph))
        return program, deciding, self.demands.settled(graph.demands, Names.of(program))

    def _simplified(self, shapes: Shapes, contents: Contents) -> tuple[Graph, dict[str, np.ndarray]]:
        """The graph for these extents, and the contents it depends on; within ranges perhaps made of another's.

        A file's weights are released, but for ranges: more plans are to come.
        """
        followed = self.simplified.at(dict(shapes)) if self.simplified is not None else None
        if followed is not None:
            return followed, {}
        graph, deciding = self._read(shapes, contents)
        if not self.ranges:
            if isinstance(self.opened, model.ModelFile):
                self.opened.let_go()
            return model.simplify(graph), deciding
        whole = model.open_model(self.opened)
        if deciding or not isinstance(whole, model.OnnxModel):
            return model.simplify(graph), deciding
        graph, self.simplified = model.simplified(graph, whole)
        return graph, deciding

    def originals_nbytes(self) -> int:
        """Bytes of the model's weights that are held for plans to come."""
        return max(model.weights_nbytes(self.opened), self.simplified.nbytes if self.simplified is not None else 0)

    def _ready(
        self,
        plan: Plan,
        outputs: dict[str, np.ndarray],
        take: Callable[[str], np.ndarray],
        deciding: Mapping[str, np.ndarray],
        stand_ins: Mapping[int, np.ndarray] | None = None,
    ) -> ReadyPlan:
        self.tell("packing weights")
        packed = self.weights.pack(plan, take, stand_ins)
        plan = replace(plan, ranges=self.ranges) if self.ranges else plan
        return ReadyPlan(plan, packed, outputs, self._computes(plan), deciding, self.keeps_denormals)

    def _choose(self, shapes: Shapes, program: Program, demanded: Demanded) -> Plan:
        """The plan that was made for this before, else a new one.

        Its layouts are those of the plan for like extents; where there is none, they are chosen and remembered.
        """
        text = made_of(program.name, program.digest)
        request = replace(self._outward(program), demanded=demanded)
        plan = self._recalled(text, request) if self.remembers and self.faster is None else None
        if plan is not None:
            self._lend(shapes, plan)
            return plan
        from blocklayout.plan.make import make_plan  # 30 ms with all that chooses

        like = self._like(shapes) if self.faster is None else None
        self.tell("choosing layouts" if like is None else "taking the layouts of the plan for like extents")
        plan = make_plan(
            program,
            request if self.faster is None else replace(request, policy=self.faster[0]),
            self.pricing.modelled(),
            price=self.pricing.priced,
            run_off=partial(self.run_off, program),
            like=like,
        )
        if self.faster is not None:
            plan = replace(plan, policy=request.policy, raced=(("auto before", 1.0), self.faster))
        self.last = plan
        if like is None:
            self._lend(shapes, plan)
        if like is None and self.remembers:
            self.pricing.keep(plan, text, request)
        return plan

    def _outward(self, program: Program) -> Request:
        """The request, where inner values of which there is but one layout worth having are row-major."""
        if not self.inner:
            return self.request
        values = (*program.inputs, *program.outputs)
        apart = {each.name for each in values if len(each.shape) < MIN_NDIMS or each.dtype not in PRIMITIVE_FLOATS}
        apart &= self.inner
        formats = {name: text for name, text in self.request.io_layout.items() if name not in apart}
        carried = {name: each for name, each in self.request.carried.items() if not apart & {name, each}}
        return replace(self.request, io_layout=formats, carried=carried)

    def _lend(self, shapes: Shapes, plan: Plan) -> None:
        """Have plans for like extents take their layouts from this one, unless another lends them already."""
        if self._like(shapes) is None:
            self.chosen.append((shapes, plan))

    def _like(self, shapes: Shapes) -> Plan | None:
        """The plan for the nearest extents, if those are near and it was not refused since; measuring asks anew.

        Within ranges that is the plan for the largest extents, which came first.
        """
        if self.pricing.mode == "measure":
            return None
        ratios = [(_ratio(shapes, known), plan) for known, plan in self.chosen if not is_refused(plan)]
        ratio, nearest = min(ratios, key=lambda each: each[0], default=(inf, None))
        return nearest if self.ranges or ratio <= MAX_LIKE_RATIO else None

    def _recalled(self, text: str, request: Request) -> Plan | None:
        """The plan that is remembered."""
        self.last = self.pricing.recall(text, request)
        if self.last is not None:
            self.tell("layouts were chosen before")
        return self.last

    def run_off(self, program: Program) -> RunOff | None:
        """Runs plans whole: as long as it takes, briefly, or not at all."""
        if self.pricing.mode == "model":
            return None
        from blocklayout.loading.run_off import MAX_SECONDS, RunOff, StandIns

        loading_s = (1 + STILL_TO_COME) * (monotonic() - self.began_s)
        stand_ins = StandIns()

        def make_ready(plan: Plan) -> ReadyPlan:
            self.raced.append(self._ready(plan, {}, constants_of(program, plan).pop, {}, stand_ins.of(plan)))
            return self.raced[-1]

        seconds = inf if self.pricing.mode == "measure" else min(MAX_SECONDS, loading_s)
        alone = self.pricing.alone if seconds == inf else nullcontext
        return RunOff(make_ready, seconds, self.tell, alone)

    def _read(self, shapes: Shapes, contents: Contents) -> tuple[Graph, dict[str, np.ndarray]]:
        overridable = {info.name for info in model.signature(self.opened).defaults}
        given = {name: np.array(contents(name)) for name, _ in shapes if name in overridable}
        extents = {name: shape for name, shape in shapes if name not in given}
        try:
            graph, deciding = model.read_fed(self.opened, extents, contents, given, is_piece=self.is_piece)
        except model.DependsOnDataError as error:
            if isinstance(self.opened, model.Graph):
                raise
            raise CutError(self.pieces(error)) from None
        for info in self.borders:
            check_rank(info, graph.shape(info.name) if info.name in graph.values else extents[info.name])
        return graph, deciding

    def describe_nodes(self, shapes: Shapes, contents: Mapping[str, np.ndarray]) -> list[dict[str, Any]] | None:
        """The model's nodes as records, before any pass; ``None`` where they cannot be had any more.

        Args:
            shapes: Of a plan that was made.
            contents: The inputs' that it was made for.
        """
        extents = {name: shape for name, shape in shapes if name not in contents}
        try:
            graph, _ = model.read_fed(self.opened, extents, contents.__getitem__, contents, is_piece=self.is_piece)
        except (ModelError, KeyError):  # another file, or other inputs that might decide
            return None
        if isinstance(self.opened, model.ModelFile):
            self.opened.let_go()
        return model.described_nodes(graph)

    def _computes(self, plan: Plan) -> dict[int, Compute]:
        """Functions that run the steps that no primitive computes.

        Warns of plain ones, and of a policy without effect, once a model.
        """
        computes, missing = computes_of(plan), unavailable(plan)
        if (plan.plain_steps or missing) and not self.has_warned:
            self.has_warned = True
            if plan.plain_steps:
                warnings.warn(_plain_warning(plan), PlainKernelWarning, stacklevel=2)
            if missing:
                warn_caller(missing, PolicyWarning)
        return computes


def _ratio(shapes: Shapes, others: Shapes) -> float:
    """How many times more elements an input has in one than in the other, at most; infinite where ranks differ."""
    if [len(extents) for _, extents in shapes] != [len(extents) for _, extents in others]:
        return inf
    sizes = [sorted((prod(extents), prod(known))) for (_, extents), (_, known) in zip(shapes, others, strict=True)]
    return max((more / less if less else inf for less, more in sizes), default=1.0)


def _plain_warning(plan: Plan) -> str:
    steps = plan.plain_steps
    named = ", ".join(f"{step.kernel} ({step.spec.label})" for step in steps if isinstance(step.spec, HostSpec))
    share = sum(step.cost_ns for step in steps) / plan.cost_ns if plan.cost_ns else 0.0
    return (
        f"{plan.model}: no primitive computes {named}; onnx.reference does, on plain layout, at about {share:.0%} of "
        "the estimated time (print the plan for the reasons)"
    )


def known_outputs(program: Program) -> dict[str, np.ndarray]:
    """The outputs that nothing computes, by name."""
    return {value.name: value.data for value in program.outputs if value.data is not None}


def constants_of(program: Program, plan: Plan | None = None) -> dict[str, Any]:
    """The arrays of all constants, by name; for a plan also those of nodes that no primitive computes in it."""
    found = _constants_of(program.kernels)
    if plan is not None and any(packed.constant not in found for packed in plan.constants):
        found |= _constants_of(kernel.as_plain() for kernel in program.kernels if kernel.as_plain)
    return found


def _constants_of(kernels: Iterable[Kernel]) -> dict[str, Any]:
    return {constant.name: constant.array for kernel in kernels for _, constant in kernel.constants}
