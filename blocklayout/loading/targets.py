"""Session files for several instruction sets: a session for each, and the bytes that some of them share once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout import dnnl
from blocklayout.atomic_write import beside_of
from blocklayout.encoding import to_json
from blocklayout.errors import InputError, ModelError, PlanError, UnsupportedError
from blocklayout.loading.saved_session import (
    SessionRecord,
    TargetRecord,
    TargetsRecord,
    plans_of,
    read_parts,
    record_of,
    write_session,
)
from blocklayout.tensor.tensor_file import TensorFile, write_tensors

if TYPE_CHECKING:
    from blocklayout.runtime import PlanBook


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
