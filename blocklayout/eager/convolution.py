"""Convolutions: the result has the source's format; what goes with that of the weights where the source is row-major.

Weights may come in any format. Those in the one that is read (:func:`conv_weights`) are read where they are; others
are reordered at each call, which a watch tells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from blocklayout.eager.call import Attrs, Op, call, problem_of
from blocklayout.eager.operands import as_tensor, hashable
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor, preserve_format, reorder

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand

    Extents: TypeAlias = int | Sequence[int]
    Dims: TypeAlias = tuple[int, ...]


def conv(
    x: Operand,
    weights: Operand,
    bias: Operand | None = None,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
    memory_format: str | None = None,
) -> Tensor:
    """Convolution.

    Args:
        x: Shape (n, ic, spatial...), one to three spatial dimensions.
        weights: Shape (oc, ic / group, kernel...), or what :func:`conv_weights` made of it.
        bias: Shape (oc,).
        strides: One number, or one for each spatial dimension.
        pads: One number, one for each spatial dimension, or all begins and then all ends.
        dilations: Likewise; 1 is a dense kernel.
        group: How many parts the channels are in, each computed on its own.
        memory_format: The result's format; by default ``x``'s, or where that is row-major what goes with the
            weights' (``nChw8c`` with ``OIhw8i8o``, channels-last with ``ohwi``).

    Raises:
        InputError: ``group`` does not divide the channels.
        ModelError: Extents or attributes do not fit together.
        LayoutError: ``memory_format`` is none, or has another rank.
    """
    attrs = _window(strides, pads, dilations, group)
    return call(_CONV, _operands(x, weights, bias, _in_groups, group), attrs, _said(memory_format))[0]


def conv_transpose(
    x: Operand,
    weights: Operand,
    bias: Operand | None = None,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    output_padding: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> Tensor:
    """Transposed convolution.

    Args:
        x: Shape (n, ic, spatial...), one to three spatial dimensions.
        weights: Shape (ic, oc / group, kernel...), or what :func:`conv_transpose_weights` made of it.
        bias: Shape (oc,).
        strides: As for :func:`conv`.
        pads: Likewise.
        output_padding: Extents added to the end of the result.
        dilations: As for :func:`conv`.
        group: Likewise.

    Raises:
        InputError: ``group`` does not divide the channels.
        ModelError: Extents or attributes do not fit together.
    """
    attrs = (*_window(strides, pads, dilations, group), ("output_padding", hashable(output_padding)))
    return call(_CONV_TRANSPOSE, _operands(x, weights, bias, _by_output_channel, group), attrs)[0]


def conv_weights(
    x: Operand | MemoryDesc,
    weights: Operand,
    *,
    bias: bool = False,
    strides: Extents = 1,
    pads: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
    memory_format: str | None = None,
) -> Tensor:
    """The weights in the format that :func:`conv` reads for such a source: reordered once, and not at each call.

    Args:
        x: A source, or the descriptor of one.
        weights: As for :func:`conv`.
        bias: Whether there will be one.
        strides: As for :func:`conv`, like all of the following.
        pads: Likewise.
        dilations: Likewise.
        group: Likewise. With several, the result has them as its first dimension.
        memory_format: Likewise.

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
    attrs = _window(strides, pads, dilations, group)
    return _packed(_CONV, x, weights, attrs, bias, _in_groups, group, _said(memory_format))


def conv_transpose_weights(
    x: Operand | MemoryDesc,
    weights: Operand,
    *,
    bias: bool = False,
    strides: Extents = 1,
    pads: Extents = 0,
    output_padding: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
) -> Tensor:
    """As :func:`conv_weights` for :func:`conv_transpose`; the result has groups as its first dimension, if only one."""
    attrs = (*_window(strides, pads, dilations, group), ("output_padding", hashable(output_padding)))
    return _packed(_CONV_TRANSPOSE, x, weights, attrs, bias, _by_output_channel, group)


def _operands(x: Operand, weights: Operand, bias: Operand | None, seen: _Seen, group: int) -> tuple[Any, ...]:
    source = as_tensor(x, "x")
    kernel = seen(as_tensor(weights, "weights"), source.desc.ndims, group)
    return source, kernel, None if bias is None else as_tensor(bias, "bias")


def _packed(
    op: Op,
    x: Operand | MemoryDesc,
    weights: Operand,
    attrs: Attrs,
    bias: bool,  # noqa: FBT001
    seen: _Seen,
    group: int,
    memory_format: str | None = None,
) -> Tensor:
    from blocklayout.eager.planning import free_format

    source = x if isinstance(x, MemoryDesc) else as_tensor(x, "x").desc
    kernel = seen(as_tensor(weights, "weights"), source.ndims, group)
    outputs = kernel.desc.dims[: kernel.desc.ndims - source.ndims + 1]
    vector = MemoryDesc((prod(outputs),)) if bias else None
    problem = problem_of(op, (source, kernel, vector), attrs, memory_format)
    role = "weights" if len(outputs) == 1 else "grouped_weights"
    return reorder(kernel, free_format(problem, "weights").in_role(role))


def _in_groups(weights: Tensor, ndims: int, group: int) -> Tensor:
    """Weights with their groups as a dimension of their own, where there are several."""
    return weights if group == 1 or weights.desc.ndims > ndims else _split(weights, group, "output")


def _by_output_channel(weights: Tensor, ndims: int, group: int) -> Tensor:
    """Weights in oneDNN's order of dimensions: groups, channels out, channels in, and the kernel."""
    if weights.desc.ndims > ndims:
        return weights
    split = _split(weights, group, "input")
    return Tensor(split.desc.permuted((0, 2, 1, *range(3, split.desc.ndims))), split.buffer)


_Seen = Callable[[Tensor, int, int], Tensor]


def _split(weights: Tensor, group: int, channels: str) -> Tensor:
    dims = weights.desc.dims
    if group < 1 or dims[0] % group:
        raise InputError(f"weights: {dims[0]} {channels} channels in {group} groups; group must divide them")
    if not weights.desc.is_plain:
        weights = reorder(weights, MemoryDesc(dims, weights.desc.dtype))
    return Tensor(weights.desc.reshaped((group, dims[0] // group, *dims[1:])), weights.buffer)


def _onnx_conv(operands: Sequence[Any]) -> dict[str, Dims]:
    x, weights = operands[:2]
    dims = weights.dims
    return {"weights": (dims[0] * dims[1], *dims[2:])} if weights.ndims > x.ndims else {}


def _onnx_conv_transpose(operands: Sequence[Any]) -> dict[str, Dims]:
    dims = operands[1].dims
    return {"weights": (dims[0] * dims[2], dims[1], *dims[3:])}


def _said(memory_format: str | None) -> str | None:
    """A format, if one is asked for."""
    return None if memory_format == preserve_format else memory_format


def _window(strides: Extents, pads: Extents, dilations: Extents, group: int) -> Attrs:
    return (
        ("strides", hashable(strides)),
        ("pads", hashable(pads)),
        ("dilations", hashable(dilations)),
        ("group", group),
    )


_ARGUMENTS = ("x", "weights", "bias")
_CONV = Op(
    "conv",
    _ARGUMENTS,
    lambda x, weights, bias=None, **attrs: x.conv(weights, bias, **attrs),
    _onnx_conv,
    op_type="Conv",
)
_CONV_TRANSPOSE = Op(
    "conv_transpose",
    _ARGUMENTS,
    lambda x, weights, bias=None, **attrs: x.conv_transpose(weights, bias, **attrs),
    _onnx_conv_transpose,
    op_type="ConvTranspose",
)
