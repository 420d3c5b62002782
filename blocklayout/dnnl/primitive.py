"""Primitive: code for one Spec, to be bound to memories or called with numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blocklayout.dnnl import own
from blocklayout.dnnl.execution import Execution, check_memories, scratchpad_desc
from blocklayout.dnnl.handles import create
from blocklayout.dnnl.memory import Memory
from blocklayout.dnnl.primitives import validate
from blocklayout.dnnl.resolution import open_pd, refused, resolve
from blocklayout.dnnl.threads import run_parallel
from blocklayout.errors import DnnlError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from blocklayout.dnnl.handles import Handle
    from blocklayout.dnnl.own import Kernel
    from blocklayout.dnnl.primitive_desc import Resolved
    from blocklayout.dnnl.spec import Spec


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
    ``conv.bind({...}).run()`` is the bare call.

    Attributes:
        spec: Resolved: implementation, and every descriptor.
        scratchpad_nbytes: Bytes it needs while it runs.

    Raises:
        UnimplementedError: oneDNN offers nothing for it on this CPU.
        RefusedError: It does not create the implementation that the Spec names. Where the Spec names none, the next
            one is taken.
    """

    __slots__ = ("_handle", "scratchpad_nbytes", "spec")

    def __init__(self, spec: Spec) -> None:
        validate(spec)
        self._handle, resolved = run_parallel(lambda: _compile(spec), spec.n_threads)
        self.spec = resolved.spec
        self.scratchpad_nbytes = resolved.scratchpad_nbytes

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
