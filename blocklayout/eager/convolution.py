"""Convolutions: the result has the source's format, or that which goes with the weights' where the source is row-major.

Weights may come in any format. Those in the one that is read (:func:`conv_weights`) are read where they are; others
are reordered at each call, which a watch tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from blocklayout.eager.functions import op_of, preparation_of, prepared
from blocklayout.eager.operands import READERS, as_tensor, boolean
from blocklayout.eager.operands import memory_format as read_format
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.operators import Operators
from blocklayout.tensor import Tensor, reorder

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.operators import Count, Extents, Pads


def _onnx_conv(operands: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    x, weights = operands[:2]
    dims = weights.dims
    return {"weights": (dims[0] * dims[1], *dims[2:])} if weights.ndims > x.ndims else {}


def _onnx_conv_transpose(operands: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    dims = operands[1].dims
    return {"weights": (dims[0] * dims[2], dims[1], *dims[3:])}


@prepared(Operators.conv, _onnx_conv)
def _in_groups(operands: Sequence[Any], group: int, function: str) -> Sequence[Any]:
    """Weights with their groups as a dimension of their own, where there are several."""
    x, weights, *others = operands
    if group == 1 or _has_groups(x, weights):
        return operands
    return x, _split(weights, group, function, "output"), *others


@prepared(Operators.conv_transpose, _onnx_conv_transpose)
def _by_output_channel(operands: Sequence[Any], group: int, function: str) -> Sequence[Any]:
    """Weights in oneDNN's order of dimensions: groups, channels out, channels in, and the kernel."""
    x, weights, *others = operands
    if _has_groups(x, weights):
        return operands
    if weights.ndim not in (3, 4, 5):
        raise InputError(f"{function}: weights has shape {weights.shape}; give one of rank 3 to 5")
    split = _split(weights, group, function, "input")
    return x, split.permute(0, 2, 1, *range(3, split.ndim)), *others


def _has_groups(x: Tensor | MemoryDesc, weights: Tensor) -> bool:
    return len(weights.shape) > len(x.dims if isinstance(x, MemoryDesc) else x.shape)


def _split(weights: Tensor, group: int, function: str, channels: str) -> Tensor:
    dims = weights.desc.dims
    if group < 1 or dims[0] % group:
        raise InputError(
            f"{function}: group is {group}; give a divisor of the {dims[0]} {channels} channels of weights"
        )
    if not weights.desc.is_plain:
        weights = reorder(weights, MemoryDesc(dims, weights.desc.dtype))
    return weights.view(group, dims[0] // group, *dims[1:])


def conv_weights(
    x: Operand | MemoryDesc,
    weights: Operand,
    *,
    bias: bool = False,
    strides: Extents = 1,
    pads: Pads = 0,
    dilations: Extents = 1,
    group: Count = 1,
    memory_format: str | None = None,
) -> Tensor:
    """The weights in the format that :func:`conv` reads for such a source: reordered once, and not at each call.

    Arguments are those of :func:`conv`, but that ``x`` may be a source's descriptor, and ``bias`` is whether there will
    be one. Where there are several groups, they are the result's first dimension.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> x = bl.reorder(np.ones((1, 16, 8, 8), np.float32), "nChw8c")
        >>> w = bl.conv_weights(x, np.ones((32, 16, 3, 3), np.float32), pads=1)
        >>> with bl.watch("raise"):
        ...     y = bl.conv(x, w, pads=1)
        >>> y.desc
        MemoryDesc((1, 32, 8, 8), 'f32', 'nChw8c')
    """
    window = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    return _packed(Operators.conv, x, weights, window, memory_format, has_bias=bias)


def conv_transpose_weights(
    x: Operand | MemoryDesc,
    weights: Operand,
    *,
    bias: bool = False,
    strides: Extents = 1,
    pads: Pads = 0,
    output_padding: Pads = 0,
    dilations: Extents = 1,
    group: Count = 1,
) -> Tensor:
    """As :func:`conv_weights` for :func:`conv_transpose`; the result has groups as its first dimension, if only one.

    Example:
        >>> import numpy as np
        >>> import blocklayout as bl
        >>> x = bl.ones((1, 16, 4, 4))
        >>> w = bl.conv_transpose_weights(x, np.ones((16, 8, 2, 2), np.float32), strides=2)
        >>> w.shape
        (1, 8, 16, 2, 2)
        >>> bl.conv_transpose(x, w, strides=2)
        Tensor(f32 1x8x8x8 nchw)
    """
    window = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    return _packed(Operators.conv_transpose, x, weights, window | {"output_padding": output_padding}, has_bias=bias)


def _packed(
    definition: Any,
    x: Operand | MemoryDesc,
    weights: Operand,
    attrs: dict[str, Any],
    memory_format: str | None = None,
    *,
    has_bias: bool,
) -> Tensor:
    from blocklayout.eager.planning import weights_desc

    op = replace(op_of(definition), name=f"{definition.__name__}_weights")
    function = op.name
    source = x if isinstance(x, MemoryDesc) else as_tensor(x, f"{function}: x").desc
    prepare: Any = preparation_of(definition)[0]
    read = {name: READERS[op.kinds[name]][1](each, f"{function}: {name}") for name, each in attrs.items()}
    _, kernel = prepare((source, as_tensor(weights, f"{function}: weights")), read["group"], function)
    is_biased = boolean(has_bias, f"{function}: bias")
    said = None if memory_format is None else read_format(memory_format, f"{function}: memory_format")
    return reorder(kernel, weights_desc(op, source, kernel.desc, tuple(read.items()), said, has_bias=is_biased))
