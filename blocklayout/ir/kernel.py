"""Kernels: the network as units of work, in the order they run."""

from __future__ import annotations

from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import numpy as np

    from blocklayout.ir.operator import BaseOperator
    from blocklayout.ir.value import Value


_DIGEST_NBYTES = 16


class Constant(Struct, frozen=True, eq=False):
    """An array that is known before the network runs.

    Attributes:
        name: The initializer it comes from, numbered where kernels see that in several ways, or
            ``kernel.argument`` where it was computed. One name of a program stands for one array.
        array: The contents; any strides.
    """

    name: str
    array: np.ndarray


class Kernel(Struct, frozen=True, eq=False):
    """One unit of work: an operator, its sources and its destination.

    Attributes:
        name: The main node's name, else its op type and index (``conv_3``).
        sources: Values computed at run time, by argument.
        constants: By argument.
        dst: The value it computes.
        nodes: Names of the model's nodes it stands for.
        others: Further results, by argument: ``indices``; a plain kernel's are ``dst_1`` ...
        as_plain: Makes the kernel that computes the same by ``onnx.reference``, for where no primitive
            does; ``None`` if it is one, or there is none.
        reason: Why a kernel is plain.
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


class Program(Struct, frozen=True, eq=False, dict=True):
    """A network lowered to kernels, in topological order.

    Attributes:
        name: The model's name.
        inputs: What the caller feeds, in the model's order.
        outputs: What the caller gets; a constant or an input may be among them.
    """

    name: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @cached_property
    def digest(self) -> str:
        """Digest of everything about the program that its plan depends on, in hexadecimal.

        That is its kernels with their operators and arguments, and the names, extents and data types of values and
        constants. The contents of constants do not matter, as a plan packs whatever it is given; what an operator
        read of them is among its attributes. Every extent must be known.
        """
        parts = [_described("inputs", ((value.name, value) for value in self.inputs))]
        for kernel in self.kernels:
            constants = [(arg, each.name, each.array.shape, each.array.dtype.name) for arg, each in kernel.constants]
            parts += (
                repr((kernel.name, kernel.nodes)),
                repr(kernel.operator),
                _described("sources", kernel.sources),
                _described("results", [("dst", kernel.dst), *kernel.others]),
                repr(constants),
            )
        parts.append(_described("outputs", ((value.name, value) for value in self.outputs)))
        parts.append(repr([value.is_constant for value in self.outputs]))
        return blake2b("".join(f"{part}\0" for part in parts).encode(), digest_size=_DIGEST_NBYTES).hexdigest()


def _described(role: str, named: Iterable[tuple[str, Value]]) -> str:
    return repr((role, [(arg, value.name, value.shape, value.dtype) for arg, value in named]))
