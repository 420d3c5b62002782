"""Poolings: the result has the source's format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from blocklayout.eager.call import Op, call
from blocklayout.eager.operands import as_tensor, hashable

if TYPE_CHECKING:
    from blocklayout.eager.operands import Operand
    from blocklayout.tensor import Tensor

    Extents: TypeAlias = int | Sequence[int]

_MAX_POOL = Op("max_pool", build=lambda x, **attrs: x.max_pool(**attrs))
_AVERAGE_POOL = Op("average_pool", build=lambda x, **attrs: x.average_pool(**attrs))
_LP_POOL = Op("lp_pool", op_type="LpPool")
_GLOBAL_AVERAGE_POOL = Op("global_average_pool", op_type="GlobalAveragePool")
_GLOBAL_MAX_POOL = Op("global_max_pool", op_type="GlobalMaxPool")
_GLOBAL_LP_POOL = Op("global_lp_pool", op_type="GlobalLpPool")


def max_pool(
    x: Operand, kernel: Extents, strides: Extents | None = None, pads: Extents = 0, *, ceil_mode: bool = False
) -> Tensor:
    """Largest of each window.

    Args:
        x: Shape (n, c, spatial...), one to three spatial dimensions.
        kernel: One number, or one for each spatial dimension.
        strides: Likewise; windows lie side by side unless it is given.
        pads: One number, one for each spatial dimension, or all begins and then all ends.
        ceil_mode: Whether there is a last, incomplete window.

    Raises:
        ModelError: The window does not fit the source.
    """
    return call(_MAX_POOL, (as_tensor(x, "x"),), (*_window(kernel, strides, pads), ("ceil_mode", ceil_mode)))[0]


def average_pool(
    x: Operand,
    kernel: Extents,
    strides: Extents | None = None,
    pads: Extents = 0,
    *,
    count_include_pad: bool = False,
    ceil_mode: bool = False,
) -> Tensor:
    """Mean of each window.

    Args:
        x: As for :func:`max_pool`, like ``kernel``, ``strides``, ``pads`` and ``ceil_mode``.
        kernel: Likewise.
        strides: Likewise.
        pads: Likewise.
        count_include_pad: Whether padding counts as zeros.
        ceil_mode: Likewise.

    Raises:
        ModelError: The window does not fit the source.
    """
    flags = (("ceil_mode", ceil_mode), ("count_include_pad", count_include_pad))
    return call(_AVERAGE_POOL, (as_tensor(x, "x"),), (*_window(kernel, strides, pads), *flags))[0]


def lp_pool(x: Operand, kernel: Sequence[int], strides: Sequence[int] | None = None, p: int = 2) -> Tensor:
    """The ``p``-norm of each window, whose extents are given for each spatial dimension."""
    window = (("kernel_shape", tuple(kernel)), ("strides", tuple(kernel if strides is None else strides)), ("p", p))
    return call(_LP_POOL, (as_tensor(x, "x"),), window)[0]


def global_average_pool(x: Operand) -> Tensor:
    """Mean over all spatial dimensions, which stay with extent 1."""
    return call(_GLOBAL_AVERAGE_POOL, (as_tensor(x, "x"),))[0]


def global_max_pool(x: Operand) -> Tensor:
    """Largest over all spatial dimensions, which stay with extent 1."""
    return call(_GLOBAL_MAX_POOL, (as_tensor(x, "x"),))[0]


def global_lp_pool(x: Operand, p: int = 2) -> Tensor:
    """The ``p``-norm over all spatial dimensions, which stay with extent 1."""
    return call(_GLOBAL_LP_POOL, (as_tensor(x, "x"),), (("p", p),))[0]


def _window(kernel: Extents, strides: Extents | None, pads: Extents) -> tuple[tuple[str, Any], ...]:
    return (("kernel", hashable(kernel)), ("strides", hashable(strides)), ("pads", hashable(pads)))
