"""Interpolation by matrices, and picking in equal steps: what is left of Resize where resampling does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from blocklayout import dnnl
from blocklayout.kernels import BaseOperator, Lowered, Problem, Recipe, RecipeStep, Role, Value, Wish
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._digits import digits
from blocklayout.ops._reading import bound
from blocklayout.ops._reducing import Steps


@dataclass(frozen=True)
class Interpolate(BaseOperator):
    """Along some dimensions a product with a matrix each, ``matrix_2`` and so on: (new extent, old extent).

    Runs in every dense layout: the digits before a dimension are a batch, those behind it are columns.

    Attributes:
        axes: The dimensions.
    """

    role: ClassVar[Role] = Role.FOLLOWER

    axes: tuple[int, ...]

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or attr.post_ops:
            return None
        src, dst = descs
        parts, results = digits(src, kept=self.axes), digits(dst, kept=self.axes)
        if parts is None or results is None or any(src.layout.blocks[axis] != 1 for axis in self.axes):
            return None
        order = [part.dim for part in parts]
        if order != [part.dim for part in results]:
            return None
        extents, steps = [part.extent for part in parts], Steps(src.dtype, problem.n_threads)
        for axis in self.axes:
            index = order.index(axis)
            _multiply(steps, extents, index, results[index].extent, f"matrix_{axis}")
            extents[index] = results[index].extent
        done, temporaries = steps.finished()
        matrices = {name: MemoryDesc(info.dims, src.dtype) for name, info in problem.constants.items()}
        return Recipe(done, temporaries, (("src", src), ("dst", dst), *matrices.items()))


def interpolated(src: Value, matrices: Mapping[int, np.ndarray]) -> Lowered:
    """The operator that multiplies ``src`` with a matrix along each of some dimensions."""
    return bound(Interpolate(tuple(matrices)), {"src": src}, {f"matrix_{axis}": m for axis, m in matrices.items()})


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


@dataclass(frozen=True)
class Pick(BaseOperator):
    """Elements in equal steps along every dimension, as one copy.

    Attributes:
        steps: For each dimension the first element and the distance to the next.
    """

    role: ClassVar[Role] = Role.FOLLOWER

    steps: tuple[tuple[int, int], ...]

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or attr.post_ops:
            return None
        views = self._views(*descs)
        if views is None:
            return None
        step = RecipeStep(dnnl.reorder(*views, n_threads=problem.n_threads), (("dst", "dst"), ("src", "src")))
        return Recipe((step,), (), (("src", descs[0]), ("dst", descs[1])))

    def _views(self, src: MemoryDesc, dst: MemoryDesc) -> tuple[MemoryDesc, MemoryDesc] | None:
        changed = [dim for dim, step in enumerate(self.steps) if src.dims[dim] != dst.dims[dim] or step != (0, 1)]
        if any(src.layout.blocks[dim] != 1 for dim in changed):
            return None
        parts, results = digits(src, kept=changed), digits(dst, kept=changed)
        if parts is None or results is None or [part.dim for part in parts] != [part.dim for part in results]:
            return None
        dims = tuple(part.extent for part in results)
        strides = tuple(part.stride * (self.steps[part.dim][1] if part.dim in changed else 1) for part in parts)
        offset = sum(part.stride * self.steps[part.dim][0] for part in parts if part.dim in changed)
        return MemoryDesc(dims, src.dtype, strides=strides, offset=offset), MemoryDesc(dims, dst.dtype)
