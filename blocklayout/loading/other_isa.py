"""Sessions for another instruction set than this process uses: the library takes one for as long as a process lives."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl, errors
from blocklayout.errors import BlockLayoutError, BlockLayoutWarning, PlanError, RefusedError
from blocklayout.loading.saved_session import write_session
from blocklayout.resource_limits import Limits, in_force

if TYPE_CHECKING:
    from blocklayout.loading.from_model import Loading
    from blocklayout.runtime import PlanBook
    from blocklayout.runtime.plan_book import Shapes

MAX_ISA = "ONEDNN_MAX_CPU_ISA"
_CHILD = "from blocklayout.loading.other_isa import main; main()"


class Job(Struct, frozen=True):
    """The task of such a process.

    Attributes:
        loading: The model, and what its caller asked for.
        plans: Logical extents of the inputs that plans are wanted for, and the contents that decide others.
        feeds: Typical inputs of a model in pieces, which are planned as they run.
        rows: Those that are proven to be computed apart, as :class:`~blocklayout.runtime.Signature` has them.
        limits: Those in force.
    """

    loading: Loading
    plans: Sequence[tuple[Shapes, Mapping[str, np.ndarray]]]
    feeds: Sequence[Mapping[str, Any]]
    rows: tuple[Any, ...]
    limits: Limits | None

    @classmethod
    def of(cls, loading: Loading, book: PlanBook, feeds: Sequence[Mapping[str, Any]]) -> Job:
        """The making of a session's like.

        Args:
            loading: Of that session.
            book: Its plans.
            feeds: Typical inputs, of a model in pieces.

        Raises:
            PlanError: Functions decide what kernels are, or a model in pieces has nothing to run on.
        """
        if loading.options.what.demands.key is None:
            raise PlanError("targets: functions decide pins, expectations or precision, and no other process has them")
        if book.pieces is not None and not feeds:
            raise PlanError(
                "targets: the model is in pieces, which are planned for what runs bring to them: give feeds=[...], "
                "typical inputs, for the processes that plan for other instruction sets"
            )
        plans = [] if book.pieces is not None else book.by_last_run()
        wanted = [(shapes, dict(ready.contents)) for shapes, ready in plans]
        return cls(loading, wanted, () if book.pieces is None else feeds, book.signature.rows, in_force.get())

    def do(self, isa: str, path: Path) -> None:
        """Plan, pack and save in this process.

        Raises:
            PlanError: It uses another instruction set.
            BlockLayoutError: The model cannot be planned.
        """
        if dnnl.isa() != isa:
            raise PlanError(f"{MAX_ISA}={isa.upper()} makes the library use {dnnl.isa()}")
        in_force.set(self.limits)
        book = self.loading.book()
        try:
            book.prepare_all(self.plans)
            for feed in self.feeds:
                book.run(None, feed)
            book.signature = replace(book.signature, rows=self.rows)
            write_session(path, book, {shapes for shapes, _ in self.plans})
        finally:
            book.close()

    def do_apart(self, isa: str, path: Path) -> None:
        """Plan, pack and save in a process that uses this instruction set.

        Args:
            isa: As :func:`~blocklayout.dnnl.isa` spells it, one of this CPU's.
            path: Of the file.

        Raises:
            PlanError: There is something that cannot be handed to another process, or that process ended early.
            BlockLayoutError: What it raised.
        """
        modules = os.pathsep.join(each or os.curdir for each in sys.path)
        with subprocess.Popen(  # noqa: S603 - ourselves
            [sys.executable, "-P", "-c", _CHILD, isa, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {MAX_ISA: isa.upper(), "PYTHONPATH": modules},
        ) as process:
            try:
                self._send(process.stdin)
                said, complaint = process.communicate()
            except PlanError as error:
                raise PlanError(f"target {isa}: {error}") from error
            finally:
                process.kill()
        if process.returncode:
            reason = complaint.decode(errors="replace").strip()[-500:]
            raise PlanError(f"target {isa}: its process ended with status {process.returncode}: {reason}")
        answer = json.loads(said.splitlines()[-1])
        for category, message in answer["warnings"]:
            warnings.warn(f"target {isa}: {message}", getattr(errors, category), stacklevel=5)
        if answer["error"]:
            name, message = answer["error"]
            raise getattr(errors, name)(f"target {isa}: {message}")

    def _send(self, stream: Any) -> None:
        try:
            with suppress(BrokenPipeError):  # it has ended, and says why
                pickle.dump(self, stream, protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise PlanError(f"the model cannot be handed to another process: {error}") from error


def main() -> None:
    """Do the job that comes by standard input, and say what became of it in a line of JSON."""
    isa, path = sys.argv[1:]
    error = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", BlockLayoutWarning)
        try:
            job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the process that started this one
            job.do(isa, Path(path))
        except BlockLayoutError as refused:
            error = _public_name(type(refused)), str(refused)
        except OSError as refused:
            error = PlanError.__name__, f"the session cannot be saved: {refused.strerror or refused}"
    ours = [(each.category.__name__, str(each.message)) for each in told if hasattr(errors, each.category.__name__)]
    sys.stdout.write("\n" + json.dumps({"error": error, "warnings": ours}) + "\n")


def _public_name(kind: type[BlockLayoutError]) -> str:
    """The nearest class of an error that is made of a message alone."""
    return next(each.__name__ for each in kind.__mro__ if hasattr(errors, each.__name__) and each is not RefusedError)
