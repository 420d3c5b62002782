"""Session files for several instruction sets: a session for each, and the bytes that some of them share once.

The library takes one instruction set for as long as a process lives, so that those for others are made in processes of
their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace

from blocklayout import dnnl, errors
from blocklayout.atomic_write import beside_of
from blocklayout.encoding import InfiniteField, from_json, to_json
from blocklayout.errors import BlockLayoutError, InputError, ModelError, PlanError, UnsupportedError
from blocklayout.loading.options import Options
from blocklayout.loading.saved_session import (
    SessionRecord,
    TargetRecord,
    TargetsRecord,
    Tensors,
    plans_of,
    read_parts,
    record_of,
    write_session,
)
from blocklayout.model.graph import AttributeField, Graph
from blocklayout.model.model_file import ModelFile
from blocklayout.model.onnx_read import OnnxModel
from blocklayout.resource_limits import Limits, in_force
from blocklayout.tensor import as_array
from blocklayout.tensor.tensor_file import TensorFile, open_tensors, write_tensors

if TYPE_CHECKING:
    from blocklayout.loading.from_model import Loading
    from blocklayout.runtime import PlanBook

MAX_ISA = "ONEDNN_MAX_CPU_ISA"
_CHILD = "from blocklayout.loading.targets import main; main()"


def write_targets(path: Path, book: PlanBook, targets: Sequence[str], make: Callable[[str, Path], None]) -> None:
    """Write a session's plans, and such as other instruction sets have in their place, to one file.

    ``book`` has the plans, made here, mostly for the instruction set that the library uses; ``make`` writes a session
    for another one that this CPU has. Errors are those of :meth:`blocklayout.Session.save`, or an OSError.
    """
    _check_targets(targets)
    plans = book.plans
    if not plans:  # numpy computes all of it, on all CPUs
        write_session(path, book)
        return
    own = dnnl.highest_isa(plan.config.isa for plan in plans)
    beside = {isa: beside_of(path) for isa in targets}
    try:
        for isa, part in beside.items():
            if isa == own:
                write_session(part, book)
            else:
                make(isa, part)
        merge_sessions([*beside.values()], path)
    finally:
        for part in beside.values():
            part.unlink(missing_ok=True)


def _check_targets(targets: Any) -> None:
    known = dnnl.isa_names()
    is_listed = isinstance(targets, Sequence) and not isinstance(targets, str)
    if not is_listed or not targets or any(isa not in known or targets.count(isa) > 1 for isa in targets):
        raise InputError(
            f"targets={targets!r:.80}: give some of {', '.join(known)}, each once, such as ('avx2', 'avx512_core')"
        )
    for isa in targets:
        if not dnnl.has_isa(isa):
            raise UnsupportedError(
                f"target {isa}: weights are packed by the instruction set that they are for, and this CPU runs "
                f"{dnnl.isa()}: save the session where it runs, and bl.merge_sessions makes one file of both"
            )


def merge_sessions(sources: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> None:
    """Make one file of saved sessions of one model, each for CPUs of another instruction set.

    :func:`blocklayout.load` takes from it the highest that its CPU has, and looks at no other. Weights that several
    have packed alike are in the file once.

    Args:
        sources: Files that :meth:`Session.save` or this function wrote, on any machines.
        path: The file to write; it may be one of them.

    Raises:
        InputError: No files, or two of them are for one instruction set.
        ModelError: One of them cannot be read, or is damaged.
        PlanError: They are of several models, or planned for other extents, or ``path`` cannot be written.

    Example:
        >>> merge_sessions([], "net.session")
        Traceback (most recent call last):
        blocklayout.errors.InputError: sources: give the paths of saved sessions
    """
    if isinstance(sources, str | os.PathLike) or not sources:
        raise InputError("sources: give the paths of saved sessions")
    parts: dict[str, TensorFile] = {}
    about: dict[object, str] = {}
    for source in sources:
        for isa, part, record in _parts(Path(source)):
            if isa in parts:
                raise InputError(f"{source}: another one of the files is for CPUs with {isa}, too")
            parts[isa] = part
            first = about.setdefault(_about(record), f"{source}")
            if len(about) > 1:
                [other, *_] = about.values()
                raise PlanError(
                    f"{first} and {other} differ in their models, inputs, outputs, or the extents of inputs"
                )
    try:
        _write(Path(path), parts)
    except OSError as error:
        raise PlanError(f"the sessions cannot be saved as {path}: {error.strerror or error}") from error


def _parts(path: Path) -> Iterator[tuple[str, TensorFile, SessionRecord]]:
    """The sessions in a file with their instruction sets, all of their bytes compared with checksums."""
    try:
        for target, part in read_parts(path):
            part.verify()
            record = record_of(part)
            names = {each.plan.config.isa for each in plans_of(record)}
            if not names:
                raise PlanError("the session has no plan, and so is for all CPUs")  # noqa: TRY301 - names the file
            yield target or dnnl.highest_isa(names), part, record
    except OSError as error:
        raise ModelError(f"no session can be read from {path}: {error.strerror or error}") from error
    except (ModelError, PlanError) as error:
        raise type(error)(f"{path}: {error}") from error


def _about(record: SessionRecord) -> tuple[object, ...]:
    """Model, inputs, outputs and extents, which are the same in sessions for several instruction sets."""
    names = {each.plan.model for each in record.plans} if record.pieces is None else {record.pieces.name}
    extents = {each.shapes for each in record.plans}
    about = record.signature
    return frozenset(names), about.inputs, about.outputs, about.defaults, frozenset(extents)


def _write(path: Path, parts: Mapping[str, TensorFile]) -> None:
    """Write sessions by their instruction sets, equal bytes once."""
    tensors: dict[str, np.ndarray] = {}
    alike: dict[tuple[int, int], list[str]] = {}
    targets = {}
    for isa, part in parts.items():
        names = {}
        for own, array in part.tensors.items():
            candidates = alike.setdefault((part.checksums[own], array.nbytes), [])
            same = (name for name in candidates if np.array_equal(tensors[name], array))
            names[own] = name = next(same, f"{isa}/{own}")
            if name not in tensors:
                tensors[name] = array
                candidates.append(name)
        tensors[isa] = np.frombuffer(part.text.encode(), np.uint8)
        targets[isa] = TargetRecord(isa, names)
    write_tensors(path, to_json(TargetsRecord(targets)), tensors)


class Job(Struct, frozen=True):
    """The task of a process that makes a session for another instruction set.

    Attributes:
        plans: Logical extents of the inputs that plans are wanted for, and the contents that decide others.
        feeds: Typical inputs of a model in pieces, which are planned as they run.
        rows: Those that are proven to be computed apart, as :class:`~blocklayout.runtime.Signature` has them.
    """

    source: OnnxModel | Graph
    options: Options
    plans: tuple[tuple[tuple[tuple[str, tuple[int, ...]], ...], dict[str, np.ndarray]], ...]
    feeds: tuple[dict[str, AttributeField], ...]
    rows: tuple[tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...]], ...]
    limits: tuple[int | None, InfiniteField, InfiniteField] | None

    @classmethod
    def of(cls, loading: Loading, book: PlanBook, feeds: Sequence[Mapping[str, Any]]) -> Job:
        """The making of a book's like; ``feeds`` are typical inputs of a model in pieces.

        A PlanError where functions decide demands on kernels, or a model in pieces has nothing to run on.
        """
        options = loading.options
        if options.demands.key is None:
            raise PlanError("targets: functions decide pins, expectations or precision, and no other process has them")
        if book.pieces is not None and not feeds:
            raise PlanError(
                "targets: the model is in pieces, which are planned for what runs bring to them: give feeds=[...], "
                "typical inputs, for the processes that plan for other instruction sets"
            )
        assert not isinstance(loading.opened, ModelFile)  # noqa: S101 - for mypy
        limits = in_force.get()
        plans = [] if book.pieces is not None else book.by_last_run()
        return cls(
            source=loading.opened,
            options=options,
            plans=tuple((shapes, dict(ready.contents)) for shapes, ready in plans),
            feeds=tuple(map(_as_fed, feeds)) if book.pieces is not None else (),
            rows=book.signature.rows,
            limits=None if limits is None else astuple(limits),
        )

    def do(self, isa: str, path: Path) -> None:
        """Plan, pack and save in this process; a PlanError where it uses another instruction set."""
        from blocklayout.loading.from_model import Loading

        if dnnl.isa() != isa:
            raise PlanError(f"{MAX_ISA}={isa.upper()} makes the library use {dnnl.isa()}")
        if self.limits is not None:
            nbytes, end, seconds = self.limits
            in_force.set(Limits(nbytes, float(end), float(seconds)))
        book = Loading(self.source, self.options).book()
        try:
            book.prepare_all(self.plans)
            for feed in self.feeds:
                book.run(None, feed)
            book.signature = replace(book.signature, rows=self.rows)
            write_session(path, book, {shapes for shapes, _ in self.plans})
        finally:
            book.close()

    def do_apart(self, isa: str, path: Path) -> None:
        """Plan, pack and save in a process that uses this instruction set; the file holds the task before.

        Its errors are raised here. A PlanError where it ended early, or the model cannot be handed to it.
        """
        tensors = Tensors()
        try:
            text = to_json(self, keep=tensors.keep)
        except (TypeError, ValueError) as error:
            raise PlanError(f"target {isa}: the model cannot be handed to another process: {error}") from error
        write_tensors(path, text, tensors.found)
        modules = os.pathsep.join(each or os.curdir for each in sys.path)
        done = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-c", _CHILD, isa, str(path)],
            check=False,
            capture_output=True,
            env=os.environ | {MAX_ISA: isa.upper(), "PYTHONPATH": modules},
        )
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip()[-500:]
            raise PlanError(f"target {isa}: its process ended with status {done.returncode}: {reason}")
        answer = json.loads(done.stdout.splitlines()[-1])
        for category, message in answer["warnings"]:
            warnings.warn(f"target {isa}: {message}", getattr(errors, category), stacklevel=5)
        if answer["error"]:
            name, message = answer["error"]
            raise getattr(errors, name)(f"target {isa}: {message}")


def _as_fed(value: Any) -> Any:
    """A feed, or a value in one, as arrays."""
    if isinstance(value, Mapping):
        return {name: _as_fed(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_as_fed, value))
    return value if value is None else as_array(value, "feeds")


def main() -> None:
    """Do the job that a file holds, and say how it ended in a line of JSON."""
    isa, path = sys.argv[1], Path(sys.argv[2])
    error = None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", errors.BlockLayoutWarning)
        try:
            file = open_tensors(path)
            from_json(Job, file.text, file.tensors).do(isa, path)
        except BlockLayoutError as refused:
            # The nearest class of an error that is made of a message alone.
            kinds = (each.__name__ for each in type(refused).__mro__ if each is not errors.RefusedError)
            error = next(name for name in kinds if hasattr(errors, name)), str(refused)
        except OSError as refused:
            error = PlanError.__name__, f"the session cannot be saved: {refused.strerror or refused}"
    ours = [(each.category.__name__, str(each.message)) for each in seen if hasattr(errors, each.category.__name__)]
    sys.stdout.write("\n" + json.dumps({"error": error, "warnings": ours}) + "\n")
