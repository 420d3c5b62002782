"""Executable: steps bound to their memories once, to run many times; and Stop, which ends a run between two steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from blocklayout.dnnl import library
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.execution import Execution
from blocklayout.dnnl.handles import cpu_stream
from blocklayout.dnnl.memory import ALIGNMENT, Memory, aligned_empty
from blocklayout.dnnl.native import native
from blocklayout.dnnl.threads import lack_of_threads, run_parallel, team, wake_team
from blocklayout.errors import DeadlineExceededError, StoppedError

if TYPE_CHECKING:
    Times = list[int] | None
    After = Callable[[int, Any], None] | None


class Step(Protocol):
    """A step that the library does not compute."""

    def run(self) -> None:
        """Run it once."""


class Bindable(Protocol):
    """A memory that can be put to another buffer."""

    def rebind(self, buffer: np.ndarray) -> None:
        """Put it to another buffer."""

    def release(self) -> None:
        """Let go of the buffer."""


_NOTHING = (ffi.NULL, ffi.NULL, ffi.NULL, 0, 0)
_FIRST = slice(0, 1)
_NO_THREADS = -1  # BL_NO_THREADS
_UINT8 = np.dtype(np.uint8)
_empty, _from_buffer = np.empty, ffi.from_buffer


class Stop:
    """Whether a run is to end before its next step: since somebody asked for it, or since its deadline has passed.

    Attributes:
        c: The executor's own.
        deadline_ns: By the monotonic clock; 0 if there is none.

    Example:
        >>> from blocklayout import dnnl
        >>> stop = dnnl.Stop()
        >>> stop.ask()
        >>> stop.is_asked, stop.is_overdue
        (True, False)
    """

    def __init__(self, deadline_ns: int = 0) -> None:
        self.c = ffi.new("bl_stop_t *", (0, deadline_ns))
        self.deadline_ns = deadline_ns

    def ask(self) -> None:
        """Have the run end before its next step."""
        self.c.is_asked = 1

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked."""
        return bool(self.c.is_asked)

    @property
    def is_overdue(self) -> bool:
        """Whether the deadline has passed."""
        return 0 < self.deadline_ns <= time.monotonic_ns()

    def check(self) -> None:
        """Raise a StoppedError if somebody has asked, a DeadlineExceededError if the deadline has passed."""
        if self.c.is_asked:
            raise StoppedError("the run was stopped before its last step")
        if self.is_overdue:
            raise DeadlineExceededError("the deadline passed before the run was done")


class Executable:
    """Steps bound to their memories once, to run many times on other buffers.

    Steps of the library in a row are one call into C: it makes parallel regions ``n_threads`` wide, puts memories to
    the buffers of this run, executes, and puts them to nothing. Meanwhile other Python threads go on, and denormals are
    zero on all threads that compute: arithmetic on them may be a hundred times slower. Each thread's own mode is back
    afterwards. Without a compiler, Python does the same step by step, and leaves denormals as they are. Regions of a
    step are narrower where its Spec says so and our own team computes.

    One thread at a time may run it, and others that share memories with it.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> desc = bl.MemoryDesc((4,))
        >>> relu = dnnl.Primitive(dnnl.eltwise(desc, algorithm="relu"))
        >>> results = relu.run({"src": np.float32([-1, 0, 1, 2]).view(np.uint8)})  # by an Executable of one step
        >>> results["dst"].view(np.float32)
        array([0., 0., 1., 2.], dtype=float32)
    """

    def __init__(
        self,
        steps: Sequence[Execution | Step | None],
        n_threads: int,
        *,
        given: Iterable[Iterable[Bindable]] = (),
        fresh: Iterable[tuple[int, Iterable[Bindable]]] = (),
        keeps_denormals: bool = False,
    ) -> None:
        """Bind them.

        Args:
            steps: In order; ``None`` takes no time.
            n_threads: Threads that compute, the caller among them.
            given: For each buffer that a run takes, the memories that are put to it.
            fresh: For each buffer that a run allocates, its size in bytes and the memories that are put to it.
            keeps_denormals: Whether they stay as they are.
        """
        allocated = [(nbytes, tuple(memories)) for nbytes, memories in fresh]
        self._steps = tuple(steps)
        self._n_threads = n_threads
        self._memories = (*(tuple(memories) for memories in given), *(memories for _, memories in allocated))
        self._fresh_nbytes = tuple(nbytes for nbytes, _ in allocated)
        self._keeps_denormals = keeps_denormals
        self._parts: tuple[Executable | Execution | Step | None, ...] | None = None
        code = native()
        if code is None:
            self._parts = self._steps
        elif all(isinstance(step, Execution | None) for step in self._steps):
            self._compile(code, cast("Sequence[Execution | None]", self._steps))
        else:
            self._parts = tuple(self._split())

    def run(
        self, buffers: Sequence[np.ndarray] = (), times: Times = None, after: After = None, stop: Stop | None = None
    ) -> list[np.ndarray]:
        """Run every step once.

        Args:
            buffers: Arrays whose bytes, from the first element on, reach as far as the memories they are for.
            times: Gets the nanoseconds of each step, 0 for ``None``.
            after: Called after each step with its number and itself, memories bound. Python runs the steps then.
            stop: Looked at before each step.

        Returns:
            The buffers that it allocates, 64-byte aligned. Shape (nbytes,), uint8.

        Raises:
            RefusedError: The library refused a step; those behind it did not run.
            StoppedError: ``stop`` was asked to end it; those behind did not run.
            DeadlineExceededError: The deadline of ``stop`` passed; likewise.
        """
        if after is not None:
            return self._run_parts(self._steps, buffers, times, after, stop)
        if self._parts is not None:
            return self._run_parts(self._parts, buffers, times, None, stop)
        c_buffers, place = self._c_buffers, 0
        for buffer in buffers:
            try:
                c_buffers[place] = _from_buffer(buffer)
            except ValueError:  # it has holes; its first element is at its beginning, and has none
                c_buffers[place] = _from_buffer(buffer[(_FIRST,) * buffer.ndim])
            place += 1
        made = []
        for nbytes in self._fresh_nbytes:
            raw = _empty(nbytes + ALIGNMENT, _UINT8)
            c_buffers[place] = _from_buffer(raw)
            place += 1
            made.append(raw)
        c_stop = ffi.NULL if stop is None else stop.c
        if times is None:
            c_status = self._call(self._c_program, c_stop, ffi.NULL)
        else:
            readings = ffi.new("long long[]", len(self._steps) + 1)
            c_status = self._call(self._c_program, c_stop, readings)
            times += [readings[number + 1] - readings[number] if step else 0 for number, step in enumerate(self._steps)]
        if stop is not None:
            stop.check()
        if c_status:
            raise self._failure(c_status)
        for place, nbytes in enumerate(self._fresh_nbytes):
            gap = self._c_gaps[place]
            made[place] = made[place][gap : gap + nbytes]
        return made

    def caller(
        self, outputs: Sequence[tuple[tuple[int, ...], np.dtype]]
    ) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None:
        """The shortest way to run it: milliseconds of a run leave nothing of the code around it in the caches.

        ``outputs`` are extents and types of the arrays that are made for the last buffers it takes.

        Returns:
            Runs every step once on the other buffers, and returns these arrays; raises as :meth:`run`. ``None`` where a
            run is several calls, or allocates buffers.
        """
        if self._parts is not None or self._fresh_nbytes:
            return None
        call, c_buffers, c_program, c_nothing = self._call, self._c_buffers, self._c_program, ffi.NULL

        def run(buffers: Sequence[np.ndarray]) -> list[np.ndarray]:
            place, made = 0, []
            for buffer in buffers:
                try:
                    c_buffers[place] = _from_buffer(buffer)
                except ValueError:  # as in run
                    c_buffers[place] = _from_buffer(buffer[(_FIRST,) * buffer.ndim])
                place += 1
            for extents, dtype in outputs:
                array = _empty(extents, dtype)
                c_buffers[place] = _from_buffer(array)
                place += 1
                made.append(array)
            c_status = call(c_program, c_nothing, c_nothing)
            if c_status:
                raise self._failure(c_status)
            return made

        return run

    def _failure(self, c_status: int) -> Exception:
        if c_status == _NO_THREADS:
            return lack_of_threads(self._n_threads)
        refusal: Exception = self._steps[self._c_program.failed].refusal(c_status)
        return refusal

    def _compile(self, code: Any, steps: Sequence[Execution | None]) -> None:
        """Lay it out in C."""
        has_team = team() is not None
        self._c_steps = ffi.new("bl_step_t[]", [step.c_step if step else _NOTHING for step in steps])
        self._c_bindings = ffi.new(
            "bl_binding_t[]",
            [
                (memory.c, place, memory.desc.offset0 * memory.desc.itemsize)
                for place, memories in enumerate(self._memories)
                for memory in cast("tuple[Memory, ...]", memories)
            ],
        )
        self._c_buffers = ffi.new("char *[]", len(self._memories))
        self._c_gaps = ffi.new("int[]", len(self._fresh_nbytes))
        n_flushing = (
            1 if library.is_sequential() or has_team else self._n_threads
        )  # workers of a team do as their caller
        flush_threads = 0 if self._keeps_denormals else n_flushing
        self._c_modes = ffi.new("unsigned[]", flush_threads)
        self._c_program = ffi.new(
            "bl_program_t *",
            {
                "stream": cpu_stream().c,
                "set_data": ffi.cast("bl_set_data_t", library.load().dnnl_memory_set_data_handle),
                "steps": self._c_steps,
                "bindings": self._c_bindings,
                "buffers": self._c_buffers,
                "gaps": self._c_gaps,
                "n_given": len(self._memories) - len(self._fresh_nbytes),
                "n_fresh": len(self._fresh_nbytes),
                "n_steps": len(self._steps),
                "n_bindings": len(self._c_bindings),
                "n_threads": self._n_threads if has_team else 0,
                "flush_threads": flush_threads,
                "modes": self._c_modes,
            },
        )
        self._call = code.bl_run if has_team else partial(_call_in_parallel, code.bl_run, self._n_threads)

    def _split(self) -> Iterator[Executable | Step | None]:
        """Steps of the library in a row as one part that binds their memories, others each as their own."""
        for is_native, steps in groupby(self._steps, lambda step: isinstance(step, Execution | None)):
            if is_native:
                part = cast("list[Execution | None]", [*steps])
                read = {id(memory) for step in part if step for memory in step.memories.values()}
                given = [[memory for memory in memories if id(memory) in read] for memories in self._memories]
                yield Executable(part, self._n_threads, given=given, keeps_denormals=self._keeps_denormals)
            else:
                yield from steps

    def _run_parts(
        self,
        parts: Sequence[Executable | Execution | Step | None],
        buffers: Sequence[np.ndarray],
        times: Times,
        after: After,
        stop: Stop | None,
    ) -> list[np.ndarray]:
        made = [aligned_empty(nbytes) for nbytes in self._fresh_nbytes]
        bound = [*buffers, *made]
        is_split = any(isinstance(part, Executable) for part in parts)
        by_hand = [
            (memory, buffer)
            for memories, buffer in zip(self._memories, bound, strict=True)
            for memory in memories
            if not (is_split and isinstance(memory, Memory))  # the library's are bound by these
        ]

        def run() -> None:
            wake_team()
            for memory, buffer in by_hand:
                memory.rebind(buffer)
            for number, part in enumerate(parts):
                _run_part(part, bound, times, stop)
                if after is not None and part is not None:
                    after(number, part)

        try:
            run_parallel(run, self._n_threads)
        finally:
            for memory, _ in by_hand:
                memory.release()
        return made


def _run_part(
    part: Executable | Execution | Step | None, buffers: Sequence[np.ndarray], times: Times, stop: Stop | None
) -> None:
    if isinstance(part, Executable):
        part.run(buffers, times, None, stop)
        return
    if stop is not None:
        stop.check()
    start = time.monotonic_ns()
    if part is not None:
        part.run()
    if times is not None:
        times.append(time.monotonic_ns() - start if part is not None else 0)


def _call_in_parallel(c_function: Any, n_threads: int, *c_args: Any) -> int:
    return int(run_parallel(lambda: c_function(*c_args), n_threads))
