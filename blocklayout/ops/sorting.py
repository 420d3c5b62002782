"""The largest or smallest elements along one dimension."""

from __future__ import annotations

import numpy as np

from blocklayout import ir
from blocklayout.ops._answers import beside_axis

_WORTH_PARTING = 4
"""How many times as many elements there must be as are wanted, for parting them before sorting to pay."""


class TopK(ir.Facts, frozen=True):
    """The first of the sorted elements, and their places; of equal ones that with the lower index comes first."""

    op_types = ("TopK",)
    is_quick_on_arrays = True

    keeps_rows = staticmethod(beside_axis)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = node.axis_attr("axis", len(node.shape(0)), -1)
        is_largest = bool(node.int_attr("largest", 1))

        def top(x: np.ndarray, k: ir.Given = None, *, out: tuple[ir.Given, ir.Given]) -> None:
            del k  # is the results' extent
            [extent, *_] = (each.shape[axis] for each in out if each is not None)
            for written, found in zip(out, _top(x, extent, axis, is_largest=is_largest), strict=True):
                if written is not None:
                    written[...] = found

        return top

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        is_largest = bool(node.int_attr("largest", 1))

        def top(x: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            axis, n = node.axis_attr("axis", x.ndim, -1), int(k.item())
            if not 0 <= n <= x.shape[axis]:
                raise node.wrong(f"k is {n}", f"axis {axis} has {x.shape[axis]} elements")
            return _top(x, n, axis, is_largest=is_largest)

        return top


def _top(x: np.ndarray, n: int, axis: int, *, is_largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The first ``n`` elements along a dimension, and their places."""
    source = np.moveaxis(x, axis, -1)
    places = _first(source, n, is_largest=is_largest) if n else np.zeros((*source.shape[:-1], 0), np.int64)
    values = np.take_along_axis(source, places, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


def _first(x: np.ndarray, n: int, *, is_largest: bool) -> np.ndarray:
    extent = x.shape[-1]
    if extent <= n * _WORTH_PARTING:
        return _sorted(x, is_largest=is_largest)[..., :n]
    if is_largest:
        found = np.argpartition(x, extent - n, -1)[..., extent - n :]
    else:
        found = np.argpartition(x, n - 1, -1)[..., :n]
    found.sort(-1)
    values = np.take_along_axis(x, found, -1)
    within = x >= values.min(-1, keepdims=True) if is_largest else x <= values.max(-1, keepdims=True)
    if (within.sum(-1) != n).any():  # others are equal to the last one, or something is NaN
        return _sorted(x, is_largest=is_largest)[..., :n]
    return np.take_along_axis(found, _sorted(values, is_largest=is_largest), -1)


def _sorted(x: np.ndarray, *, is_largest: bool) -> np.ndarray:
    order = np.argsort(x if not is_largest else x[..., ::-1], -1, kind="stable")
    return np.subtract(x.shape[-1] - 1, order[..., ::-1]) if is_largest else order
