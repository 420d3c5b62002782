"""Saved sessions: plans with their packed weights in one file, ready to run without the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeGuard

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import asdict, replace

from blocklayout import dnnl
from blocklayout.dtypes import to_numpy
from blocklayout.encoding import MisfitError, from_json, reason_against, to_json, version_of
from blocklayout.errors import BlockLayoutError, LimitError, ModelError, PlanError
from blocklayout.ir import Demands
from blocklayout.layout_events import warn_caller
from blocklayout.loading.saved_plan import check_formats, check_here, check_terms, check_wishes, computes_of
from blocklayout.model.graph import Node
from blocklayout.plan.checked import check_bounds, check_names
from blocklayout.plan.plan import Plan
from blocklayout.runtime import PlanBook, ReadyPlan, Signature
from blocklayout.runtime.pieces import SubgraphInfo
from blocklayout.runtime.streams import Streams
from blocklayout.serve.queue import Queue
from blocklayout.session import Session
from blocklayout.side_by_side import side_by_side
from blocklayout.tensor.files import is_tensor_text
from blocklayout.tensor.tensor_file import TensorFile, is_tensor_file, open_tensors, write_tensors

if TYPE_CHECKING:
    from blocklayout.loading.options import Options
    from blocklayout.plan.plan import PackedConstant
    from blocklayout.runtime.plan_book import Contents, Shapes

VERSION: Literal[8] = 8
"""Of the format; bump on incompatible changes."""

SEVERAL: Literal[9] = 9
"""That of files with sessions for several instruction sets; bump both."""

MIN_HALVED_NBYTES = 1 << 16
"""Smallest weights that are stored in f16 where that loses nothing."""

_RECORD = ""
"""Name of the tensor that holds the record of a session, where a file has several."""

_TASTED = 1024
"""Numbers that most weights betray themselves by."""


class PlanRecord(Struct, frozen=True):
    """A plan with its data; see :class:`~blocklayout.runtime.workspace.ReadyPlan`.

    Attributes:
        packed: By buffer; in f16 where plans have f32, and nothing is lost.
    """

    plan: Plan
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    packed: dict[int, np.ndarray]
    constants: Mapping[str, np.ndarray]
    contents: Mapping[str, np.ndarray]


class PartRecord(Struct, frozen=True):
    """A session, or that of a piece or subgraph: its plans, or its pieces."""

    signature: Signature
    plans: tuple[PlanRecord, ...] = ()
    pieces: PiecesRecord | None = None


class SubgraphRecord(Struct, frozen=True):
    """A subgraph with its sessions."""

    info: SubgraphInfo
    sessions: tuple[PartRecord, ...]


class PieceRecord(Struct, frozen=True):
    """A piece of a model.

    Attributes:
        kind: ``straight`` where plans compute it; ``call`` where functions do.
        reason: Why the model is cut here.
        by: How a node is computed without a plan.
        opset: Version of ONNX's operator set.
        nodes: The node that is called; of a straight piece, those that are computed one by one where that is quick.
        constants: Those that these read.
        captured: Names of values that subgraphs read of the outer graph.
        subgraphs: The node's, by attribute.
        session: A straight piece's.
    """

    kind: Literal["straight", "call"]
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str
    by: str
    opset: int
    nodes: tuple[Node, ...] = ()
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    captured: tuple[str, ...] = ()
    subgraphs: dict[str, SubgraphRecord] = field(default_factory=dict)
    session: PartRecord | None = None


class PiecesRecord(Struct, frozen=True):
    """The pieces of a model in order.

    Attributes:
        name: The model's.
        constants: Those that calls read, and outputs that are constants, by name.
    """

    name: str
    constants: Mapping[str, np.ndarray]
    pieces: tuple[PieceRecord, ...]


class SessionRecord(PartRecord, frozen=True):
    """Contents of a session file beside the tensors."""

    version: Literal[8] = VERSION


class TargetRecord(Struct, frozen=True):
    """A session in a file of several.

    Attributes:
        record: The tensor that holds its :class:`SessionRecord` as JSON, filled up with zeros.
        tensors: Names of its tensors in the file, by those that its record has for them.
    """

    record: str
    tensors: dict[str, str]


class TargetsRecord(Struct, frozen=True):
    """Contents of a file of several sessions beside the tensors, by the instruction set that each is for."""

    targets: dict[Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")], TargetRecord]
    version: Literal[9] = SEVERAL


class Tensors(Struct):
    """Arrays on their way into a file, each once."""

    found: dict[str, np.ndarray] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    narrow: dict[int, np.ndarray] = field(default_factory=dict)

    def keep(self, array: np.ndarray) -> str:
        """The name under which the bytes of an array are kept."""
        if id(array) not in self.names:
            self.names[id(array)] = name = f"{len(self.found)}"
            self.found[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self.names[id(array)]

    def halved(self, packed: np.ndarray, constant: PackedConstant) -> np.ndarray:
        """Packed weights in f16, where they were f16 before they were unpacked."""
        if constant.desc.dtype != "f32":
            return packed
        if id(packed) not in self.narrow:
            narrow = _in_f16(packed)
            self.narrow[id(packed)] = packed if narrow is None else narrow
        return self.narrow[id(packed)]


def write_session(path: Path, book: PlanBook, wanted: Collection[Shapes] | None = None) -> None:
    """Write a session's plans, all or those of ``wanted`` extents, with their packed weights.

    A PlanError where it is of a model in pieces, and one of them has no plan; an OSError where it cannot be written.
    """
    tensors = Tensors()
    record = SessionRecord(**asdict(_part_record(book, tensors, wanted)))
    write_tensors(path, to_json(record, keep=tensors.keep), tensors.found)


def _part_record(book: PlanBook, tensors: Tensors, wanted: Collection[Shapes] | None = None) -> PartRecord:
    about, inner = book.signature, book.pieces
    if inner is not None:
        from blocklayout.loading.saved_pieces import pieces_record

        pieces = pieces_record(inner, lambda each: _part_record(each, tensors))
        return PartRecord(Signature(inner.inputs, inner.outputs, about.defaults), pieces=pieces)
    plans = []
    for shapes, ready in book.by_last_run():
        if wanted is None or shapes in wanted:
            items = {item.buffer: item for item in ready.plan.constants}
            packed = {buffer: tensors.halved(array, items[buffer]) for buffer, array in ready.packed.items()}
            plans.append(PlanRecord(ready.plan, shapes, packed, ready.constants, ready.contents))
    return PartRecord(about, tuple(plans))


def read_session(path: Path, *, is_mapped: bool) -> tuple[SessionRecord, TensorFile]:
    """The record of a session file, types checked, and its tensors, not yet compared with their checksums.

    Of a file for several instruction sets, that for the highest which this CPU has; nothing of the others is read. A
    ModelError names the field where it is damaged or of another version; a PlanError says that none is for this CPU.
    """
    file = _open(path, is_mapped=is_mapped)
    if is_tensor_text(file.text):
        raise ModelError("the file holds a Tensor, not a session: bl.Tensor.load reads it")
    return record_of(file), file


def read_parts(path: Path) -> Iterator[tuple[str | None, TensorFile]]:
    """All sessions in a file, with the instruction sets that it states, if it does; nothing but records is read."""
    targets = _targets_of(open_tensors(path).text)
    if targets is None:
        yield None, open_tensors(path)
    for isa in targets or ():
        yield isa, _open(path, [isa])


def _open(path: Path, only: Collection[str] | None = None, *, is_mapped: bool = True) -> TensorFile:
    """A session file; of one with several sessions the highest that this CPU has, or the only one that is asked for."""

    def wanted(text: str) -> dict[str, str] | None:
        targets = _targets_of(text)
        if targets is None:
            return None
        fitting = only or [isa for isa in targets if dnnl.has_isa(isa)]
        if not fitting:
            held = ", ".join(targets) or "no instruction set"
            raise PlanError(f"the session has plans for CPUs with {held}; this one runs {dnnl.isa()}")
        target = targets[dnnl.highest_isa(fitting)]
        return {**target.tensors, _RECORD: target.record}

    file = open_tensors(path, is_mapped=is_mapped, wanted=wanted)
    if _RECORD not in file.tensors:
        return file
    file.verify_one(_RECORD)
    tensors, checksums = dict(file.tensors), dict(file.checksums)
    del checksums[_RECORD]
    try:
        return TensorFile(tensors.pop(_RECORD).tobytes().rstrip(b"\0").decode(), tensors, checksums)
    except UnicodeDecodeError as error:
        raise ModelError(f"the record of a session is no text: {error}") from None


def record_of(file: TensorFile) -> SessionRecord:
    """The record of a session, types checked; a ModelError names the field that is damaged."""
    try:
        return from_json(SessionRecord, file.text, file.tensors)
    except MisfitError as error:
        raise ModelError(f"not a session of this version: {reason_against(file.text, error, VERSION)}") from None


def _targets_of(text: str) -> dict[str, TargetRecord] | None:
    if version_of(text) != SEVERAL:
        return None
    try:
        return from_json(TargetsRecord, text).targets
    except MisfitError as error:
        raise ModelError(f"not a session of this version: {error}") from None


def _in_f16(packed: np.ndarray) -> np.ndarray | None:
    """The bytes of f32 numbers as f16; ``None`` where a number would change, or there are too few."""
    wide = packed.reshape(-1).view(np.float32)
    if packed.nbytes < MIN_HALVED_NBYTES:
        return None
    with np.errstate(over="ignore"):
        if not np.array_equal(wide[:_TASTED], wide[:_TASTED].astype(np.float16)):
            return None
        narrow = wide.astype(np.float16)
    return narrow if np.array_equal(narrow, wide) else None


def _in_f32(plans: Iterable[PlanRecord]) -> Mapping[int, np.ndarray]:
    """Packed constants that are stored in f16, unpacked, by their ids; others stay mapped."""
    stored = {id(each): each for plan in plans for each in plan.packed.values() if each.dtype == np.float16}
    wide: dict[int, np.ndarray] = {}

    def unpack(key: int) -> None:
        wide[key] = dnnl.aligned_empty(2 * stored[key].nbytes)
        wide[key].view(np.float32)[:] = stored[key].reshape(-1)

    with side_by_side(unpack, stored, dnnl.default_threads()):
        pass
    if wide:
        mib = sum(array.nbytes for array in wide.values()) / 2**20
        told = f"weights stored in f16 were unpacked to f32, {mib:.1f} MiB: the saved plans compute with them in f32"
        warn_caller(told, UserWarning)
    return wide


def is_saved_session(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it is the path of a file that :meth:`Session.save` wrote; others refuse unreadable files."""
    if not isinstance(source, str | os.PathLike):
        return False
    try:
        return is_tensor_file(Path(source))
    except (OSError, ValueError):
        return False


def load_session(path: str | os.PathLike[str], options: Options) -> Session:
    """The session that a file holds, without the model and ``onnx``; plans are kept as many as it has at least.

    Raises:
        ModelError: The file is damaged, or of another version.
        PlanError: It is for another library or machine, or not as asked for.
        UnsupportedError: Rows cannot be joined as the options ask.
    """
    book = _load_book(path, options)
    return Session(book, _write, Queue.of(options.max_waiting, options.batching, book, None, options.shapes))


def _load_book(path: str | os.PathLike[str], options: Options) -> PlanBook:
    try:
        record, file = read_session(Path(path), is_mapped=options.mapped)
        with file.verifying() if options.verify else nullcontext():
            plans = _checked(record, options)
            threads = max((each.plan.config.n_threads for each in plans), default=1)
            return _Restoring(_in_f32(plans), Streams(options.streams, threads), options).book(record)
    except OSError as error:
        raise ModelError(f"no session can be read from {path}: {error.strerror or error}") from error
    except (ModelError, PlanError) as error:
        raise type(error)(f"{path}: {error}") from error
    except LimitError:
        raise
    except BlockLayoutError as error:
        raise PlanError(f"{path}: the plan cannot run: {error}") from error


def _checked(record: SessionRecord, options: Options) -> list[PlanRecord]:
    """The plans of a session and of its pieces, which are for this machine and as they are asked for."""
    wishes, demands = options.wishes, options.demands
    asked = options if record.pieces is None else replace(options, io_layout=None)
    plans = list(plans_of(record))
    for plan in (each.plan for each in plans):
        check_here(plan, options.threads, options.streams)
        check_terms(plan, asked)
        own = demands if record.pieces is None else demands.among(_selecting(plan, record))
        check_wishes(plan, wishes, own, Demands())
    if record.pieces is not None:
        check_formats(options, (*record.signature.inputs, *record.signature.outputs))
        for option, key, wanted in demands.by_key():
            if not any(_selecting(each.plan, record)(key) for each in plans):
                raise PlanError(f"{option} {key}={wanted}: no plan of a piece has a kernel, node or value of that name")
    return plans


def _selecting(plan: Plan, record: SessionRecord) -> Callable[[str], bool]:
    """Whether a key selects something in the plan of a piece; values from other pieces are left to these."""
    names, own = plan.names, {info.name for info in record.signature.inputs}
    return lambda key: names.has(key) or (key in own and key in names.values)


def plans_of(part: PartRecord) -> Iterator[PlanRecord]:
    """All plans, also those of pieces and subgraphs."""
    yield from part.plans
    for piece in () if part.pieces is None else part.pieces.pieces:
        inner = [each for subgraph in piece.subgraphs.values() for each in subgraph.sessions]
        for each in (*inner, *([] if piece.session is None else [piece.session])):
            yield from plans_of(each)


class _Restoring(Struct, frozen=True):
    """Makes plan books of the records in a file; ``wide`` are packed constants that were unpacked, by their ids."""

    wide: Mapping[int, np.ndarray]
    streams: Streams
    options: Options

    def book(self, part: PartRecord) -> PlanBook:
        """The plan book, or that of a piece or subgraph."""
        about = part.signature
        for info in (*about.inputs, *about.outputs, *about.defaults):
            if info.dtype:  # of results between pieces it is not declared
                to_numpy(info.dtype)  # refuses unknown data types
        plans = []
        for each in part.plans:
            _check_names(each, about)
            plans.append((each.shapes, self.ready(each)))
        pieces = None
        if part.pieces is not None:
            from blocklayout.loading.saved_pieces import pieces_of

            pieces = pieces_of(part.pieces, about.inputs, about.outputs, self.book)
        return PlanBook(
            about,
            NoMaker(),
            plans=plans,
            pieces=pieces,
            max_plans=max(self.options.max_plans, len(plans)),
            streams=self.streams,
            check=self.options.check,
        )

    def ready(self, record: PlanRecord) -> ReadyPlan:
        """A plan, ready to run, if all it needs is there and it reaches no further."""
        packed = {
            buffer: self.wide[id(array)] if id(array) in self.wide else array.reshape(-1).view(np.uint8)
            for buffer, array in record.packed.items()
        }
        check_bounds(record.plan, {buffer: array.nbytes for buffer, array in packed.items()})
        computes, keeps = computes_of(record.plan), self.options.keeps_denormals
        return ReadyPlan(record.plan, packed, record.constants, computes, record.contents, keeps)


def _check_names(plan: PlanRecord, about: Signature) -> None:
    """Refuse a plan that is not one of the session's inputs and outputs."""
    inputs = {info.name for info in (*about.inputs, *about.defaults)}
    check_names(plan.plan, inputs, [info.name for info in about.outputs], plan.constants)
    strange = {*(name for name, _ in plan.shapes), *plan.contents} - inputs
    if plan.plan.parts > 1:
        dims = {name: desc.dims for name, desc in plan.plan.fed}
        strange |= {name for name, extents in plan.shapes if dims.get(name) != extents}
    if strange:
        raise PlanError(f"the plan is not one of this session: inputs or outputs differ ({', '.join(sorted(strange))})")


class NoMaker:
    """Makes no plans: they are made of models."""

    request = None

    def make(self, shapes: Shapes, contents: Contents) -> ReadyPlan:
        """Refuse other extents than those of the plans in the file."""
        del contents
        extents = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'a scalar'}" for name, shape in shapes)
        raise PlanError(f"the saved session has no plan for {extents}: load the model itself to have one made")

    def settle(self, *_: object) -> None:
        """Nothing is chosen here."""

    def originals_nbytes(self) -> int:
        """No weights are held but packed ones."""
        return 0

    def describe_nodes(self, *_: object) -> None:
        """The model is not at hand."""


def _write(path: Path, book: PlanBook, targets: Sequence[str] | None, feeds: object) -> None:
    del feeds
    if targets is not None:
        raise PlanError(f"targets={targets!r:.60}: the session was saved itself; load the model to plan for others")
    write_session(path, book)
