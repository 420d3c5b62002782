"""Measuring a Spec: nanoseconds of one execution, as it would be inside of a network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial

import numpy as np

from blocklayout import dnnl
from blocklayout.dnnl import Spec, arguments, processor
from blocklayout.errors import DisturbedError, DnnlError, UnsupportedError
from blocklayout.layout import MemoryDesc
from blocklayout.plan.costs.random_data import Tape, aligned, random_bytes, random_elements
from blocklayout.plan.costs.repeating import Run, Stopwatch, typical_times
from blocklayout.side_by_side import side_by_side

_MIN_COLD_NBYTES, _MAX_COLD_NBYTES = 8 << 20, 64 << 20
_PRIVATE_LEVEL = 2  # caches up to this one are each core's own, on servers

_CONSTANT = re.compile(r"weights|bias|scale|shift|mean|variance|(scale|zero_point)_.*|post_op_\d+_(weights|bias)")
_SECOND_OPERAND = re.compile(r"(post_op_\d+_)?src_1")

_UNMEASURABLE = (DnnlError, UnsupportedError, MemoryError)
_DISTURBED = (
    "no time can be measured: nearly every run was interrupted by other work on these CPUs; measure when the machine "
    "is quiet, or with fewer threads"
)


class SpecTimer:
    """Times Specs, and holds the buffers for that.

    Data are random, and weights are cold. In a network each layer's weights were used last one inference ago, and
    come from a far cache or from memory, while its sources were written by the step before; repeating one
    primitive on the same buffers finds its weights in the nearest cache, and may take half the time.

    Example:
        >>> from blocklayout import dnnl
        >>> spec = dnnl.softmax(dnnl.MemoryDesc((2, 100)), n_threads=1)
        >>> SpecTimer().time(spec) > 0
        True
    """

    def __init__(self) -> None:
        self._constants: dict[tuple[str, bool], Tape] = {}
        self._sources: dict[str, Tape] = {}
        self._room = dnnl.aligned_empty(0)

    def time(self, spec: Spec) -> float:
        """Nanoseconds of one execution on this machine; of a Spec that is not resolved, of the library's favourite.

        Raises:
            DnnlError: The primitive cannot be created or run.
            DisturbedError: Other work keeps the CPUs busy.
            MemoryError: Its tensors do not fit.
        """
        [outcome] = self.time_in_turn([spec])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def time_in_turn(self, specs: Sequence[Spec], go_on: Callable[[], bool] = lambda: True) -> list[float | Exception]:
        """Nanoseconds of one execution of each, run in turn: to be compared with each other.

        Args:
            specs: As for :meth:`time`; all for the same number of threads.
            go_on: Asked before each run; when it says no, Specs with too few runs count as disturbed.

        Returns:
            For each Spec its time, or the error that :meth:`time` would raise.
        """
        if not specs:
            return []
        try:
            times = self._times(specs, go_on)
        except _UNMEASURABLE as error:
            if len(specs) == 1:
                return [error]
            return [outcome for spec in specs for outcome in self.time_in_turn([spec], go_on)]
        return [DisturbedError(_DISTURBED) if ns is None else ns for ns in times]

    def _times(self, specs: Sequence[Spec], go_on: Callable[[], bool]) -> list[float | None]:
        with ExitStack() as stack:
            made: dict[int, _Trial] = {}

            def make(index: int) -> None:
                made[index] = stack.enter_context(closing(_Trial(specs[index])))

            n_callers = dnnl.callers_at_once(specs[0].n_threads)
            with side_by_side(make, range(len(specs)), n_callers, partial(dnnl.run_apart, n_threads=1)):
                pass
            trials = [made[index] for index in range(len(specs))]
            self._reserve(trials)
            for trial in trials:
                self._bind(trial)
            stopwatch = Stopwatch()
            calls = [partial(trial.run, stopwatch) for trial in trials]
            return dnnl.run_parallel(lambda: typical_times(calls, go_on), specs[0].n_threads)

    def _reserve(self, trials: Iterable[_Trial]) -> None:
        """Room for all that any of them reads and writes."""
        n_written = 0
        for trial in trials:
            n_written = max(n_written, sum(aligned(desc.nbytes) for desc in trial.written.values()))
            for name, desc in trial.constants.items():
                self._tape(name, desc).reserve(max(cold_nbytes(trial.spec.n_threads), aligned(desc.nbytes)))
            needed: dict[str, int] = {}
            for desc in trial.sources.values():
                needed[desc.dtype] = needed.get(desc.dtype, 0) + aligned(desc.nbytes)
            for dtype, nbytes in needed.items():
                self._sources.setdefault(dtype, Tape(random_elements(dtype))).reserve(nbytes)
        if n_written > self._room.nbytes:
            self._room = random_bytes(n_written, random_elements("f32"))  # as a network could have left

    def _bind(self, trial: _Trial) -> None:
        """Results overwrite each other; sources begin where those of other Specs do, and constants go on and on."""
        for tape in self._sources.values():
            tape.rewind()
        buffers = {name: self._sources[desc.dtype].piece(desc.nbytes) for name, desc in trial.sources.items()}
        n_taken = 0
        for name, desc in trial.written.items():
            buffers[name] = self._room[n_taken : n_taken + desc.nbytes]
            n_taken += aligned(desc.nbytes)
        trial.bind(buffers, {name: self._tape(name, desc) for name, desc in trial.constants.items()})

    def _tape(self, name: str, desc: MemoryDesc) -> Tape:
        """Random data to cut constants from; variances and scales are positive, as those of quantisers are."""
        key = (desc.dtype, name == "variance" or name.startswith("scale_"))
        if key not in self._constants:
            self._constants[key] = Tape(random_elements(desc.dtype, is_positive=key[1]))
        return self._constants[key]


class _Trial:
    """A primitive to be timed, with the descriptors of its arguments.

    Attributes:
        written: Results, the scratchpad among them.
        constants: Arguments that stay the same from inference to inference.
        sources: Arguments that the step before has written.
    """

    def __init__(self, spec: Spec) -> None:
        self._primitive = dnnl.Primitive(spec)
        self._memories: dict[str, dnnl.Memory] = {}
        self.spec = self._primitive.spec
        descs = {name: self.spec.memory_desc(name) for name, _ in self.spec.descs}
        results, constants = set(arguments.results(self.spec)), _constants(self.spec)
        self.written = {name: desc for name, desc in descs.items() if name in results}
        if self._primitive.scratchpad_nbytes:
            self.written["scratchpad"] = MemoryDesc((self._primitive.scratchpad_nbytes,), "u8")
        self.constants = {name: desc for name, desc in descs.items() if name in constants - results}
        self.sources = {name: desc for name, desc in descs.items() if name not in constants | results}

    def bind(self, buffers: Mapping[str, np.ndarray], tapes: Mapping[str, Tape]) -> None:
        """Make it ready to run: with buffers of results and sources, and tapes that each run cuts constants out of."""
        for name, desc in {**self.written, **self.sources}.items():
            self._memories[name] = dnnl.Memory(desc, buffers[name])
        for name, desc in self.constants.items():
            self._memories[name] = dnnl.Memory(desc, tapes[name].piece(desc.nbytes))
        self._execution = self._primitive.bind(self._memories)
        self._rotating = [(self._memories[name], tape, self.constants[name].nbytes) for name, tape in tapes.items()]

    def run(self, stopwatch: Stopwatch) -> Run:
        for memory, tape, nbytes in self._rotating:
            memory.rebind(tape.piece(nbytes))
        return stopwatch.time(self._execution.run)

    def close(self) -> None:
        for memory in self._memories.values():
            memory.destroy()
        self._primitive.destroy()


def cold_nbytes(n_threads: int) -> int:
    """Bytes of constants after which the first of them are in no cache any more, within bounds.

    Between two uses of a layer's weights lie those of all other layers, 100 MB of them in ResNet-50. Twice the
    largest cache, since caches do not forget strictly by age. The upper bound keeps servers from filling
    memory: their last caches are shared with others, and the weights come from afar all the same.
    """
    held = (cache.nbytes * (n_threads if cache.level <= _PRIVATE_LEVEL else 1) for cache in processor.data_caches())
    return min(max(2 * max(held, default=0), _MIN_COLD_NBYTES), _MAX_COLD_NBYTES)


def _constants(spec: Spec) -> set[str]:
    """Arguments that stay the same from inference to inference, as far as a Spec can tell.

    A second operand that is broadcast is one as a rule; one as large as the result is another activation.
    """
    names = {name for name, _ in spec.descs if _CONSTANT.fullmatch(name)}
    if spec.has("dst"):
        n_results = spec.memory_desc("dst").n_elements
        seconds = (name for name, _ in spec.descs if _SECOND_OPERAND.fullmatch(name))
        names |= {name for name in seconds if spec.memory_desc(name).n_elements < n_results}
    return names
