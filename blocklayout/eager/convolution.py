"""Convolutions: the result has the source's format; that of the weights where the source is row-major.

Weights may come in any format. Those in the one that is read (:func:`conv_weights`) are read where they are; others
are reordered at each call, which a watch tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from blocklayout.eager.call import Attrs, Op, call, problem_of
from blocklayout.eager.operands import as_tensor
from blocklayout.errors import InputError
from blocklayout.layout import MemoryDesc
from blocklayout.tensor import Tensor, reorder

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand

    Extents: TypeAlias = int | Sequence[int]

_ARGUMENTS = ("x", "weights", "bias")
_CONV = Op("conv", _ARGUMENTS, lambda x, weights, bias=None, **attrs: x.conv(weights, bias, **attrs))
_CONV_TRANSPOSE = Op(
    "conv_transpose", _ARGUMENTS, lambda x, weights, bias=None, **attrs: x.conv_transpose(weights, bias, **attrs)
)


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
            weights' (``nChw8c`` with ``OIhw8i8o``, channels-last with ``hwio``).

    Raises:
        ModelError: Extents or attributes do not fit together.
        LayoutError: ``memory_format`` is none, or has another rank.
    """
    operands = _operands(x, weights, bias, group)
    return call(_CONV, operands, _window(strides, pads, dilations, group), memory_format)[0]


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
    """
    from blocklayout.eager.planning import free_format

    source = x if isinstance(x, MemoryDesc) else as_tensor(x, "x").desc
    kernel = _kernel(weights, source.ndims, group)
    vector = MemoryDesc((prod(kernel.desc.dims[: kernel.desc.ndims - source.ndims + 1]),)) if bias else None
    problem = problem_of(_CONV, (source, kernel, vector), _window(strides, pads, dilations, group), memory_format)
    return reorder(kernel, free_format(problem, "weights"))


def conv_transpose(  # noqa: PLR0913 - the operator's own parameters
    x: Operand,
    weights: Operand,
    bias: Operand | None = None,
    *,
    strides: Extents = 1,
    pads: Extents = 0,
    output_padding: Extents = 0,
    dilations: Extents = 1,
    group: int = 1,
    memory_format: str | None = None,
) -> Tensor:
    """Transposed convolution.

    Args:
        x: Shape (n, ic, spatial...), one to three spatial dimensions.
        weights: Shape (ic, oc / group, kernel...).
        bias: Shape (oc,).
        strides: As for :func:`conv`.
        pads: Likewise.
        output_padding: Extents added to the end of the result.
        dilations: As for :func:`conv`.
        group: Likewise.
        memory_format: Likewise.

    Raises:
        ModelError: Extents or attributes do not fit together.
        LayoutError: ``memory_format`` is none, or has another rank.
    """
    operands = (as_tensor(x, "x"), as_tensor(weights, "weights"), None if bias is None else as_tensor(bias, "bias"))
    attrs = (*_window(strides, pads, dilations, group), ("output_padding", _extents(output_padding)))
    return call(_CONV_TRANSPOSE, operands, attrs, memory_format)[0]


def _operands(x: Operand, weights: Operand, bias: Operand | None, group: int) -> tuple[Any, ...]:
    source = as_tensor(x, "x")
    return source, _kernel(weights, source.desc.ndims, group), None if bias is None else as_tensor(bias, "bias")


def _kernel(given: Operand, ndims: int, group: int) -> Tensor:
    """Weights, with their groups as a dimension of their own where there are several."""
    weights = as_tensor(given, "weights")
    if group == 1 or weights.desc.ndims > ndims:
        return weights
    dims = weights.desc.dims
    if dims[0] % group:
        raise InputError(f"weights: {dims[0]} output channels in {group} groups; group must divide them")
    if not weights.desc.is_plain:
        weights = reorder(weights, MemoryDesc(dims, weights.desc.dtype))
    desc = weights.desc.reshaped((group, dims[0] // group, *dims[1:]))
    return Tensor(desc, weights.buffer)


def _window(strides: Extents, pads: Extents, dilations: Extents, group: int) -> Attrs:
    return (
        ("strides", _extents(strides)),
        ("pads", _extents(pads)),
        ("dilations", _extents(dilations)),
        ("group", group),
    )


def _extents(given: Extents) -> Extents:
    """What can be hashed."""
    return given if isinstance(given, int) else tuple(given)
