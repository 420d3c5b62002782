"""Executions in a row: one call into C where that was built, else a loop here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.engine import cpu_stream
from blocklayout.dnnl.native import native
from blocklayout.dnnl.team import team

if TYPE_CHECKING:
    from blocklayout.dnnl.execution import Execution


class ExecutionList:
    """Executions that run one after the other.

    In C this is one call, during which other Python threads go on, and denormals are zero on all threads that
    compute: arithmetic on them may be a hundred times slower. Each thread's own mode is back afterwards. The loop in
    Python leaves them as they are.

    Args:
        executions: In order; ``None`` keeps a place free.
        n_threads: Threads that compute, the caller among them.
        keeps_denormals: Whether they stay as they are.
    """

    def __init__(
        self, executions: Sequence[Execution | None], n_threads: int, *, keeps_denormals: bool = False
    ) -> None:
        self._executions: list[Execution | None] = [None] * len(executions)
        self._steps = ffi.new("bl_step_t[]", len(executions))
        self._executor = native()
        self._failed = ffi.new("int *")
        n_flushing = 1 if library.is_sequential() or team() else n_threads  # a team's workers do as their caller does
        self._n_flushing = 0 if keeps_denormals else n_flushing
        for place, execution in enumerate(executions):
            self.put(place, execution)

    def __len__(self) -> int:
        return len(self._executions)

    def put(self, place: int, execution: Execution | None) -> None:
        """Put an execution where another was, or none."""
        if self._executions[place] is not execution:
            self._executions[place] = execution
            self._steps[place] = execution.c_step if execution else (ffi.NULL, ffi.NULL, ffi.NULL, 0)

    def run(self) -> None:
        """Run them; parallel regions are as wide as the caller made them, as for :meth:`Execution.run`.

        Raises:
            RefusedError: The library refused one; those behind it did not run.
        """
        self._run(ffi.NULL)

    def run_timed(self) -> list[int]:
        """Run them, and give the nanoseconds of each; 0 for a free place.

        Raises:
            RefusedError: As :meth:`run`.
        """
        readings = ffi.new("long long[]", len(self) + 1)
        self._run(readings)
        return [readings[place + 1] - readings[place] if self._executions[place] else 0 for place in range(len(self))]

    def _run(self, readings: Any) -> None:
        if not self._executions:
            return
        if self._executor is None:
            self._run_here(readings)
            return
        c_status = self._executor.bl_run(
            cpu_stream().c, self._steps, len(self), self._n_flushing, self._failed, readings
        )
        if c_status:
            [failed] = filter(None, [self._executions[self._failed[0]]])  # an empty place runs nothing
            raise failed.refusal(c_status)

    def _run_here(self, readings: Any) -> None:
        for place, execution in enumerate(self._executions):
            if readings:
                readings[place] = time.monotonic_ns()
            if execution is not None:
                execution.run()
        if readings:
            readings[len(self)] = time.monotonic_ns()
