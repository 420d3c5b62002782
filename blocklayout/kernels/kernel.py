"""Kernels: the network as units of work, in the order they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from blocklayout.kernels.operator import BaseOperator
    from blocklayout.kernels.value import Value


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
        others: Further results, by argument (``dst_1`` ...); only a plain kernel has some.
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


class Program(Struct, frozen=True, eq=False):
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
