"""Execution: a primitive with its arguments, ready to run again and again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from blocklayout.dnnl import arguments, enums, library, own, status
from blocklayout.dnnl._abi import ffi
from blocklayout.dnnl.handles import Handle, cpu_stream
from blocklayout.dnnl.memory import Memory
from blocklayout.dnnl.own import OwnPrimitive
from blocklayout.dnnl.resolution import refused
from blocklayout.dnnl.spec import Spec
from blocklayout.errors import DnnlError, InvalidArgumentsError

_INVALID_ARGUMENTS = enums.value("status", "invalid_arguments")


class Execution:
    """A primitive bound to its memories, which it keeps alive; they may be put to other buffers between runs.

    Attributes:
        memories: By argument, the scratchpad included.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> from blocklayout import dnnl
        >>> desc = bl.MemoryDesc((4,))
        >>> src, dst = dnnl.Memory.empty(desc), dnnl.Memory.empty(desc)
        >>> src.buffer.view(np.float32)[:] = -1, 0, 1, 2
        >>> execution = dnnl.Primitive(dnnl.eltwise(desc, algorithm="relu")).bind({"src": src, "dst": dst})
        >>> dnnl.run_parallel(execution.run, 1)
        >>> dst.buffer.view(np.float32)
        array([0., 0., 1., 2.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_c_args", "_call", "_execute", "_primitive", "memories", "spec")

    def __init__(self, primitive: Handle | OwnPrimitive, spec: Spec, memories: Mapping[str, Memory]) -> None:
        self._primitive = primitive
        self.spec = spec
        self.memories = dict(memories)
        if isinstance(primitive, Handle):
            self._execute, self._c_args = library.load().dnnl_primitive_execute, _c_args(spec, memories)
        else:
            self._execute, self._c_args = primitive.execute, primitive.c_args(memories)
        self._call: Any = partial(self._execute, primitive.c, cpu_stream().c, len(self._c_args), self._c_args)

    @property
    def c_step(self) -> tuple[Any, Any, Any, int, int]:
        """As a ``bl_step_t``; keep this alive as long as that."""
        execute = ffi.cast("bl_execute_t", self._execute)
        return execute, self._primitive.c, self._c_args, len(self._c_args), self.spec.n_threads

    def run(self) -> None:
        """Execute once, and return when the result is there.

        Parallel regions are as wide as the caller made them: call it inside of ``run_parallel``.

        Raises:
            RefusedError: The library refused.
        """
        c_status = self._call()
        if c_status:
            raise self.refusal(c_status)

    def refusal(self, c_status: int) -> DnnlError:
        """The error for a run that ended with a status other than success."""
        ours = own.implementation(self.spec.impl)
        if ours and ours.rule and c_status == _INVALID_ARGUMENTS:
            return InvalidArgumentsError(f"{self.spec.kind}: {ours.rule}", c_status)
        return refused(self.spec, "run", status.error(c_status, "dnnl_primitive_execute", self.spec))


def _c_args(spec: Spec, memories: Mapping[str, Memory]) -> Any:
    c_args = ffi.new("dnnl_exec_arg_t[]", len(memories))
    for c_arg, (name, memory) in zip(c_args, memories.items(), strict=True):
        c_arg.arg = arguments.number(spec, name)
        c_arg.memory = memory.c
    return c_args


def check_memories(spec: Spec, scratchpad_nbytes: int, memories: Mapping[str, Memory]) -> None:
    """Refuse missing and unknown arguments, and memories of other descriptors, by an InvalidArgumentsError.

    The first element may be anywhere in a memory's buffer.
    """
    wanted = dict(spec.descs)
    for name, desc in wanted.items():
        if name not in memories:
            raise InvalidArgumentsError(f"{spec.kind}: {name} is missing; give a Memory of {desc}")
    for name, memory in memories.items():
        if name == "scratchpad":
            if memory.nbytes < scratchpad_nbytes:
                rule = f"has {memory.nbytes} bytes; it takes at least {scratchpad_nbytes}"
                raise InvalidArgumentsError(f"{spec.kind}: scratchpad {rule}")
        elif name not in wanted:
            raise InvalidArgumentsError(f"{spec.kind}: no argument {name!r}; it takes {', '.join(wanted)}")
        elif not memory.desc.at_offset((desc := spec.memory_desc(name)).offset0).physically_equal(desc):
            rule = f"is a Memory of {memory.desc}; it takes {wanted[name]}: reorder it first"
            raise InvalidArgumentsError(f"{spec.kind}: {name} {rule}")
