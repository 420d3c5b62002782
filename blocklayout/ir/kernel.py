"""Kernels: the network as units of work, in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from hashlib import blake2b

import numpy as np
from msgspec import Struct, field

from blocklayout.ir.operator import BaseOperator
from blocklayout.ir.recipe import MadeWeights
from blocklayout.ir.value import Value

_DIGEST_NBYTES = 16
_NUMBERS = ("scale", "zero_point")


class Constant(Struct, frozen=True, eq=False):
    """An array that is known before the network runs.

    Attributes:
        name: The initializer it comes from, numbered where kernels see that in several ways, or
            ``kernel.argument`` where it was computed. One name of a program stands for one array.
        array: The contents; any strides.
        made: Makes the array that kernels see, when it is packed; ``None`` where they see it as it is.
    """

    name: str
    array: np.ndarray
    made: MadeWeights | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents that kernels see."""
        return self.made.dims(self.array.shape) if self.made else self.array.shape


class ByteOperands(Struct, frozen=True, eq=False):
    """The operands of a kernel that reads its sources as bytes, beside these; each by argument.

    Attributes:
        constants: Bytes in place of constants in real numbers.
        scales: Of these and of sources, f32: one number, or one for each output channel.
        zero_points: One number each, s32, where it is not 0.
    """

    constants: tuple[tuple[str, Constant], ...]
    scales: tuple[tuple[str, Constant], ...]
    zero_points: tuple[tuple[str, Constant], ...]

    @property
    def all(self) -> tuple[tuple[str, Constant], ...]:
        """All of them, by argument of the primitive."""
        scales = ((f"scale_{arg}", constant) for arg, constant in self.scales)
        return (*self.constants, *scales, *((f"zero_point_{arg}", constant) for arg, constant in self.zero_points))


class KernelInfo(Struct, frozen=True):
    """A kernel as users select it, by key or by a function.

    Attributes:
        name: The main node's name, else its op type and index (``conv_3``).
        op_types: ONNX's names of its operator, and of the operators of the model's nodes that it stands for.
        nodes: Names of the model's nodes that it stands for.
        value: The value that it computes, of extents ``shape``.
        role: ``chooser``, ``follower``, ``view``, or ``plain`` where no primitive computes it.
        aliases: Names in the model of nodes that did nothing to its result, and of values that are no more.
    """

    name: str
    op_types: tuple[str, ...]
    nodes: tuple[str, ...]
    value: str
    shape: tuple[int, ...]
    role: str
    aliases: tuple[str, ...] = ()

    @property
    def op_type(self) -> str:
        """ONNX's name of its operator."""
        return self.op_types[0]

    @property
    def names(self) -> tuple[str, ...]:
        """All its names."""
        return (self.name, *self.nodes, self.value, *self.aliases)


class Kernel(Struct, frozen=True, eq=False):
    """One unit of work: an operator, its sources and its destination.

    Attributes:
        name: The main node's name, else its op type and index (``conv_3``).
        sources: Values computed at run time, by argument, as constants are.
        nodes: Names of the model's nodes it stands for.
        others: Further results, by argument: ``indices``; a plain kernel's are ``dst_1`` ...
        as_plain: Makes the kernel that computes the same by numpy or ``onnx.reference``, for where no
            primitive does; ``None`` if it is one, or there is none.
        reason: Why no primitive computes it; empty where one does.
        op_types: As :class:`KernelInfo` has them, and ``aliases``.
        in_bytes: For computing with bytes; ``None`` where it cannot, or its operands are no bytes.
        in_floats: Why it cannot, where bytes stand for one of its operands; else empty.
        rounding: Those of its nodes that round results, each its own where they run one by one.
    """

    name: str
    operator: BaseOperator
    sources: tuple[tuple[str, Value], ...]
    constants: tuple[tuple[str, Constant], ...]
    dst: Value
    nodes: tuple[str, ...]
    others: tuple[tuple[str, Value], ...] = ()
    as_plain: Callable[[], Kernel] | None = None
    reason: str = ""
    op_types: tuple[str, ...] = ("",)
    aliases: tuple[str, ...] = ()
    in_bytes: ByteOperands | None = None
    in_floats: str = ""
    rounding: tuple[str, ...] = ()

    @property
    def info(self) -> KernelInfo:
        """The kernel as users select it."""
        role = self.operator.role.value
        return KernelInfo(self.name, self.op_types, self.nodes, self.dst.name, self.dst.shape, role, self.aliases)


class Program(Struct, frozen=True, eq=False, dict=True):
    """A network lowered to kernels, in topological order; its inputs and outputs are in the model's.

    Attributes:
        outputs: A constant or an input may be among them.
        gone: Reasons why other names of the model's nodes and values stand for no kernel.
        precision_report: Of a model that was quantised under a budget of error, as JSON; plans tell it.
    """

    name: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    gone: Mapping[str, str] = field(default_factory=dict)
    precision_report: str = ""

    @cached_property
    def digest(self) -> str:
        """Digest of everything about the program that its plan depends on, in hexadecimal.

        That is its kernels with their operators and arguments, and the names, extents and data types of values and
        constants. The contents of constants do not matter, as a plan packs any; contents that an operator
        has read are among its attributes. Scales of bytes do matter, since post-ops may have them. Every extent must be
        known.
        """
        parts = [_described("inputs", ((value.name, value) for value in self.inputs))]
        for kernel in self.kernels:
            given = (*kernel.constants, *(kernel.in_bytes.all if kernel.in_bytes else ()))
            constants = [(arg, each.name, each.array.shape, each.array.dtype.name) for arg, each in given]
            scales = [each.array.tolist() for arg, each in given if arg.startswith(_NUMBERS) and each.array.size == 1]
            parts += (
                repr((kernel.name, kernel.nodes, kernel.op_types, kernel.aliases)),
                repr(kernel.operator),
                _described("sources", kernel.sources),
                _described("results", [("dst", kernel.dst), *kernel.others]),
                repr(constants),
                repr(scales),
            )
        parts.append(_described("outputs", ((value.name, value) for value in self.outputs)))
        parts.append(repr([value.is_constant for value in self.outputs]))
        parts += [self.precision_report] if self.precision_report else []
        return blake2b("".join(f"{part}\0" for part in parts).encode(), digest_size=_DIGEST_NBYTES).hexdigest()


def _described(role: str, named: Iterable[tuple[str, Value]]) -> str:
    return repr((role, [(arg, value.name, value.shape, value.dtype) for arg, value in named]))
