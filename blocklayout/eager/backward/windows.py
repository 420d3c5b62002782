"""Strides, pads, dilations and kernels as ONNX has them, from one number or several."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blocklayout.ir import Window

if TYPE_CHECKING:
    from blocklayout.eager.backward.call import Call

Extents = int | Sequence[int]
"""One number for every spatial dimension, or one each."""


def read_window(
    call: Call,
    spatial: Sequence[int],
    kernel: Extents,
    strides: Extents,
    pads: Extents,
    dilations: Extents = 1,
) -> Window:
    """The window of a convolution or a pooling over an image of these extents.

    Raises:
        InputError: An argument has another length, means nothing, or no window fits into the padded image.
    """
    n = len(spatial)
    extents, steps = _numbers(call, "kernel", kernel, n, 1), _numbers(call, "strides", strides, n, 1)
    around = _pads(call, pads, n)
    window = Window(extents, steps, around[:n], around[n:], _numbers(call, "dilations", dilations, n, 1))
    if min(window.extents(spatial)) < 1:
        rule = f"of {window.kernel} with dilations {dilations} spans more than the padded image of {tuple(spatial)}"
        raise call.error("kernel", f"{rule}; give a smaller one, or pads")
    return window


def _pads(call: Call, value: Extents, n: int) -> tuple[int, ...]:
    if isinstance(value, Sequence) and len(value) == n:
        return _numbers(call, "pads", value, n, 0) * 2
    return _numbers(call, "pads", value, 2 * n, 0, f"one number, {n}, or {2 * n}: all in front, then all behind")


def _numbers(call: Call, name: str, value: Extents, n: int, least: int, right: str = "") -> tuple[int, ...]:
    try:
        each = tuple(map(operator.index, value)) if isinstance(value, Sequence) else (operator.index(value),) * n
    except TypeError:
        raise call.error(name, f"is {value!r}; give {right or f'one integer, or {n} of them'}") from None
    if len(each) != n:
        raise call.error(name, f"has {len(each)} entries; give {right or f'one integer, or {n} of them'}")
    if min(each) < least:
        raise call.error(name, f"is {value!r}; each must be at least {least}")
    return each
