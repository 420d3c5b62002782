"""Convolutions of integers, exact."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.lib.stride_tricks import sliding_window_view

from blocklayout.ir import Lowered, NodeInfo, NumpyFunction, Refusal, Window
from blocklayout.ir.result_format import dominating
from blocklayout.ops._window import read_window
from blocklayout.ops._zero_points import ByteProduct, exact_floats, have_one_number, is_exact, of_signed
from blocklayout.ops.conv import Conv


def _has_known_weights(node: NodeInfo) -> Refusal | None:
    """Around 0, or around the middle of unsigned bytes: they are made signed, and then the zero point is 0."""
    weights = node.required(1, "W")
    if weights.data is not None and of_signed(weights, node.input(3)) == 0:
        return None
    what = f"W ({weights.name}) is computed at run time, or its zero point is none of 0 for s8 and 128 for u8"
    return node.refused(what, "its primitive takes weights around 0")


class IntegerConvolution(ByteProduct, frozen=True):
    """A convolution of bytes."""

    op_types = ("ConvInteger",)
    needs = (is_exact, have_one_number, _has_known_weights)

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        return cls.with_zeros(Conv.from_onnx(replace(node, inputs=node.inputs[:2])), node)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        convolve = exact_convolution(node, node.shape(1))

        def compute(x: np.ndarray, w: np.ndarray, *zeros: np.ndarray | None, out: np.ndarray) -> None:
            np.copyto(out, convolve(x, w, *zeros), casting="unsafe")

        return compute

    result_format = staticmethod(dominating)


def exact_convolution(node: NodeInfo, weights: tuple[int, ...]) -> Any:
    """A function of arrays ``x``, ``w`` and their zero points, by floats wide enough for every sum."""
    window = read_window(node, weights[2:], node.shape(0)[2:])
    groups = node.int_attr("group", 1)

    def convolve(
        x: np.ndarray, w: np.ndarray, x_zero: np.ndarray | None = None, w_zero: np.ndarray | None = None
    ) -> np.ndarray:
        wide = exact_floats(prod(w.shape[1:]))
        x, w = x.astype(wide), w.astype(wide)
        if x_zero is not None:
            x -= x_zero
        if w_zero is not None:
            w -= w_zero.reshape(-1, *(1,) * (w.ndim - 1))
        return _convolved(x, w, window, groups)

    return convolve


def _convolved(x: np.ndarray, w: np.ndarray, window: Window, groups: int) -> np.ndarray:
    """As one product of matrices for each group, of windows side by side."""
    n_spatial = x.ndim - 2
    padded = np.pad(x, [(0, 0), (0, 0), *zip(window.pads_begin, window.pads_end, strict=True)])
    seen = sliding_window_view(padded, window.reach, tuple(range(2, x.ndim)))
    steps: Any = (slice(None, None, step) for step in window.strides + window.dilations)
    seen = seen[(..., *steps)]
    parts = zip(np.split(seen, groups, 1), np.split(w, groups), strict=True)
    summed = (1, *range(2 + n_spatial, 2 + 2 * n_spatial))
    found = [np.tensordot(part, weights, (summed, range(1, w.ndim))) for part, weights in parts]
    return np.moveaxis(np.concatenate(found, -1), -1, 1)
