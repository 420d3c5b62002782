"""Sessions for another instruction set than this process uses: the library takes one for as long as a process lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from blocklayout import dnnl, errors
from blocklayout.encoding import InfiniteField, from_json, to_json
from blocklayout.errors import BlockLayoutError, BlockLayoutWarning, PlanError, RefusedError
from blocklayout.loading.options import Options, Planning
from blocklayout.loading.saved_session import Tensors, write_session
from blocklayout.model.graph import AttributeField, Graph
from blocklayout.model.model_file import ModelFile
from blocklayout.model.onnx_read import OnnxModel
from blocklayout.resource_limits import Limits, in_force
from blocklayout.tensor import as_array
from blocklayout.tensor.tensor_file import open_tensors, write_tensors

if TYPE_CHECKING:
    from blocklayout.loading.from_model import Loading
    from blocklayout.runtime import PlanBook

MAX_ISA = "ONEDNN_MAX_CPU_ISA"
_CHILD = "from blocklayout.loading.other_isa import main; main()"


class Job(Struct, frozen=True):
    """The task of such a process.

    Attributes:
        options: Those that plans follow from.
        plans: Logical extents of the inputs that plans are wanted for, and the contents that decide others.
        feeds: Typical inputs of a model in pieces, which are planned as they run.
        rows: Those that are proven to be computed apart, as :class:`~blocklayout.runtime.Signature` has them.
    """

    source: OnnxModel | Graph
    options: Planning
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
            options=Planning(**{name: getattr(options, name) for name in Planning.__struct_fields__}),
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
        book = Loading(self.source, Options(**asdict(self.options))).book()
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
        warnings.simplefilter("always", BlockLayoutWarning)
        try:
            file = open_tensors(path)
            from_json(Job, file.text, file.tensors).do(isa, path)
        except BlockLayoutError as refused:
            error = _public_name(type(refused)), str(refused)
        except OSError as refused:
            error = PlanError.__name__, f"the session cannot be saved: {refused.strerror or refused}"
    ours = [(each.category.__name__, str(each.message)) for each in seen if hasattr(errors, each.category.__name__)]
    sys.stdout.write("\n" + json.dumps({"error": error, "warnings": ours}) + "\n")


def _public_name(kind: type[BlockLayoutError]) -> str:
    """The nearest class of an error that is made of a message alone."""
    return next(each.__name__ for each in kind.__mro__ if hasattr(errors, each.__name__) and each is not RefusedError)
