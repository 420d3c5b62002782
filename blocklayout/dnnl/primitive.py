"""Primitive: code for one Spec, to be bound to memories or called with numpy arrays."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from blocklayout.dnnl import arguments, own
from blocklayout.dnnl.executable import Executable
from blocklayout.dnnl.execution import Execution, check_memories, scratchpad_desc
from blocklayout.dnnl.handles import create
from blocklayout.dnnl.memory import Memory, aligned_empty
from blocklayout.dnnl.primitives import validate
from blocklayout.dnnl.resolution import open_pd, refused, resolve
from blocklayout.dnnl.threads import run_parallel
from blocklayout.errors import DnnlError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.own import Kernel
    from blocklayout.dnnl.primitive_desc import Resolved
    from blocklayout.dnnl.spec import Spec

_MAX_IDLE = 4
"""Executables that are kept for threads that run one primitive at the same time."""


class _Scratch(threading.local):
    """A thread's scratchpad, as large as the largest it has needed."""

    def __init__(self) -> None:
        self.buffer = np.empty(0, np.uint8)

    def of(self, nbytes: int) -> np.ndarray:
        if self.buffer.nbytes < nbytes:
            self.buffer = aligned_empty(nbytes)
        return self.buffer


_scratch = _Scratch()


class Primitive:
    """One primitive, compiled.

    Called with numpy arrays in logical shape, whatever their strides, it reorders them into the
    layouts it wants, computes, and returns the result as a plain array:

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

    __slots__ = ("_handle", "_idle", "scratchpad_nbytes", "spec")

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
            memories = {**memories, "scratchpad": Memory.empty(scratchpad_desc(self.scratchpad_nbytes))}
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
        from blocklayout.dnnl.numpy_call import call_with_arrays

        return call_with_arrays(self, arrays)

    def compute(self, **arguments: Any) -> dict[str, Memory]:
        """Compute, and leave the results in the primitive's own layouts.

        Args:
            arguments: As for a call; a Memory given for a result, of exactly its descriptor, receives it.

        Returns:
            The results by argument.

        Raises:
            InvalidArgumentsError: An argument is missing, unknown, or of another shape or data type.
        """
        from blocklayout.dnnl.numpy_call import compute

        return compute(self, arguments)

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
            memories["scratchpad"] = Memory(scratchpad_desc(primitive.scratchpad_nbytes))
        self._results = arguments.results(spec)
        self._sources = {name: memory for name, memory in memories.items() if name not in self._results}
        self._executable = Executable(
            [primitive.bind(memories)],
            spec.n_threads,
            given=[[memory] for memory in self._sources.values()],
            fresh=[(memories[name].nbytes, [memories[name]]) for name in self._results],
            keeps_denormals=spec.kind == "reorder",  # values stay
        )

    def run(self, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = []
        for name, memory in self._sources.items():
            buffer = _scratch.of(memory.nbytes) if name == "scratchpad" else buffers[name]
            memory.check(buffer)
            given.append(buffer)
        return dict(zip(self._results, self._executable.run(given), strict=True))


def _compile(spec: Spec) -> tuple[Handle | Kernel, Resolved]:
    while True:
        try:
            return _created(spec)
        except RefusedError:
            if spec.impl:
                raise


def _created(spec: Spec) -> tuple[Handle | Kernel, Resolved]:
    asked = spec
    try:
        if ours := own.implementation(spec.impl):
            resolved = resolve(spec)
            return ours.kernel(resolved.spec), resolved
        pd, resolved = open_pd(spec)
        asked = resolved.spec
        handle = create("primitive", "dnnl_primitive_create", pd.c, subject=asked)
    except DnnlError as error:
        if asked.is_resolved:
            raise refused(asked, "create", error) from error
        raise
    pd.destroy()  # the primitive holds a copy
    return handle, resolved
