"""Interpolation by matrices: what is left of Resize where resampling does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, Problem, Recipe, Value, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._mixed_radix import paired
from blocklayout.ops._reducing import Steps


class Interpolate(BaseOperator, frozen=True):
    """Along some dimensions a product with a matrix each, ``matrix_2`` and so on: (new extent, old extent).

    Runs in every dense layout: the digits before a dimension are a batch, those behind it are columns.

    Attributes:
        axes: The dimensions.
    """

    axes: tuple[int, ...]

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or attr.post_ops:
            return None
        src, dst = descs
        pairs = paired(src, dst, self.axes)
        if pairs is None:
            return None
        order = [given.dim for given, _ in pairs]
        extents, steps = [given.extent for given, _ in pairs], Steps(src.dtype, problem.n_threads)
        for axis in self.axes:
            index = order.index(axis)
            new = pairs[index][1].extent
            _multiply(steps, extents, index, new, f"matrix_{axis}")
            extents[index] = new
        done, temporaries = steps.finished()
        matrices = {name: MemoryDesc(info.dims, src.dtype) for name, info in problem.constants.items()}
        return Recipe(done, temporaries, (("src", src), ("dst", dst), *matrices.items()))


def interpolated(src: Value, matrices: Mapping[int, np.ndarray]) -> Lowered:
    """The operator that multiplies ``src`` with a matrix along each of some dimensions."""
    return Interpolate(tuple(matrices)).bind({"src": src}, {f"matrix_{axis}": m for axis, m in matrices.items()})


def _multiply(steps: Steps, extents: Sequence[int], index: int, new: int, matrix: str) -> None:
    """Append the product along one of the extents."""
    lead, old, inner = prod(extents[:index]), extents[index], prod(extents[index + 1 :])
    if inner == 1:
        turned = MemoryDesc((old, new), steps.dtype, strides=(1, old))
        src, dst = MemoryDesc((lead, old), steps.dtype), MemoryDesc((lead, new), steps.dtype)
        steps.add(dnnl.matmul(src, turned, dst, n_threads=steps.n_threads), "src", (("weights", matrix),))
        return
    rows = MemoryDesc((1, new, old), steps.dtype)
    src, dst = MemoryDesc((lead, old, inner), steps.dtype), MemoryDesc((lead, new, inner), steps.dtype)
    steps.add(dnnl.matmul(rows, src, dst, n_threads=steps.n_threads), "weights", (("src", matrix),))
