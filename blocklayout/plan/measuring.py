"""Measuring a Spec: nanoseconds of one execution, as it would be inside of a network."""

from __future__ import annotations

import re
from itertools import cycle
from typing import TYPE_CHECKING

from blocklayout import dnnl
from blocklayout.dnnl import arguments, processor
from blocklayout.layout import MemoryDesc
from blocklayout.plan.random_data import Tape, aligned, fill, random_elements
from blocklayout.plan.repeating import MAX_RUNS, Run, Stopwatch, typical_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from blocklayout.dnnl import Execution, Spec

    NextBuffer = Callable[[], np.ndarray]

_MIN_COLD_NBYTES, _MAX_COLD_NBYTES = 8 << 20, 64 << 20
_PRIVATE_LEVEL = 2  # caches up to this one are each core's own, on servers

_CONSTANT = re.compile(r"weights|bias|scale|shift|mean|variance|(scale|zero_point)_.*|post_op_\d+_(weights|bias)")
_SECOND_OPERAND = re.compile(r"(post_op_\d+_)?src_1")


class SpecTimer:
    """Times one Spec after another, and holds the buffers for that.

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
        self._constants: dict[str, Tape] = {}
        self._sources: dict[str, Tape] = {}
        self._room = dnnl.aligned_empty(0)
        self._n_taken = 0

    def time(self, spec: Spec) -> float:
        """Nanoseconds of one execution on this machine.

        Args:
            spec: Resolved, or what the library makes of it is timed.

        Raises:
            DnnlError: The primitive cannot be created or run.
            DisturbedError: Other work keeps the CPUs busy.
            MemoryError: Its tensors do not fit.
        """
        primitive = dnnl.Primitive(spec)
        memories: dict[str, dnnl.Memory] = {}
        try:
            rotating = self._make_memories(primitive, memories)
            execution = primitive.bind(memories)
            return dnnl.run_parallel(lambda: _typical_ns(execution, rotating), spec.n_threads)
        finally:
            for memory in memories.values():
                memory.destroy()
            primitive.destroy()

    def _make_memories(self, primitive: dnnl.Primitive, memories: dict[str, dnnl.Memory]) -> dict[str, NextBuffer]:
        """Fills ``memories``, and gives the next buffer of each argument that takes another for each run."""
        spec = primitive.spec
        descs = {name: spec.memory_desc(name) for name, _ in spec.descs}
        written, constant = set(arguments.results(spec)), _constants(spec)
        self._begin([desc for name, desc in descs.items() if name not in constant], primitive.scratchpad_nbytes)
        rotating: dict[str, NextBuffer] = {}
        for name, desc in descs.items():
            if name in written:
                buffer = self._result(desc, is_read=_accumulates(spec))
            elif name in constant:
                rotating[name] = self._constant(name, desc, cold_nbytes(spec.n_threads))
                buffer = rotating[name]()
            else:
                buffer = self._source(desc)
            memories[name] = dnnl.Memory(desc, buffer)
        if primitive.scratchpad_nbytes:
            desc = MemoryDesc((primitive.scratchpad_nbytes,), "u8")
            memories["scratchpad"] = dnnl.Memory(desc, self._take(desc.nbytes))
        return rotating

    def _begin(self, descs: Iterable[MemoryDesc], scratchpad_nbytes: int) -> None:
        """Room for everything that is written, and for all sources without overlap."""
        needed = {"u8": aligned(scratchpad_nbytes)}
        for desc in descs:
            needed[desc.dtype] = needed.get(desc.dtype, 0) + aligned(desc.nbytes)
            self._sources.setdefault(desc.dtype, Tape(random_elements(desc.dtype)))
        for dtype, tape in self._sources.items():
            tape.reserve(needed.get(dtype, 0))
            tape.rewind()
        self._n_taken = 0
        if sum(needed.values()) > self._room.nbytes:
            self._room = dnnl.aligned_empty(sum(needed.values()))

    def _take(self, nbytes: int) -> np.ndarray:
        start, self._n_taken = self._n_taken, self._n_taken + aligned(nbytes)
        return self._room[start : start + nbytes]

    def _result(self, desc: MemoryDesc, *, is_read: bool) -> np.ndarray:
        buffer = self._take(desc.nbytes)
        if is_read:
            fill(buffer, desc)
        return buffer

    def _source(self, desc: MemoryDesc) -> np.ndarray:
        if not desc.n_padding:
            return self._sources[desc.dtype].piece(desc.nbytes)
        buffer = self._take(desc.nbytes)
        fill(buffer, desc)
        return buffer

    def _constant(self, name: str, desc: MemoryDesc, far_nbytes: int) -> NextBuffer:
        """Buffers that were last touched so many bytes of constants ago.

        They are taken from one long tape that goes round and round, Spec after Spec, so that not even small ones
        are met again while they are near. What cannot be cut out of it gets copies: padding is zero, and variances
        are positive.
        """
        tape = self._constants.setdefault(desc.dtype, Tape(random_elements(desc.dtype)))
        tape.reserve(max(far_nbytes, aligned(desc.nbytes)))
        is_positive = name == "variance"
        if not desc.n_padding and not is_positive:
            return lambda: tape.piece(desc.nbytes)
        copies = _copies(desc, far_nbytes, is_positive=is_positive)
        tape.piece(far_nbytes).max()  # reading as much as the caches hold puts the copies out of them
        return cycle(copies).__next__


def time_spec(spec: Spec) -> float:
    """Nanoseconds of one execution on this machine, on random data and with cold weights.

    For many Specs one :class:`SpecTimer` is faster.

    Raises:
        DnnlError: The primitive cannot be created or run.
        DisturbedError: Other work keeps the CPUs busy.
    """
    return SpecTimer().time(spec)


def cold_nbytes(n_threads: int) -> int:
    """Bytes of constants after which the first of them are in no cache any more, within bounds.

    Between two uses of a layer's weights lie those of all other layers, 100 MB of them in ResNet-50. Twice what the
    largest cache holds, since caches do not forget strictly by age. The upper bound keeps servers from filling
    memory: their last caches are shared with others, and the weights come from afar all the same.
    """
    held = (cache.nbytes * (n_threads if cache.level <= _PRIVATE_LEVEL else 1) for cache in processor.data_caches())
    return min(max(2 * max(held, default=0), _MIN_COLD_NBYTES), _MAX_COLD_NBYTES)


def _copies(desc: MemoryDesc, far_nbytes: int, *, is_positive: bool) -> list[np.ndarray]:
    """As many as there are runs, or as reach far enough."""
    n_copies = min(MAX_RUNS + 1, -(-far_nbytes // desc.nbytes))
    copies = [dnnl.aligned_empty(desc.nbytes) for _ in range(n_copies)]
    fill(copies[0], desc, is_positive=is_positive)
    for copy in copies[1:]:
        copy[...] = copies[0]
    return copies


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


def _accumulates(spec: Spec) -> bool:
    return any(isinstance(post_op, dnnl.Sum) for post_op in spec.attr.post_ops)


def _typical_ns(execution: Execution, rotating: dict[str, NextBuffer]) -> float:
    stopwatch = Stopwatch()

    def once() -> Run:
        for name, next_buffer in rotating.items():
            execution.memories[name].rebind(next_buffer())
        return stopwatch.time(execution.run)

    return typical_ns(once)
