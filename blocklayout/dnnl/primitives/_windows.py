"""Windows that slide over an image: their strides, pads and dilations, and the extents that follow.

Of another length than the image has spatial dimensions they are an InvalidArgumentsError.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives._checks import MAX_INTEGER, invalid, require
from blocklayout.dnnl.spec import Spec

Ints = int | tuple[int, ...] | list[int]
"""One integer for every spatial dimension, or one each."""


def window_params(kind: str, image: Desc | None, **windows: Ints) -> dict[str, tuple[int, ...]]:
    """Parameters of a window, ``strides``, ``pads`` and the like, spelled out for the image that it slides over."""
    n_spatial = max(len(getattr(image, "dims", ())) - 2, 0)
    return {name: _per_dim(kind, name, value, n_spatial) for name, value in windows.items()}


def _per_dim(kind: str, name: str, value: Ints, n_spatial: int) -> tuple[int, ...]:
    """One integer for each spatial dimension, and two of pads: ``(begin..., end...)``."""
    length = 2 * n_spatial if name == "pads" else n_spatial
    values = _integers(kind, name, value)
    if values is None:
        return (operator.index(value),) * length  # type: ignore[arg-type]
    if len(values) != length:
        rule = f"has {len(values)} entries; {n_spatial} spatial dimensions take one integer or {length}"
        raise invalid(kind, name, f"{rule} (all begins, then all ends)" if name == "pads" else rule)
    return values


def _integers(kind: str, name: str, value: Ints) -> tuple[int, ...] | None:
    """The entries, or ``None`` for a single integer."""
    try:
        return None if hasattr(value, "__index__") else tuple(operator.index(entry) for entry in value)
    except TypeError as error:
        raise invalid(kind, name, f"is {value!r}; give an integer or a tuple of integers") from error


def window_extents(kernel: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """The extents that a kernel spans; a dilation of 0 is dense.

    Example:
        >>> window_extents((3, 3), (0, 1))
        (3, 5)
    """
    return tuple((k - 1) * (d + 1) + 1 for k, d in zip(kernel, dilations, strict=True))


def strided_extents(
    extents: Sequence[int], window: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> tuple[int, ...]:
    """Positions of a window over an image, 0 if it spans more: extents after a convolution or pooling.

    Example:
        >>> strided_extents((224, 224), (7, 7), (2, 2), (3, 3, 3, 3))
        (112, 112)
    """
    totals = map(operator.add, pads, pads[len(extents) :])
    return tuple(max((i - w + pad) // s + 1, 0) for i, w, s, pad in zip(extents, window, strides, totals, strict=True))


def transposed_extents(
    extents: Sequence[int], window: Sequence[int], strides: Sequence[int], pads: Sequence[int]
) -> tuple[int, ...]:
    """Extents after a deconvolution, 0 if pads cut off all of it.

    Example:
        >>> transposed_extents((4, 4), (2, 2), (2, 2), (0, 0, 0, 0))
        (8, 8)
    """
    totals = map(operator.add, pads, pads[len(extents) :])
    return tuple(max((i - 1) * s + w - pad, 0) for i, w, s, pad in zip(extents, window, strides, totals, strict=True))


def check_window(spec: Spec, n_spatial: int) -> None:
    """Refuse strides, pads and dilations that mean nothing."""
    for name, length, least in (("strides", n_spatial, 1), ("dilations", n_spatial, 0), ("pads", 2 * n_spatial, None)):
        values = spec.param(name)
        if not is_integers(values, length):
            raise invalid(spec.kind, name, f"is {values!r}; give {length} integers")
        if least is not None and min(values) < least:
            raise invalid(spec.kind, name, f"is {values!r}; each must be at least {least}")
    strides, pads = spec.param("strides"), spec.param("pads")
    require(min(pads[:n_spatial]) >= 0, spec, "pads", f"is {pads}; those in front must be at least 0")
    behind = all(pad + stride > 0 for pad, stride in zip(pads[n_spatial:], strides, strict=True))
    require(behind, spec, "pads", f"is {pads}; those behind must be above minus the strides {strides}")


def is_integers(values: Any, length: int) -> bool:
    """Whether it is a tuple of so many integers, none of them huge.

    Example:
        >>> is_integers((1, 2), 2), is_integers((1, True), 2), is_integers([1, 2], 2)
        (True, False, False)
    """
    if not isinstance(values, tuple) or len(values) != length:
        return False
    return all(type(value) is int and abs(value) <= MAX_INTEGER for value in values)
