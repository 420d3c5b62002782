"""One node of an FX graph, as ONNX nodes: the table of ATen overloads, and what each of its functions is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from math import prod
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocklayout.dtypes import named, to_numpy
from blocklayout.errors import LayoutError, UnsupportedError
from blocklayout.model import Builder, BuildValue
from blocklayout.model.graph import fresh_name

if TYPE_CHECKING:
    from torch.fx import Node

Lowering = Callable[..., Any]
"""``lowering(writer, *operands, **attributes)`` returns an overload's first result, or a tuple of all.

As ONNX tells inputs from attributes, so is its schema divided: tensors, and numbers that may stand for them, come by
position, and everything else by name, defaults included. Dimensions of extent 1 may be missing from results, or too
many: they are reshaped.
"""

TABLE: dict[str, Lowering] = {}
"""The overloads that are lowered, ``aten.relu.default``."""

OPSET = 22
"""The first in which convolutions and pooling take bf16."""


_LAYERS = """
    Conv ConvTranspose Gemm MatMul BatchNormalization InstanceNormalization GroupNormalization LayerNormalization
    MaxPool AveragePool GlobalAveragePool Resize Gather Softmax LogSoftmax
    Relu Sigmoid Tanh Gelu Elu LeakyRelu PRelu Clip Softplus HardSwish HardSigmoid Mish LSTM GRU
"""
"""Operators that bear their module's name alone."""


def lowers(*overloads: str) -> Callable[[Lowering], Lowering]:
    """Enter a function in the table for some overloads of ATen's: ``view`` is ``aten.view.default``.

    Example:
        >>> lowers("relu")(lambda w, x: x.relu())  # doctest: +SKIP
    """

    def enter(lowering: Lowering) -> Lowering:
        named = (f"aten.{each}" if "." in each else f"aten.{each}.default" for each in overloads)
        TABLE.update(dict.fromkeys(named, lowering))
        return lowering

    return enter


def lowers_alike(*overloads: str) -> Callable[[Lowering], Lowering]:
    """As :func:`lowers`, of a function whose operands come in the data type of the first result."""
    return lambda lowering: lowers(*overloads)(partial(_of_alike, lowering))


def _of_alike(lowering: Lowering, w: Writer, *operands: Any, **attrs: Any) -> Any:
    alike = (w.cast(each, w.dtype) if isinstance(each, BuildValue) else each for each in operands)
    return lowering(w, *alike, **attrs)


@cache
def dtype_name(dtype: Any) -> str:
    """Our name of a ``torch.dtype``; an UnsupportedError of complex and quantised numbers, and those below one byte."""
    try:
        return named(str(dtype).removeprefix("torch."))
    except LayoutError as error:
        raise UnsupportedError(f"PyTorch's {dtype}: {error}") from None


class Result(NamedTuple):
    """A result's extents and data type, by our name, as PyTorch traced it."""

    shape: tuple[int, ...]
    dtype: str


class Writer(Builder):
    """A network, and the ATen node of which ONNX nodes are written at present; these are named after its module.

    Attributes:
        node: The ATen node.
        overload: Its function's name, ``aten.convolution.default``; ``packet`` is ``convolution``.
        results: What PyTorch says of each result; ``shape`` and ``dtype`` are those of the first.
        transposed: The constant that each transposed matrix was, by the latter's name.
    """

    def __init__(self) -> None:
        super().__init__(opset=OPSET)
        self.transposed: dict[str, BuildValue] = {}

    def begin(self, node: Node, results: Sequence[Result]) -> None:
        """Write for this node from now on; ``results`` are what PyTorch says of it."""
        self.node, self.results, (self.shape, self.dtype) = node, results, results[0]
        self.overload = str(node.target)
        self.packet = self.overload.split(".")[1]
        self.path, self.in_layer = module_of(node)

    def is_read(self, index: int) -> bool:
        """Whether anybody reads one of several results."""
        picked = (user for user in self.node.users if user.target is getitem and user.users)
        return any(user.args[1] == index for user in picked)

    def fresh(self, name: str) -> str:
        """A name for a value that no other has."""
        return fresh_name(name, self._values)

    def op(self, op_type: str, *args: Any, name: str | None = None, n_outputs: int = 1, **attrs: Any) -> Any:
        """As :meth:`Builder.op`, by default with a name after the module."""
        is_layer = self.in_layer and op_type in _LAYERS.split()
        named = self.path if is_layer else f"{self.path}.{op_type.lower()}".lstrip(".")
        return super().op(op_type, *args, name=name or self.fresh(named), n_outputs=n_outputs, **attrs)

    def array(self, elements: Any, dtype: str | None = None) -> BuildValue:
        """A constant that an argument makes."""
        name = self.fresh(f"{self.path}.constant".lstrip("."))
        return self.constant(np.asarray(elements, None if dtype is None else to_numpy(dtype)), name)

    def full(self, shape: Sequence[int], element: float) -> BuildValue:
        """A constant of equal elements, in the data type of the first result."""
        return self.array(np.full(shape, element), self.dtype)

    def cast(self, value: Any, dtype: str) -> BuildValue:
        """A value, or a number, in a data type."""
        if not isinstance(value, BuildValue):
            return self.array(value, dtype)
        return value if value.dtype == dtype else value.astype(dtype)

    def where(self, condition: BuildValue, a: Any, b: Any) -> Any:
        """Elements of one or the other; numbers are in the data type of the first result."""
        return self.op("Where", condition, *(self.cast(each, self.dtype) for each in (a, b)))

    def reshape(self, value: BuildValue, shape: Sequence[int]) -> BuildValue:
        """Other extents."""
        is_same, allowzero = value.shape == tuple(shape), 1 if 0 in shape else None
        return value if is_same else self.op("Reshape", value, shape, allowzero=allowzero)

    def flat(self, value: BuildValue) -> BuildValue:
        """All elements in a row."""
        return self.reshape(value, (prod(value.shape),))

    def ranked(self, value: BuildValue) -> BuildValue:
        """A vector of one, of a single number: PyTorch gives this one a dimension, too."""
        return value if value.shape else self.reshape(value, (1,))

    def swap(self, value: BuildValue, dim0: int, dim1: int) -> BuildValue:
        """Two dimensions in each other's places."""
        perm = list(range(len(value.shape)))
        perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
        return self.transpose(value, perm)

    def transpose(self, value: BuildValue, perm: Sequence[int]) -> BuildValue:
        """Dimensions in another order; of a constant a view."""
        perm = [dim % len(perm) for dim in perm]
        if perm == list(range(len(perm))):
            return value
        if value.value.data is None:
            return value.transpose(perm)
        transposed = self.array(value.value.data.transpose(perm))
        if len(perm) == 2:
            self.transposed[transposed.name] = value
        return transposed


def module_of(node: Node) -> tuple[str, bool]:
    """The path of the module that a node is of, ``layer1.0.conv2``, and whether its class is one of ``torch.nn``."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    path, of_class = list(stack.values())[-1]
    path = re.sub(r"^L\['\w+'\]\.?", "", path)  # as torch.compile has it
    path = re.sub(r"(?:\._modules)?\['?(\w+)'?\]", r".\1", path).lstrip(".")
    name = of_class if isinstance(of_class, str) else f"{of_class.__module__}.{of_class.__qualname__}"
    return path, bool(path) and name.startswith("torch.nn.modules.")


def times(value: Any, factor: float) -> Any:
    """A product, which is the value itself where the factor is 1."""
    return value if factor == 1 else value * factor
