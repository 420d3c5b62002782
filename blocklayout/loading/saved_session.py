"""Saved sessions: plans with their packed weights in one file, ready to run without the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from blocklayout import dnnl
from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import BlockLayoutError, LimitError, ModelError, PlanError
from blocklayout.ir import Demands
from blocklayout.layout_events import warn_caller
from blocklayout.loading.saved_plan import check_formats, check_here, check_wishes, computes_of
from blocklayout.loading.session_records import (
    IN_PIECES,
    SEVERAL,
    VERSION,
    ArrayRecord,
    PartRecord,
    PlanRecord,
    SessionRecord,
    TargetRecord,
    TargetsRecord,
    VersionRecord,
    tensor_of,
)
from blocklayout.plan.struct_json import MisfitError, from_json, to_json
from blocklayout.runtime import PlanBook, ReadyPlan, Signature
from blocklayout.runtime.streams import Streams
from blocklayout.serve.queue import Queue
from blocklayout.session import Session
from blocklayout.side_by_side import side_by_side
from blocklayout.tensor.files import is_tensor_text
from blocklayout.tensor.tensor_file import TensorFile, is_tensor_file, open_tensors, write_tensors

if TYPE_CHECKING:
    from blocklayout.layout import MemoryDesc
    from blocklayout.loading.options import Options
    from blocklayout.plan import Buffer, Plan
    from blocklayout.plan.plan import PackedConstant
    from blocklayout.runtime.plan_book import Contents, Shapes

MAX_ARENA_NBYTES = 1 << 40
MIN_HALVED_NBYTES = 1 << 16
"""Smallest weights that are stored in f16 where that loses nothing."""

_RECORD = ""
"""Name of the tensor that holds the record of a session, where a file has several."""

_TASTED = 1024
"""Numbers that most weights betray themselves by."""


class _Tensors(Struct):
    """Arrays on their way into a file, each once."""

    found: dict[str, np.ndarray] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    halved: list[str] = field(default_factory=list)

    def add(self, array: np.ndarray, what: str) -> str:
        """The name under which its bytes are kept."""
        if id(array) not in self.names:
            name = f"{len(self.found)} {what}"
            self.names[id(array)] = name
            self.found[name] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return self.names[id(array)]

    def add_packed(self, packed: np.ndarray, constant: PackedConstant) -> str:
        """The name under which packed weights are kept: in f16 where they were f16 before they were unpacked."""
        is_new = id(packed) not in self.names
        name = self.add(packed, constant.constant)
        narrow = _in_f16(packed) if is_new and constant.desc.dtype == "f32" else None
        if narrow is not None:
            self.found[name] = narrow.view(np.uint8)
            self.halved.append(name)
        return name

    def add_array(self, array: np.ndarray, name: str) -> ArrayRecord:
        return ArrayRecord(self.add(array, name), from_numpy(array.dtype), array.shape)

    def add_all(self, arrays: Mapping[str, np.ndarray]) -> dict[str, ArrayRecord]:
        return {name: self.add_array(array, name) for name, array in arrays.items()}


def write_session(path: Path, book: PlanBook, wanted: Collection[Shapes] | None = None) -> None:
    """Write a session's plans with their packed weights.

    Args:
        path: Of the file.
        book: The plans.
        wanted: Extents of those that are written; all if ``None``.

    Raises:
        OSError: It cannot be written.
        PlanError: It is of a model in pieces, and one of them has no plan.
    """
    tensors = _Tensors()
    part = _part_record(book, tensors, wanted)
    version = VERSION if part.pieces is None else IN_PIECES
    record = SessionRecord(**asdict(part), version=version, halved=tuple(tensors.halved))
    write_tensors(path, to_json(record), tensors.found)


def _part_record(book: PlanBook, tensors: _Tensors, wanted: Collection[Shapes] | None = None) -> PartRecord:
    records = []
    about, inner = book.signature, book.pieces
    for shapes, ready in book.by_last_run() if inner is None else ():
        if wanted is not None and shapes not in wanted:
            continue
        items = {item.buffer: item for item in ready.plan.constants}
        packed = {buffer: tensors.add_packed(array, items[buffer]) for buffer, array in ready.packed.items()}
        constants, contents = tensors.add_all(ready.constants), tensors.add_all(ready.contents)
        records.append(PlanRecord(ready.plan, shapes, packed, constants, contents))
    if inner is None:
        return PartRecord(
            inputs=about.inputs,
            outputs=about.outputs,
            defaults=about.defaults,
            plans=tuple(records),
            rows=about.rows,
        )
    from blocklayout.loading.saved_pieces import pieces_record

    pieces = pieces_record(inner, tensors.add_array, lambda each: _part_record(each, tensors))
    return PartRecord(inputs=inner.inputs, outputs=inner.outputs, defaults=about.defaults, plans=(), pieces=pieces)


def read_session(path: Path, *, is_mapped: bool) -> tuple[SessionRecord, TensorFile]:
    """The record of a session file, types checked, and its tensors, not yet compared with their checksums.

    Of a file for several instruction sets, that for the highest which this CPU has; nothing of the others is read.

    Args:
        path: The file.
        is_mapped: As for :func:`open_tensors`.

    Raises:
        ModelError: It is damaged, or of another version; the message names the field.
        PlanError: It has no session for this CPU.
        OSError: It cannot be read.
    """
    file = open_tensors(path, is_mapped=is_mapped, wanted=_wanted)
    if is_tensor_text(file.text):
        raise ModelError("the file holds a Tensor, not a session: bl.Tensor.load reads it")
    if _RECORD in file.tensors:
        file = _with_record(file)
    return record_of(file), file


def read_parts(path: Path) -> Iterator[tuple[str | None, TensorFile]]:
    """All sessions in a file, with the instruction sets that it states, if it does; nothing but records is read.

    Raises:
        ModelError: It is damaged.
        OSError: It cannot be read.
    """
    file = open_tensors(path)
    targets = _targets_of(file.text)
    if targets is None:
        yield None, file
    for isa, target in (targets or {}).items():
        tensors = {own: tensor_of(file.tensors, name) for own, name in _names_of(target).items()}
        checksums = {own: file.checksums[name] for own, name in _names_of(target).items()}
        yield isa, _with_record(TensorFile(file.text, tensors, checksums))


def record_of(file: TensorFile) -> SessionRecord:
    """The record of a session, types checked.

    Raises:
        ModelError: It is damaged, or of another version; the message names the field.
    """
    try:
        record = from_json(SessionRecord, file.text)
    except MisfitError as error:
        raise ModelError(f"not a session of this version: {error}") from None
    if record.version not in (VERSION, IN_PIECES):
        raise ModelError(
            f"a session of version {record.version}; this package reads {VERSION}, {IN_PIECES} and {SEVERAL}"
        )
    if (record.pieces is not None) != (record.version == IN_PIECES):
        raise ModelError(
            f"a session of version {record.version}, and its model is in {'no ' if record.pieces is None else ''}pieces"
        )
    return record


def _wanted(text: str) -> dict[str, str] | None:
    """Names of the tensors of this CPU's session, where a file has several."""
    targets = _targets_of(text)
    if targets is None:
        return None
    fitting = [isa for isa in targets if dnnl.has_isa(isa)]
    if not fitting:
        held = ", ".join(targets) or "no instruction set"
        raise PlanError(f"the session has plans for CPUs with {held}; this one runs {dnnl.isa()}")
    return _names_of(targets[dnnl.highest_isa(fitting)])


def _targets_of(text: str) -> dict[str, TargetRecord] | None:
    try:
        if from_json(VersionRecord, text).version != SEVERAL:
            return None
    except MisfitError:  # which its reader will tell
        return None
    try:
        return from_json(TargetsRecord, text).targets
    except MisfitError as error:
        raise ModelError(f"not a session of this version: {error}") from None


def _names_of(target: TargetRecord) -> dict[str, str]:
    return {**target.tensors, _RECORD: target.record}


def _with_record(file: TensorFile) -> TensorFile:
    """The session whose record is among the tensors."""
    file.verify_one(_RECORD)
    tensors, checksums = dict(file.tensors), dict(file.checksums)
    del checksums[_RECORD]
    try:
        return TensorFile(tensors.pop(_RECORD).tobytes().rstrip(b"\0").decode(), tensors, checksums)
    except UnicodeDecodeError as error:
        raise ModelError(f"the record of a session is no text: {error}") from None


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


def _unpacked(record: SessionRecord, stored: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The tensors as plans have them: those stored in f16 are unpacked now, the others stay mapped.

    Raises:
        ModelError: One of them is not there, or holds no f16.
    """
    wide: dict[str, np.ndarray] = {}

    def unpack(name: str) -> None:
        narrow = tensor_of(stored, name)
        if narrow.nbytes % 2:
            raise ModelError(f"tensor {name} has {narrow.nbytes} bytes; it cannot hold f16")
        wide[name] = dnnl.aligned_empty(2 * narrow.nbytes)
        wide[name].view(np.float32)[:] = narrow.view(np.float16)

    with side_by_side(unpack, record.halved, dnnl.default_threads()):
        pass
    if wide:
        mib = sum(array.nbytes for array in wide.values()) / 2**20
        told = f"weights stored in f16 were unpacked to f32, {mib:.1f} MiB: the saved plans compute with them in f32"
        warn_caller(told, UserWarning)
    return {**stored, **wide}


def is_saved_session(source: object) -> TypeGuard[str | os.PathLike[str]]:
    """Whether it is the path of a file that :meth:`Session.save` wrote; what cannot be read is for others to refuse."""
    if not isinstance(source, str | os.PathLike):
        return False
    try:
        return is_tensor_file(Path(source))
    except (OSError, ValueError):
        return False


def load_session(path: str | os.PathLike[str], options: Options) -> Session:
    """The session that a file holds. Neither the model nor ``onnx`` is needed.

    Args:
        path: The file.
        options: The caller's; plans are kept as many as the file has at least.

    Raises:
        ModelError: The file is damaged, or of another version.
        PlanError: It is for another library or machine, or not what is asked for.
        UnsupportedError: Rows cannot be joined as the options ask.
    """
    serving = options.serving
    book = _load_book(path, options)
    return Session(book, _write, Queue.of(serving.max_waiting, serving.batching, book, None, options.what.shapes))


def _load_book(path: str | os.PathLike[str], options: Options) -> PlanBook:
    try:
        record, file = read_session(Path(path), is_mapped=options.where.mapped)
        with file.verifying() if options.checks.verify else nullcontext():
            return _book_of(record, file, options)
    except OSError as error:
        raise ModelError(f"no session can be read from {path}: {error.strerror or error}") from error
    except (ModelError, PlanError) as error:
        raise type(error)(f"{path}: {error}") from error
    except LimitError:
        raise
    except BlockLayoutError as error:
        raise PlanError(f"{path}: the plan cannot run: {error}") from error


def _book_of(record: SessionRecord, file: TensorFile, options: Options) -> PlanBook:
    terms, wishes, demands = options.terms, options.what.wishes, options.what.demands
    plans = list(plans_of(record))
    for plan in plans:
        check_here(plan, terms.threads, terms.streams)
        (terms if record.pieces is None else replace(terms, io_layout=None)).check(plan)
        own = demands if record.pieces is None else demands.among(_selecting(plan, record))
        check_wishes(plan, wishes, own, Demands())
    if record.pieces is not None:
        check_formats(terms, (*record.inputs, *record.outputs))
        for option, key, wanted in demands.by_key():
            if not any(_selecting(plan, record)(key) for plan in plans):
                raise PlanError(f"{option} {key}={wanted}: no plan of a piece has a kernel, node or value of that name")
    restoring = _Restoring(
        tensors=_unpacked(record, file.tensors),
        streams=Streams(terms.streams, max((plan.n_threads for plan in plans), default=1)),
        options=options,
    )
    return restoring.book(record)


def _selecting(plan: Plan, record: SessionRecord) -> Callable[[str], bool]:
    """Whether a key selects something in the plan of a piece; of what comes from other pieces these have a say."""
    names, own = plan.names, {info.name for info in record.inputs}
    return lambda key: names.has(key) or (key in own and key in names.values)


def plans_of(part: PartRecord) -> Iterator[Plan]:
    """All plans, also those of pieces and subgraphs."""
    yield from (each.plan for each in part.plans)
    for piece in () if part.pieces is None else part.pieces.pieces:
        inner = [each for subgraph in piece.subgraphs.values() for each in subgraph.sessions]
        for each in (*inner, *([] if piece.session is None else [piece.session])):
            yield from plans_of(each)


class _Restoring(Struct, frozen=True):
    """Makes plan books of the records in a file."""

    tensors: Mapping[str, np.ndarray]
    streams: Streams
    options: Options

    def book(self, part: PartRecord) -> PlanBook:
        """The plan book, or that of a piece or subgraph."""
        for info in (*part.inputs, *part.outputs, *part.defaults):
            if info.dtype:  # of results between pieces it is not declared
                to_numpy(info.dtype)  # refuses what is no data type
        plans = []
        for each in part.plans:
            _check_names(each, part)
            plans.append((each.shapes, self.ready(each)))
        pieces = None
        if part.pieces is not None:
            from blocklayout.loading.saved_pieces import pieces_of

            pieces = pieces_of(part.pieces, part.inputs, part.outputs, self.tensors, self.book)
        return PlanBook(
            Signature(part.inputs, part.outputs, part.defaults, part.rows),
            NoMaker(),
            plans=plans,
            pieces=pieces,
            max_plans=max(self.options.max_plans, len(plans)),
            streams=self.streams,
            check=self.options.checks.check,
        )

    def ready(self, record: PlanRecord) -> ReadyPlan:
        """A plan, ready to run.

        Raises:
            BlockLayoutError: What it needs is not there, or reaches beyond what is.
        """
        packed = {buffer: tensor_of(self.tensors, name) for buffer, name in record.packed.items()}
        check_bounds(record.plan, {buffer: array.nbytes for buffer, array in packed.items()})
        return ReadyPlan(
            plan=record.plan,
            packed=packed,
            constants={name: each.array(self.tensors) for name, each in record.constants.items()},
            computes=computes_of(record.plan),
            contents={name: each.array(self.tensors) for name, each in record.contents.items()},
            keeps_denormals=self.options.checks.keeps_denormals,
        )


def _check_names(plan: PlanRecord, record: PartRecord) -> None:
    """Refuse a plan that is not one of the session's inputs and outputs."""
    inputs = {info.name for info in (*record.inputs, *record.defaults)}
    entering = {entry.input for entry in plan.plan.entries}
    fed = {name for name, _ in plan.shapes} | entering | {*plan.contents}
    given = {result.name for result in plan.plan.results if result.buffer is not None} | {*plan.constants}
    strange = (fed - inputs) | ({info.name for info in record.outputs} - given)
    strange |= entering - {name for name, _ in plan.plan.inputs}
    if plan.plan.parts > 1:
        dims = {name: desc.dims for name, desc in plan.plan.fed}
        strange |= {name for name, extents in plan.shapes if dims.get(name) != extents}
    if strange:
        raise PlanError(f"the plan is not one of this session: inputs or outputs differ ({', '.join(sorted(strange))})")


class NoMaker:
    """Makes no plans: they are made of models."""

    request = None

    def make(self, shapes: Shapes, contents: Contents) -> ReadyPlan:
        """Refuse other extents than those of the plans in the file.

        Raises:
            PlanError: In any case.
        """
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


def check_bounds(plan: Plan, packed: Mapping[int, int]) -> None:
    """Refuse a plan with a step that would reach beyond its buffers.

    Whether its steps compute the right thing cannot be checked without the model.

    Args:
        plan: Every field is of its type.
        packed: Bytes of each packed constant, by buffer.

    Raises:
        PlanError: The message names the field.
    """
    for name, nbytes in (("arena_nbytes", plan.arena_nbytes), ("scratchpad_nbytes", plan.scratchpad_nbytes)):
        if not 0 <= nbytes <= MAX_ARENA_NBYTES:
            raise PlanError(f"{name} is {nbytes}")
    for number, buffer in enumerate(plan.buffers):
        room = packed.get(number, -1) if buffer.kind == "constant" else _room(plan, buffer)
        if not 0 <= buffer.nbytes <= room:
            raise PlanError(f"buffers.{number} ({buffer.name}) has {buffer.nbytes} bytes; there is room for {room}")
    for number, step in enumerate(plan.steps):
        if not 0 <= step.scratchpad_nbytes <= plan.scratchpad_nbytes:
            raise PlanError(f"steps.{number}.scratchpad_nbytes is {step.scratchpad_nbytes}")
    for where, buffer_number, desc in _uses(plan):
        if not 0 <= buffer_number < len(plan.buffers):
            raise PlanError(f"{where}.buffer is {buffer_number}; there are {len(plan.buffers)}")
        reach = (desc.placement.last_address() + 1) * desc.itemsize
        if not reach <= desc.nbytes <= plan.buffers[buffer_number].nbytes:
            raise PlanError(f"{where} takes {desc.nbytes} bytes; its buffer has {plan.buffers[buffer_number].nbytes}")
    _check_given(plan)


def _check_given(plan: Plan) -> None:
    """Refuse a plan whose steps have a caller's buffers that no input or output, or one of other extents, is put to."""
    for result in plan.results:
        if result.desc is not None and (result.shape or (1,)) != result.desc.dims:
            raise PlanError(f"results.{result.name}.shape is {result.shape}; its layout has {result.desc.dims}")
    given = {
        "entry": {f"entries.{entry.input}": entry.buffer for entry in plan.entries},
        "output": {f"results.{each.name}": each.buffer for each in plan.results if each.buffer is not None},
    }
    for kind, places in given.items():
        for where, number in places.items():
            if plan.buffers[number].kind != kind:
                raise PlanError(f"{where}.buffer is {number}, of kind {plan.buffers[number].kind}; it must be {kind}")
        for where, number, _ in _uses(plan):
            if plan.buffers[number].kind == kind and number not in places.values():
                raise PlanError(f"{where}.buffer is {number}, of kind {kind}, and none of {', '.join(places)}")


def _uses(plan: Plan) -> Iterator[tuple[str, int, MemoryDesc]]:
    """Where a buffer is named, which, and as what."""
    for number, step in enumerate(plan.steps):
        yield from ((f"steps.{number}.{arg}", operand.buffer, operand.desc) for arg, operand in step.operands)
    for entry in plan.entries:
        yield f"entries.{entry.input}", entry.buffer, entry.desc
    for result in plan.results:
        if result.buffer is not None and result.desc is not None:
            yield f"results.{result.name}", result.buffer, result.desc


def _room(plan: Plan, buffer: Buffer) -> int:
    """Bytes from where a buffer begins."""
    if buffer.kind == "output":
        return buffer.nbytes
    return plan.arena_nbytes - buffer.offset if buffer.offset >= 0 else -1
