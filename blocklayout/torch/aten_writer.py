"""One node of an FX graph, as ONNX nodes: the table of ATen overloads, and what each of its functions is given."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blocklayout.dtypes import to_numpy
from blocklayout.errors import UnsupportedError
from blocklayout.model import Builder, BuildValue
from blocklayout.model.graph import fresh_name
from blocklayout.model.types import to_elem_type

if TYPE_CHECKING:
    from torch.fx import Node

Lowering = Callable[..., Any]
"""``lowering(writer, *args, **kwargs)`` returns an overload's first result, or a tuple of all.

``args`` are all arguments that its schema has by position, ``kwargs`` those by name that were given.
"""

TABLE: dict[str, Lowering] = {}
"""The overloads that are lowered, ``aten.relu.default``."""

_NAMES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool"}
_NAMES |= {
    f"{kind}{bits}": f"{letter}{bits}" for kind, letter in (("int", "s"), ("uint", "u")) for bits in (8, 16, 32, 64)
}

_LAYER_WORDS = """
    Conv ConvTranspose Gemm MatMul BatchNormalization InstanceNormalization GroupNormalization LayerNormalization
    MaxPool AveragePool GlobalAveragePool Resize Gather Softmax LogSoftmax
    Relu Sigmoid Tanh Gelu Elu LeakyRelu PRelu Clip Softplus HardSwish HardSigmoid Mish LSTM GRU
"""
_LAYERS = frozenset(_LAYER_WORDS.split())
"""Operators that bear their module's name alone."""


def lowers(*overloads: str) -> Callable[[Lowering], Lowering]:
    """Enter a function in the table for some overloads of ATen's: ``view`` is ``aten.view.default``.

    Example:
        >>> lowers("relu")(lambda w, x: w.op("Relu", x))  # doctest: +SKIP
    """

    def enter(lowering: Lowering) -> Lowering:
        named = (f"aten.{each}" if "." in each else f"aten.{each}.default" for each in overloads)
        TABLE.update(dict.fromkeys(named, lowering))
        return lowering

    return enter


def dtype_name(dtype: Any) -> str:
    """Our name of a ``torch.dtype``.

    Raises:
        UnsupportedError: Complex and quantised numbers, and those below one byte.
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _NAMES:
        raise UnsupportedError(f"PyTorch's data type {name}; supported are {', '.join(_NAMES)}")
    return _NAMES[name]


class Result(NamedTuple):
    """A result's extents and data type, by our name, as PyTorch traced it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NodeWriter:
    """Writes the ONNX nodes for one ATen node.

    Attributes:
        builder: The network that is written.
        node: The ATen node.
        overload: ``aten.convolution.default``.
        args: The node's arguments by position, defaults included.
        results: What PyTorch says of each result.
        transposed: The matrix that each transposed one was, by the latter's name; shared by all nodes.
    """

    builder: Builder
    node: Node
    overload: str
    args: tuple[Any, ...]
    results: tuple[Result, ...]
    transposed: dict[str, BuildValue]

    @property
    def name(self) -> str:
        """The overload's name without its namespace, and what tells it from others of the name."""
        return self.overload.split(".")[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the first result."""
        return self.results[0].shape

    @property
    def dtype(self) -> str:
        """Data type of the first result."""
        return self.results[0].dtype

    @property
    def compute_dtype(self) -> str:
        """The type to which PyTorch brings the first two operands before it computes."""
        import torch
        from torch.fx.node import map_arg

        first, second = map_arg(self.args[:2], lambda node: node.meta["val"])
        return dtype_name(torch.result_type(first, second))

    def is_read(self, index: int) -> bool:
        """Whether anybody reads one of several results."""
        picked = (user for user in self.node.users if user.target is getitem and user.users)
        return any(user.args[1] == index for user in picked)

    def op(self, op_type: str, *args: Any, n_outputs: int = 1, **attrs: Any) -> Any:
        """An operator in ONNX's words, as :meth:`Builder.op` takes it, named after the module; see there."""
        path, in_layer = module_of(self.node)
        named = path if in_layer and op_type in _LAYERS else f"{path}.{op_type.lower()}".lstrip(".")
        return self.builder.op(op_type, *args, name=fresh(self.builder, named), n_outputs=n_outputs, **attrs)

    def constant(self, array: Any, dtype: str | None = None) -> BuildValue:
        """A constant that an argument makes."""
        known = np.asarray(array, None if dtype is None else to_numpy(dtype))
        return self.builder.constant(known, name=fresh(self.builder, f"{module_of(self.node)[0]}.constant".lstrip(".")))

    def cast(self, value: Any, dtype: str) -> BuildValue:
        """A value, or a number, in a data type."""
        if not isinstance(value, BuildValue):
            return self.constant(value, dtype)
        cast: BuildValue = value if value.dtype == dtype else self.op("Cast", value, to=to_elem_type(dtype))
        return cast

    def alike(self, *values: Any) -> tuple[BuildValue, ...]:
        """Values, or numbers, in the data type of the first result."""
        return tuple(self.cast(each, self.dtype) for each in values)

    def reshape(self, value: BuildValue, shape: Sequence[int]) -> BuildValue:
        """Other extents."""
        if value.shape == tuple(shape):
            return value
        reshaped: BuildValue = self.op("Reshape", value, shape, allowzero=1 if 0 in shape else None)
        return reshaped

    def flat(self, value: BuildValue) -> BuildValue:
        """All elements in a row."""
        return self.reshape(value, (prod(value.shape),))

    def ranked(self, value: BuildValue) -> BuildValue:
        """A vector of one, of a single number: PyTorch gives this one a dimension, too."""
        return value if value.shape else self.reshape(value, (1,))

    def transpose(self, value: BuildValue, perm: Sequence[int]) -> BuildValue:
        """Dimensions in another order; of a constant a view."""
        if list(perm) == list(range(len(perm))):
            return value
        if value.value.data is not None:
            transposed = self.constant(value.value.data.transpose(perm))
        else:
            transposed = self.op("Transpose", value, perm=perm)
        if len(perm) == 2:
            self.transposed[transposed.name] = value
        return transposed

    def refuse(self, why: str) -> UnsupportedError:
        """The error of arguments for which ONNX has no words."""
        return UnsupportedError(why)


def module_of(node: Node) -> tuple[str, bool]:
    """The path of the module that a node is of, ``layer1.0.conv2``, and whether its class is one of ``torch.nn``."""
    stack = node.meta.get("nn_module_stack") or {"": ("", "")}
    path, of_class = list(stack.values())[-1]
    path = re.sub(r"^L\['\w+'\]\.?", "", path)  # as torch.compile has it
    path = re.sub(r"(?:\._modules)?\['?(\w+)'?\]", r".\1", path).lstrip(".")
    name = of_class if isinstance(of_class, str) else f"{of_class.__module__}.{of_class.__qualname__}"
    return path, bool(path) and name.startswith("torch.nn.modules.")


def fresh(builder: Builder, name: str) -> str:
    """A name for a value that no other has."""
    return fresh_name(name, builder._values)  # noqa: SLF001 - the builder's own rule of names


def extents(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One number for each of ``rank`` dimensions, of a list with one for all or one for each."""
    listed = [value] * rank if isinstance(value, int) else [*value]
    return tuple(listed * rank if len(listed) == 1 else listed)
