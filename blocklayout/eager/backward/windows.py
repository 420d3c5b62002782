"""Strides, pads, dilations and kernels as ONNX has them, from one number or several."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blocklayout.eager.backward.call import Call

Extents = int | Sequence[int]
"""One number for every spatial dimension, or one each."""


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial dimensions.

    Attributes:
        kernel: Its extents.
        strides: Steps between two windows.
        pads: Zeros in front of each dimension, then behind.
        dilations: Elements skipped between two of a window: 0 is dense, as oneDNN has it.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    def extents(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Windows along each dimension, below 1 where none fits.

        Example:
            >>> Window((3,), (2,), (1, 1), (0,)).extents((8,))
            (4,)
        """
        n = len(self.kernel)
        return tuple(
            (spatial[d] + self.pads[d] + self.pads[n + d] - self.reach[d]) // self.strides[d] + 1 for d in range(n)
        )

    @cached_property
    def reach(self) -> tuple[int, ...]:
        """What the kernel spans, with what it skips."""
        return tuple((k - 1) * (d + 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))


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
    window = Window(
        _numbers(call, "kernel", kernel, n, 1),
        _numbers(call, "strides", strides, n, 1),
        _pads(call, pads, n),
        tuple(dilation - 1 for dilation in _numbers(call, "dilations", dilations, n, 1)),
    )
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
