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
from blocklayout.loading.in_parts import SAME_TIME, RowParts, parts_that_fit, prove_parts
from blocklayout.loading.known_files import FileMemory, made_of
from blocklayout.loading.options import Options
from blocklayout.loading.saved_plan import (
    SavedPlan,
    check_here,
    check_terms,
    check_wishes,
    computes_of,
    served_extents,
    warn_of_misfit,
)
from blocklayout.loading.saved_session import write_session
from blocklayout.loading.signature import check_rank, extents_of, signature_of, with_ranges
from blocklayout.plan import Plan, Pricing, Request
from blocklayout.plan.checked import check_fits
from blocklayout.plan.policies import unavailable
from blocklayout.plan.prepack import PackedWeights
from blocklayout.plan.refused import is_refused
from blocklayout.runtime import ContentsNeededError, InputInfo, PlanBook, ReadyPlan, Signature
from blocklayout.runtime.streams import Streams
from blocklayout.serve.queue import Queue
from blocklayout.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from blocklayout.ir import Compute, Kernel, Program
    from blocklayout.loading.run_off import RunOff
    from blocklayout.loading.signature import Opened
    from blocklayout.model import Graph, OnnxModel
    from blocklayout.model.other_extents import Simplified
    from blocklayout.runtime import Pieces
    from blocklayout.runtime.plan_book import Contents, Shapes

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


def load_model(source: Any, options: Options) -> Session:
    """The session of a model; as :func:`blocklayout.load`."""
    options.tell("reading the model")
    opened = model.keep_model(source)
    loading = Loading(opened, options)
    book = loading.book() if options.plan is None else loading.book_with(options.plan)
    queue = Queue.of(options.max_waiting, options.batching, book, opened, options.shapes)
    return Session(book, loading.write, queue)


class Loading(Struct, frozen=True):
    """A model, or a piece of one, that is being loaded.

    Attributes:
        inner: Formats of values that never reach the caller, where this is a piece or a subgraph.
        streams: Those of the whole, where this is a piece.
        pricing: Likewise.
        remembers: Whether plans outlive the process; those for extents that data decide would crowd out others.
    """

    opened: Opened
    options: Options
    inner: Inner = field(default_factory=Inner)
    streams: Streams | None = None
    pricing: Pricing | None = None
    remembers: bool = True

    def book(self) -> PlanBook:
        """A book that makes its own plans: at once where extents are known."""
        book = self._book(self.options, SavedPlan(None))
        shapes = self.options.shapes
        if shapes is not None or not model.free_extents(self.opened):
            _prepare(book, extents_of(book.signature.inputs, shapes or {}))
        return book

    def book_with(self, plan: Plan | str | os.PathLike[str]) -> PlanBook:
        """A book that has a plan already; one that makes its own where that does not fit and ``replans`` says so.

        Without ``shapes`` it takes the extents that the plan's session took.
        """
        try:
            plan = plan if isinstance(plan, Plan) else Plan.load(plan)
            options = self.options
            if plan.config.ranges and options.shapes is None:
                options = replace(options, shapes=dict(plan.config.ranges))
            return replace(self, options=options)._book_with_fitting(plan)  # noqa: SLF001 - of its own class
        except PlanError as error:
            if not self.options.replans:
                raise
            warn_of_misfit(error)
        return self.book()

    def _book_with_fitting(self, plan: Plan) -> PlanBook:
        options, made = self.options, plan.config
        check_here(plan, options.threads, options.streams)
        if options.io_layout is not None:  # in a plan's words
            infos = chain(*signature_of(self.opened, options.io_layout))
            options = replace(options, io_layout={info.name: info.border for info in infos if info.border is not None})
        check_terms(plan, options)
        check_wishes(plan, options.wishes, options.demands, model.open_model(self.opened).demands)
        saved = SavedPlan(plan)
        formats = dict(made.io_layout)
        asked = replace(options, dtype=made.dtype, layout=made.policy, threads=made.n_threads, io_layout=formats)
        try:
            book = self._book(asked, saved)
        except (InputError, LayoutError) as error:
            raise PlanError(f"the plan is of another model ({plan.model}): {error}") from error
        inputs = book.signature.inputs
        is_ranged = any(info.ranges for info in inputs)
        served = served_extents(plan, inputs, {} if is_ranged else options.shapes or {})
        # Without shapes=, an input that decides extents may have any until it is fed.
        with suppress(*(() if options.shapes is not None else (InputError,))):
            for extents in (extents_of(inputs, served), served)[: 1 + is_ranged]:
                _prepare(book, extents)
        saved.replans = self.options.replans
        return book

    def _book(self, asked: Options, saved: SavedPlan) -> PlanBook:
        """The book of plans in the data type, policy, threads and formats that are ``asked`` for."""
        options = self.options
        n_threads = asked.threads or dnnl.default_threads() // options.streams
        pricing = self.pricing or Pricing(n_threads, options.tune, options.tune_seconds, options.tell)
        said = dict(asked.io_layout or {})
        request = replace(options.wishes, policy=asked.layout or "auto", dtype=asked.dtype or "f32", io_layout=said)
        memory = None
        key = options.demands.key
        if isinstance(self.opened, model.ModelFile) and saved.plan is None and pricing.mode != "model" and key:
            memory = FileMemory.of(self.opened, pricing, request, key)
        inputs, outputs = signature_of(self.opened, {**said, **self.inner.formats})
        if options.shapes is not None:
            inputs = with_ranges(inputs, options.shapes)
        borders = (*inputs, *outputs)
        formats = {info.name: info.border for info in borders if info.border is not None}
        streams = self.streams or Streams(options.streams, n_threads)
        at_cut = signature_of(self.opened, said) if self.inner.formats else (inputs, outputs)
        cutter = Cutter(self.opened, partial(self._piece, pricing, streams), *at_cut, self.inner, options.demands)
        ranges = tuple((info.name, info.ranges) for info in inputs if any(each.ranges for each in inputs))
        maker = PlanMaker(
            Graphs(self.opened, borders, ranges, is_piece=self.streams is not None),
            replace(request, io_layout=formats, carried=self.inner.carried),
            options,
            pricing,
            saved,
            memory,
            cutter,
            frozenset(self.inner.formats),
            remembers=self.remembers,
        )
        defaults = [InputInfo(info.name, info.extents, info.dtype) for info in model.signature(self.opened).defaults]
        return PlanBook(
            Signature(tuple(inputs), tuple(outputs), tuple(defaults)),
            maker,
            pieces=maker.pieces(None) if any(info.container for info in inputs) else None,
            max_plans=options.max_plans,
            streams=streams,
            check=options.check,
        )

    def write(
        self, path: Path, book: PlanBook, targets: Sequence[str] | None, feeds: Sequence[Mapping[str, Any]]
    ) -> None:
        """Write plans with their packed weights; those of instruction sets other than the process's own, made apart."""
        if targets is None:
            write_session(path, book)
            return
        from blocklayout.loading.targets import Job, write_targets

        request, n_threads = book.maker.request, book.streams.n_threads
        assert request is not None  # noqa: S101 - for mypy: this model makes plans
        options = replace(
            self.options,
            dtype=request.dtype,
            layout=request.policy,
            io_layout=dict(request.io_layout),
            threads=n_threads,
            plan=None,
            progress=None,
        )

        def make(isa: str, part: Path) -> None:
            self.options.tell(f"planning for {isa} in a process of its own")
            Job.of(Loading(model.open_model(self.opened), options), book, feeds).do_apart(isa, part)
            if isinstance(self.opened, model.ModelFile):
                self.opened.let_go()

        write_targets(path, book, targets, make)

    def _piece(
        self,
        pricing: Pricing,
        streams: Streams,
        opened: OnnxModel,
        inner: Inner,
        io_layout: Mapping[str, str] | None = None,
        *,
        is_first: bool = False,
    ) -> PlanBook:
        """The book of a piece; the first one reads the caller's feed alone."""
        fed = {info.name for info in model.signature(self.opened).inputs}
        own = fed & {info.name for info in opened.signature.inputs}
        demands = self.options.demands.among(model.NodeNames.of(opened.nodes, own).has)
        options = replace(self.options, io_layout=io_layout, shapes=None, demands=demands)
        loading = Loading(opened, options, inner, streams, pricing, remembers=self.remembers and is_first)
        return loading._book(options, SavedPlan(None))


def _prepare(book: PlanBook, extents: Mapping[str, tuple[int, ...]]) -> None:
    """Plan for these extents, unless others follow from contents that only a run brings."""
    with suppress(ContentsNeededError):
        book.prepare(extents)


class Graphs(Struct):
    """The graphs of a model for extents.

    Attributes:
        borders: Its inputs and outputs.
        ranges: Ranges of extents by input, where it is loaded for some.
        simplified: A graph whose like for other extents follows from it, within ranges.
    """

    opened: Opened
    borders: Sequence[InputInfo]
    ranges: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()
    is_piece: bool = False
    simplified: Simplified | None = None

    def lowered(
        self, shapes: Shapes, contents: Contents, demands: Demands
    ) -> tuple[Program, dict[str, np.ndarray], Demanded]:
        """The program, the contents it depends on, and the demands on its kernels; releases a file's weights."""
        graph, deciding = self._simplified(shapes, contents)
        program = model.lower(model.legalize(graph))
        return program, deciding, demands.settled(graph.demands, Names.of(program))

    def of_parts(self) -> Graphs:
        """Those of some of the rows, where the model may declare how many there are."""
        return replace(self, opened=model.with_free_rows(self.opened))

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

    def _read(self, shapes: Shapes, contents: Contents) -> tuple[Graph, dict[str, np.ndarray]]:
        overridable = {info.name for info in model.signature(self.opened).defaults}
        given = {name: np.array(contents(name)) for name, _ in shapes if name in overridable}
        extents = {name: shape for name, shape in shapes if name not in given}
        graph, deciding = model.read_fed(self.opened, extents, contents, given, is_piece=self.is_piece)
        for info in self.borders:
            check_rank(info, graph.shape(info.name) if info.name in graph.values else extents[info.name])
        return graph, deciding


class PlanMaker(Struct):
    """Makes the plans of a model, see :class:`~blocklayout.runtime.plan_book.Maker`; keeps packed weights for the next.

    Attributes:
        saved: A plan that was given.
        memory: Remembers the file; ``None`` where there is none, or where it may not.
        inner: Names of inputs and outputs that no caller sees.
        remembers: Whether plans outlive the process.
        chosen: Plans whose layouts are taken for like extents, with their extents.
        n_made: How many were made after a first.
        has_warned: Whether a warning about this model was given.
    """

    graphs: Graphs
    request: Request
    options: Options
    pricing: Pricing
    saved: SavedPlan
    memory: FileMemory | None
    cutter: Cutter
    inner: frozenset[str]
    remembers: bool
    weights: PackedWeights = field(default_factory=PackedWeights)
    chosen: list[tuple[Shapes, Plan]] = field(default_factory=list)
    last: Plan | None = None
    n_made: int = 0
    has_warned: bool = False

    def make(self, shapes: Shapes, contents: Contents) -> ReadyPlan | Pieces:
        if self.last is not None and not is_refused(self.last):
            self.n_made += 1
            self.request = replace(self.request, is_frugal=self.n_made >= self.options.max_plans)
        try:
            return Making(self, shapes, contents).ready()
        except model.DependsOnDataError as error:
            if isinstance(self.graphs.opened, model.Graph):
                raise
            cause = error
        return self.pieces(cause)

    def settle(self, shapes: Shapes, contents: Contents, faster: tuple[str, float]) -> ReadyPlan | None:
        if self.pricing.mode == "model":  # which chooses alike each time
            return None
        self.chosen = [each for each in self.chosen if each[0] != shapes]
        return Making(self, shapes, contents, faster=faster).ready()

    def pieces(self, error: model.DependsOnDataError | None) -> Pieces:
        """The pieces of the model, cut where it always is, and where by ``error`` only data settle extents."""
        if self.saved.plan is not None and not self.saved.replans:
            why = "the model is cut into pieces, each with plans of its own"
            raise PlanError(f"{why}: no plan of the whole can be given; session.save keeps them all")
        return self.cutter.pieces(error)

    def originals_nbytes(self) -> int:
        simplified = self.graphs.simplified
        return max(model.weights_nbytes(self.graphs.opened), 0 if simplified is None else simplified.nbytes)

    def describe_nodes(self, shapes: Shapes, contents: Mapping[str, np.ndarray]) -> list[dict[str, Any]] | None:
        opened, is_piece = self.graphs.opened, self.graphs.is_piece
        extents = {name: shape for name, shape in shapes if name not in contents}
        try:
            graph, _ = model.read_fed(opened, extents, contents.__getitem__, contents, is_piece=is_piece)
        except (ModelError, KeyError):  # another file, or other inputs that might decide
            return None
        if isinstance(opened, model.ModelFile):
            opened.let_go()
        return model.described_nodes(graph)

    def packed(
        self,
        plan: Plan,
        outputs: dict[str, np.ndarray],
        take: Callable[[str], np.ndarray],
        deciding: Mapping[str, np.ndarray],
        stand_ins: Mapping[int, np.ndarray] | None = None,
    ) -> ReadyPlan:
        """A plan with its packed weights, some of them perhaps random ones, which ``stand_ins`` has by buffer."""
        self.options.tell("packing weights")
        packed = self.weights.pack(plan, take, stand_ins)
        if self.graphs.ranges:
            plan = replace(plan, config=replace(plan.config, ranges=self.graphs.ranges))
        keeps = self.options.keeps_denormals
        return ReadyPlan(plan, packed, outputs, self._computes(plan), deciding, keeps)

    def _computes(self, plan: Plan) -> dict[int, Compute]:
        """Functions that run the steps that no primitive computes; warns of plain ones once a model."""
        computes, missing = computes_of(plan), unavailable(plan)
        if (plan.plain_steps or missing) and not self.has_warned:
            self.has_warned = True
            if plan.plain_steps:
                warnings.warn(_plain_warning(plan), PlainKernelWarning, stacklevel=2)
            if missing:
                warn_caller(missing, PolicyWarning)
        return computes

    def lend(self, shapes: Shapes, plan: Plan) -> None:
        """Have plans for like extents take their layouts from this one, unless another lends them already."""
        if self.like(shapes) is None:
            self.chosen.append((shapes, plan))

    def like(self, shapes: Shapes) -> Plan | None:
        """The plan for the nearest extents, if those are near and it was not refused since; measuring asks anew.

        Within ranges that is the plan for the largest extents, which came first.
        """
        if self.pricing.mode == "measure":
            return None
        ratios = [(_ratio(shapes, known), plan) for known, plan in self.chosen if not is_refused(plan)]
        ratio, nearest = min(ratios, key=lambda each: each[0], default=(inf, None))
        return nearest if self.graphs.ranges or ratio <= MAX_LIKE_RATIO else None

    def recalled(self, text: str, request: Request, check: Callable[[Plan], None]) -> Plan | None:
        """The plan that is remembered; ``check`` raises where it is of something else."""
        self.last = self.pricing.recall(text, request, check)
        if self.last is not None:
            self.options.tell("layouts were chosen before")
        return self.last

    def outward(self, program: Program) -> Request:
        """The request, where inner values of which there is but one layout worth having are row-major."""
        if not self.inner:
            return self.request
        values = (*program.inputs, *program.outputs)
        apart = {each.name for each in values if len(each.shape) < MIN_NDIMS or each.dtype not in PRIMITIVE_FLOATS}
        apart &= self.inner
        formats = {name: text for name, text in self.request.io_layout.items() if name not in apart}
        carried = {name: each for name, each in self.request.carried.items() if not apart & {name, each}}
        return replace(self.request, io_layout=formats, carried=carried)


class Making(Struct):
    """One plan that is being made.

    Attributes:
        faster: A policy that is to be taken for ``auto``, and its time next to that of the plan before.
        is_part: Whether it is for a part of the rows.
        about_parts: Key by which it is remembered how these rows are run, where that was not known.
        raced: Plans that ran, held until the one that is taken has their packed constants, too.
    """

    maker: PlanMaker
    shapes: Shapes
    contents: Contents
    faster: tuple[str, float] | None = None
    is_part: bool = False
    about_parts: tuple[str, Request] | None = None
    raced: list[ReadyPlan] = field(default_factory=list)
    began_s: float = field(default_factory=monotonic)

    def ready(self) -> ReadyPlan:
        """The plan, ready to run."""
        maker = self.maker
        try:
            if self.faster is not None:
                return self._anew()
            n_saved = maker.saved.parts_for(self.shapes)
            if n_saved > 1:
                try:
                    prove_parts(maker.graphs.opened, maker.graphs.borders, self.shapes, n_saved)
                except UnsupportedError as error:
                    raise PlanError(f"the plan runs its rows in {n_saved} parts: {error}") from error
                return self._part(RowParts(n_saved))
            return self._faster_in_parts(self._as_before() or self._anew())
        finally:
            self.raced.clear()

    def _part(self, parts: RowParts) -> ReadyPlan:
        """The plan for a part of the rows."""
        part = replace(self, shapes=parts.of(self.shapes), is_part=True, about_parts=None)
        return part._as_before() or part._anew()  # noqa: SLF001 - of its own class

    def _known_parts(self, about: str, request: Request) -> RowParts | None:
        """In how many parts rows were found to run before, if in several; where that is not known, it is found out."""
        maker = self.maker
        is_fixed = maker.saved.plan is not None or maker.graphs.is_piece or bool(maker.graphs.ranges)
        is_fixed = is_fixed or maker.request.is_frugal or maker.request.policy != "auto"
        if is_fixed or self.is_part or self.faster is not None or maker.pricing.mode == "model":
            return None
        known = maker.pricing.recall_as(RowParts, about, request)
        self.about_parts = (about, request) if known is None else None
        return known if known is not None and known.n > 1 else None

    def _faster_in_parts(self, whole: ReadyPlan) -> ReadyPlan:
        """The plan for all rows at once, or the one for parts that caches hold, which takes less memory, if as fast."""
        from blocklayout.loading.run_off import share_of_time

        maker = self.maker
        is_brief = maker.pricing.mode == "cached"
        n = parts_that_fit(whole.plan, self.shapes, dnnl.processor.data_caches()) if self.about_parts else 1
        if n == 1 or (is_brief and N_BATCH_RUNS * whole.plan.cost_ns > 1e9 * MAX_BATCH_SECONDS):
            return whole
        try:
            prove_parts(maker.graphs.opened, maker.graphs.borders, self.shapes, n)
        except UnsupportedError:
            self._keep_parts(RowParts(1))
            return whole
        maker.options.tell(f"running all rows at once and in {n} parts, in turn")
        maker.chosen = [each for each in maker.chosen if each[1] is not whole.plan]  # a part has layouts of its own
        part = self._part(RowParts(n))
        with nullcontext() if is_brief else maker.pricing.alone():
            in_parts = replace(part, plan=replace(part.plan, parts=n))
            try:
                share = share_of_time(in_parts, whole, MAX_BATCH_SECONDS if is_brief else inf)
            except InputError:  # the model does not take the values that plans are run with
                share = inf
        parts = RowParts(n, share) if share <= SAME_TIME else RowParts(1)
        self._keep_parts(parts)
        return whole if parts.n == 1 else parts.joined(part)

    def _keep_parts(self, parts: RowParts) -> None:
        maker = self.maker
        if self.about_parts is not None:
            maker.pricing.keep(parts, *self.about_parts)
        if maker.memory is not None and maker.memory.file.is_whole:
            maker.pricing.keep(parts, maker.memory.about_parts(self.shapes), maker.request)

    def _as_before(self) -> ReadyPlan | None:
        """The plan that this file had before, its constants made of the file's bytes alone."""
        maker = self.maker
        memory = maker.memory
        if memory is None or maker.request.is_frugal:
            return None
        known = memory.recall(self.shapes)
        if known is None:
            return None
        parts = self._known_parts(memory.about_parts(self.shapes), maker.request)
        if parts is not None:  # of the same file, so that it is proven
            return parts.joined(self._part(parts))
        fits = partial(
            check_fits,
            inputs=dict(self.shapes),
            outputs=[info.name for info in memory.file.signature.outputs],
            known=known.outputs,
            constants_of=lambda _: known.constants,
        )
        plan = maker.recalled(known.plan, replace(maker.request, demanded=known.demanded), fits)
        if plan is None:
            return None
        maker.lend(self.shapes, plan)
        file = memory.file.contents
        outputs = {name: np.array(origin.array(file)) for name, origin in known.outputs.items()}
        memory.file.let_go()  # the last constant that is packed holds its bytes
        return maker.packed(plan, outputs, lambda name: known.constants[name].array(file), {})

    def _anew(self) -> ReadyPlan:
        maker = self.maker
        maker.options.tell("simplifying the graph")
        graphs = maker.graphs.of_parts() if self.is_part else maker.graphs
        program, deciding, demanded = graphs.lowered(self.shapes, self.contents, maker.options.demands)
        if self.is_part and isinstance(maker.graphs.opened, model.ModelFile):
            maker.graphs.opened.let_go()
        about = f"{made_of(program.name, program.digest)} in parts"
        parts = self._known_parts(about, replace(maker.request, demanded=demanded))
        if parts is not None:
            with suppress(UnsupportedError):  # it may be another model, whose constants are others
                prove_parts(maker.graphs.opened, maker.graphs.borders, self.shapes, parts.n)
                return parts.joined(self._part(parts))
        plan = maker.saved.plan_for(program, is_decided=bool(deciding), is_part=self.is_part)
        plan = plan or self._choose(program, demanded)
        outputs, constants = known_outputs(program), constants_of(program, plan)
        del program  # so that each of its constants goes as soon as it is packed
        is_chosen = any(plan is chosen for _, chosen in maker.chosen)
        if maker.memory is not None and is_chosen and not deciding and not maker.request.is_frugal:
            maker.memory.remember(self.shapes, plan, constants, outputs, demanded)
        return maker.packed(plan, outputs, constants.pop, deciding)

    def _choose(self, program: Program, demanded: Demanded) -> Plan:
        """The plan that was made for this before, else a new one.

        Its layouts are those of the plan for like extents; where there is none, they are chosen and remembered.
        """
        maker, faster = self.maker, self.faster
        text = made_of(program.name, program.digest)
        request = replace(maker.outward(program), demanded=demanded)
        fits = partial(
            check_fits,
            inputs={value.name: value.dims for value in program.inputs},
            outputs=[value.name for value in program.outputs],
            known=known_outputs(program),
            constants_of=partial(constants_of, program),
        )
        plan = maker.recalled(text, request, fits) if maker.remembers and faster is None else None
        if plan is not None:
            maker.lend(self.shapes, plan)
            return plan
        from blocklayout.plan.make import make_plan  # 30 ms with all that chooses

        like = maker.like(self.shapes) if faster is None else None
        told = "choosing layouts" if like is None else "taking the layouts of the plan for like extents"
        maker.options.tell(told)
        plan = make_plan(
            program,
            request if faster is None else replace(request, policy=faster[0]),
            maker.pricing.modelled(),
            price=maker.pricing.priced,
            run_off=partial(self.run_off, program),
            like=like,
        )
        if faster is not None:
            why = replace(plan.rationale, raced=(("auto before", 1.0), faster))
            plan = replace(plan, config=replace(plan.config, policy=request.policy), rationale=why)
        maker.last = plan
        if like is None:
            maker.lend(self.shapes, plan)
        if like is None and maker.remembers:
            maker.pricing.keep(plan, text, request)
        return plan

    def run_off(self, program: Program) -> RunOff | None:
        """Runs plans whole: as long as it takes, briefly, or not at all."""
        pricing = self.maker.pricing
        if pricing.mode == "model":
            return None
        from blocklayout.loading.run_off import MAX_SECONDS, RunOff, StandIns

        loading_s = (1 + STILL_TO_COME) * (monotonic() - self.began_s)
        stand_ins = StandIns()

        def make_ready(plan: Plan) -> ReadyPlan:
            made = self.maker.packed(plan, {}, constants_of(program, plan).pop, {}, stand_ins.of(plan))
            self.raced.append(made)
            return made

        seconds = inf if pricing.mode == "measure" else min(MAX_SECONDS, loading_s)
        alone = pricing.alone if seconds == inf else nullcontext
        return RunOff(make_ready, seconds, self.maker.options.tell, alone)


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
    given = ((*kernel.constants, *(kernel.in_bytes.all if kernel.in_bytes else ())) for kernel in kernels)
    return {constant.name: constant.array for constants in given for _, constant in constants}
