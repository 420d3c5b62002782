"""Primitive: code for one Spec, to be bound to memories or called with numpy arrays."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from blocklayout.dnnl import enums, own
from blocklayout.dnnl.arguments import results as _results
from blocklayout.dnnl.executable import Executable
from blocklayout.dnnl.execution import Execution, check_memories
from blocklayout.dnnl.handles import Handle, create
from blocklayout.dnnl.known_bugs import leaves_code_behind
from blocklayout.dnnl.memory import Memory, aligned_empty
from blocklayout.dnnl.own import OwnPrimitive
from blocklayout.dnnl.primitive_desc import Resolved
from blocklayout.dnnl.primitives import has_library_primitive, validate
from blocklayout.dnnl.primitives.eltwise import eltwise
from blocklayout.dnnl.primitives.reorder import reorder
from blocklayout.dnnl.resolution import open_pd, refused, resolve
from blocklayout.dnnl.spec import Spec
from blocklayout.dnnl.threads import run_apart, run_parallel
from blocklayout.dtypes import from_numpy, to_numpy
from blocklayout.errors import DnnlError, InvalidArgumentsError, LayoutError, RefusedError
from blocklayout.layout import MemoryDesc

_MAX_IDLE = 4
"""Executables that are kept for threads that run one primitive at the same time."""

_NARROW_FLOATS = ("bf16", "f16")
_LOST = (enums.value("status", "out_of_memory"), enums.value("status", "runtime_error"))
_MAX_REORDERS = 64
_MAX_LASTING = 1024


class _Scratch(threading.local):
    """A thread's scratchpad, as large as the largest it has needed."""

    buffer = np.empty(0, np.uint8)

    def of(self, nbytes: int) -> np.ndarray:
        if self.buffer.nbytes < nbytes:
            self.buffer = aligned_empty(nbytes)
        return self.buffer


_scratch = _Scratch()


class Primitive:
    """One primitive, compiled.

    Called with numpy arrays in logical shape, of any strides, it reorders them into the layouts it
    wants, computes, and returns the result as a plain array:

    Example:
        >>> import numpy as np
        >>> from blocklayout import dnnl
        >>> src, weights = dnnl.AnyDesc((1, 3, 8, 8)), dnnl.AnyDesc((16, 3, 3, 3))
        >>> conv = dnnl.Primitive(dnnl.convolution(src, weights, pads=1))
        >>> y = conv(src=np.ones((1, 3, 8, 8), np.float32), weights=np.ones((16, 3, 3, 3), np.float32))
        >>> y.shape, float(y[0, 0, 4, 4])
        ((1, 16, 8, 8), 27.0)

    Where the bytes should stay as they are, give and get :class:`Memory`:
    ``conv.compute(src=memory, weights=w)["dst"]`` has the layout ``conv.spec.desc("dst")``, and
    ``conv.bind({...}).run()`` is the bare call, ``conv.run({...})`` one on the bytes of arrays.

    Attributes:
        spec: Resolved: implementation, and every descriptor.
        scratchpad_nbytes: Bytes it needs while it runs.

    Raises:
        UnimplementedError: oneDNN offers nothing for it on this CPU.
        RefusedError: It does not create the implementation that the Spec names. Where the Spec names none, the next
            one is taken.
    """

    __slots__ = ("__weakref__", "_handle", "_idle", "scratchpad_nbytes", "spec")

    def __init__(self, spec: Spec) -> None:
        validate(spec)
        self._handle, resolved = run_parallel(lambda: _compile(spec), spec.n_threads)
        self.spec = resolved.spec
        self.scratchpad_nbytes = resolved.scratchpad_nbytes
        self._idle: deque[_Bound] = deque(maxlen=_MAX_IDLE)

    def bind(self, memories: Mapping[str, Memory]) -> Execution:
        """The primitive with its arguments, ready to run.

        Args:
            memories: By argument, each of exactly the descriptor in ``spec``. ``scratchpad``, of at
                least ``scratchpad_nbytes``, is made if it is needed and not given.

        Raises:
            InvalidArgumentsError: An argument is missing, unknown, or of another descriptor.
        """
        check_memories(self.spec, self.scratchpad_nbytes, memories)
        if self.scratchpad_nbytes and "scratchpad" not in memories:
            memories = {**memories, "scratchpad": Memory.empty(MemoryDesc((self.scratchpad_nbytes,), "u8"))}
        return Execution(self._handle, self.spec, memories)

    def run(self, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Execute it once, on bytes in the layouts of ``spec``; several threads may do so at the same time.

        Args:
            buffers: For each argument that it reads, an array whose bytes reach as far as the argument's descriptor.

        Returns:
            For each result its bytes, 64-byte aligned. Shape (nbytes,), uint8.

        Raises:
            InvalidArgumentsError: A buffer is too small.
            RefusedError: The library refused.
        """
        try:
            bound = self._idle.pop()  # one call of the interpreter: no other thread gets the same
        except IndexError:
            bound = _Bound(self)
        results = bound.run(buffers)
        self._idle.append(bound)
        return results

    def __call__(self, **arrays: Any) -> np.ndarray | dict[str, np.ndarray]:
        """Compute with numpy arrays.

        Args:
            arrays: By argument: arrays in logical shape, in the argument's data type (f32 also where it is
                bf16 or f16), lists and numbers, or Memories. ``dst`` only with a sum post-op, which adds to it.

        Returns:
            The result as a fresh row-major array; a dict by argument where there are several.

        Raises:
            InvalidArgumentsError: An argument is missing, unknown, or of another shape or data type.
        """
        made = {name: _to_plain(memory, self.spec.n_threads) for name, memory in self.compute(**arrays).items()}
        return next(iter(made.values())) if len(made) == 1 else made

    def compute(self, **arguments: Any) -> dict[str, Memory]:
        """Compute, and leave the results in the primitive's own layouts.

        Args:
            arguments: As for a call; a Memory given for a result, of exactly its descriptor, receives it.

        Returns:
            The results by argument.

        Raises:
            InvalidArgumentsError: An argument is missing, unknown, or of another shape or data type.
        """
        results, names = _results(self.spec), [name for name, _ in self.spec.descs]
        for name in arguments:
            if name not in names:
                raise InvalidArgumentsError(f"{self.spec.kind}: no argument {name!r}; it takes {', '.join(names)}")
        memories = {name: _argument(self.spec, name, arguments.get(name), results) for name in names}
        _executable(self, memories).run()
        return {name: memories[name] for name in results}

    def destroy(self) -> None:
        """Destroys the code now; nothing it was bound to may run any more."""
        self._handle.destroy()

    def __repr__(self) -> str:
        return f"Primitive({self.spec})"


class _Bound:
    """A primitive bound to memories of its own, for one thread at a time; they hold no buffers between two runs."""

    def __init__(self, primitive: Primitive) -> None:
        spec = primitive.spec
        memories = {name: Memory(spec.memory_desc(name)) for name, _ in spec.descs}
        if primitive.scratchpad_nbytes:
            memories["scratchpad"] = Memory(MemoryDesc((primitive.scratchpad_nbytes,), "u8"))
        self._results = _results(spec)
        self._sources = {name: memory for name, memory in memories.items() if name not in self._results}
        given = [[memory] for memory in self._sources.values()]
        fresh = [(memories[name].nbytes, [memories[name]]) for name in self._results]
        self._executable = _executable(primitive, memories, given=given, fresh=fresh)

    def run(self, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = []
        for name, memory in self._sources.items():
            buffer = _scratch.of(memory.nbytes) if name == "scratchpad" else buffers[name]
            memory.check(buffer)
            given.append(buffer)
        return dict(zip(self._results, self._executable.run(given), strict=True))


def _executable(primitive: Primitive, memories: Mapping[str, Memory], **buffers: Any) -> Executable:
    spec = primitive.spec
    keeps_denormals = spec.kind == "reorder"  # values stay
    return Executable([primitive.bind(memories)], spec.n_threads, keeps_denormals=keeps_denormals, **buffers)


def _compile(spec: Spec) -> tuple[Handle | OwnPrimitive, Resolved]:
    while True:
        try:
            return _created(spec)
        except RefusedError:
            if spec.impl:
                raise


def _created(spec: Spec) -> tuple[Handle | OwnPrimitive, Resolved]:
    if not has_library_primitive(spec):
        spec = resolve(spec).spec
    asked = spec
    try:
        if ours := own.implementation(spec.impl):
            resolved = resolve(spec)
            return ours.create(resolved.spec), resolved
        pd, resolved = open_pd(spec)
        asked = resolved.spec
        handle = _with_code(pd, asked)
    except DnnlError as error:
        if asked.is_resolved:
            raise refused(asked, "create", error) from error
        raise
    pd.destroy()  # the primitive holds a copy
    return handle, resolved


def _with_code(pd: Handle, spec: Spec) -> Handle:
    """The library's primitive; made once more where there was no memory for its code, which may be there by now.

    Convolutions by brgemm do not notice that their code was not made, and end the process when they run; a small
    primitive behind each of them does, since a thread that has failed once makes no more code.
    """

    def make() -> Handle:
        made = create("primitive", "dnnl_primitive_create", pd.c, subject=spec)
        if "brg" in spec.impl:
            smallest = _smallest()  # held: another thread may have made one at the same time
            create("primitive", "dnnl_primitive_create", smallest.c, subject=spec)
        return made

    try:
        return run_apart(make, spec.n_threads)
    except DnnlError as error:
        if error.status not in _LOST:
            raise
    return run_apart(make, spec.n_threads)


@lru_cache(maxsize=1)
def _smallest() -> Handle:
    return open_pd(eltwise(MemoryDesc((1,)), algorithm="relu", n_threads=1))[0]


def _argument(spec: Spec, name: str, value: Any, results: tuple[str, ...]) -> Memory:
    desc = spec.memory_desc(name)
    is_added_to = name == "dst" and spec.attr.has_sum
    if value is None and (name not in results or is_added_to):
        rule = "is missing, and the sum post-op adds to it" if is_added_to else "is missing"
        raise InvalidArgumentsError(f"{spec.kind}: {name} {rule}; give an array of {desc.dtype} {desc.dims}")
    if name not in results:
        return _to_memory(spec, name, value)
    if value is None:
        return Memory.empty(desc)
    if isinstance(value, Memory):
        return value
    if is_added_to:
        return _copy_to(desc, _to_memory(spec, name, value), spec.n_threads)
    raise InvalidArgumentsError(f"{spec.kind}: {name} is a result; leave it out, or give a Memory of {desc} to hold it")


def _to_memory(spec: Spec, name: str, value: Any) -> Memory:
    """The argument in the layout of the Spec: without a copy where it is in it."""
    desc = spec.memory_desc(name)
    memory = value if isinstance(value, Memory) else _of_array(f"{spec.kind}: {name}", value, desc)
    if memory.desc.dims != desc.dims:
        raise InvalidArgumentsError(f"{spec.kind}: {name} has extents {memory.desc.dims}; it takes {desc.dims}")
    return memory if memory.desc.physically_equal(desc) else _copy_to(desc, memory, spec.n_threads)


def _of_array(said: str, value: Any, desc: MemoryDesc) -> Memory:
    """A Memory of an argument that is an array, a list or a number; ``said`` begins messages."""
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value, to_numpy(desc.dtype))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentsError(f"{said} is no array of {desc.dtype} {desc.dims}: {error}") from error
    _check_dtype(said, array, desc)
    if array.shape != desc.dims:
        if not array.size == math.prod(desc.dims) == 1:
            raise InvalidArgumentsError(f"{said} has shape {array.shape}; it takes {desc.dims}")
        array = array.reshape(desc.dims)
    try:
        return Memory(MemoryDesc.from_array(array), array)
    except LayoutError:  # strides, or an order of bytes, that no descriptor has
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        return Memory(MemoryDesc.from_array(array), array)


def _check_dtype(said: str, array: np.ndarray, desc: MemoryDesc) -> None:
    try:
        dtype = from_numpy(array.dtype)
    except ValueError as error:
        raise InvalidArgumentsError(f"{said}: {error}") from error
    if dtype == desc.dtype or (dtype == "f32" and desc.dtype in _NARROW_FLOATS):
        return
    wanted = "ml_dtypes.bfloat16" if desc.dtype == "bf16" else f"np.{to_numpy(desc.dtype).name}"
    raise InvalidArgumentsError(f"{said} is {dtype}; it takes {desc.dtype}: convert it with .astype({wanted})")


def _copy_to(desc: MemoryDesc, memory: Memory, n_threads: int) -> Memory:
    copy = Memory.empty(desc)
    if math.prod(desc.dims):
        _executable(_reorder(memory.desc, desc, n_threads), {"src": memory, "dst": copy}).run()
    return copy


@lru_cache(maxsize=_MAX_REORDERS)
def _reorder(src: MemoryDesc, dst: MemoryDesc, n_threads: int) -> Primitive:
    return Primitive(reorder(src, dst, n_threads=n_threads))


def primitive_of(spec: Spec) -> Primitive:
    """The primitive of a resolved Spec, to run in several threads at once, and not to be destroyed.

    The same as long as anything holds it: plans of a run-off, and streams, share most of theirs. One that leaves code
    behind stays for good: sessions that come and go would leave it each time. It takes its memory for good anyway.

    Raises:
        RefusedError: As :class:`Primitive`.

    Example:
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> desc = bl.MemoryDesc((4,))
        >>> resolved = dnnl.resolve(dnnl.eltwise(desc, algorithm="relu"))
        >>> dnnl.primitive_of(resolved.spec) is dnnl.primitive_of(resolved.spec)
        True
    """
    if leaves_code_behind(spec):
        return _lasting(spec)
    made = _held.get(spec)
    if made is None:
        made = _held[spec] = Primitive(spec)
    return made


_held: WeakValueDictionary[Spec, Primitive] = WeakValueDictionary()


@lru_cache(maxsize=_MAX_LASTING)
def _lasting(spec: Spec) -> Primitive:
    return Primitive(spec)


def _to_plain(memory: Memory, n_threads: int) -> np.ndarray:
    desc = memory.desc
    plain = MemoryDesc(desc.dims, desc.dtype)
    if not (desc.physically_equal(plain) and isinstance(memory.buffer, np.ndarray)):
        memory = _copy_to(plain, memory, n_threads)
    buffer = memory.buffer
    if not isinstance(buffer, np.ndarray):
        raise TypeError(f"{memory} was bound to an address; give it an array")
    return buffer.view(np.uint8).reshape(-1)[: plain.nbytes].view(to_numpy(desc.dtype)).reshape(desc.dims)
