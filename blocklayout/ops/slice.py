"""Slice: a box inside a tensor, over the same bytes; copied where it leaves elements out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, product
from typing import Any

import numpy as np
from msgspec import Struct

from blocklayout import dnnl, ir
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm
from blocklayout.ops._answers import MOVED, along_axis, always, beside_axis, is_known, with_axes
from blocklayout.ops._layouts import Follower, copy_spec, paired
from blocklayout.ops.indexing import take
from blocklayout.ops.views import same_if_same_shape

_Part = tuple[MemoryDesc, MemoryDesc, tuple[int, ...]]
"""Where it lies in the source and in the result, and along which axes it is copied backwards."""

_INPUTS = {"starts": 1, "ends": 2, "axes": 3, "steps": 4}


def _sliced_axes(node: ir.NodeInfo) -> tuple[int, ...] | None:
    """The dimensions that a Slice names; ``None`` where they are known at run time only."""
    axes = node.integers(_INPUTS["axes"], "axes")
    if axes is not None or node.has_input(_INPUTS["axes"]):
        return axes
    return tuple(range(len(node.attrs["starts"]) if "starts" in node.attrs else node.shape(_INPUTS["starts"])[0]))


def _cut(node: ir.NodeInfo, x: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> np.ndarray:
    box = [slice(None)] * x.ndim
    along = range(len(starts)) if axes is None else axes
    strides = (1,) * len(starts) if steps is None else steps
    for axis, *bounds in zip(along, starts, ends, strides, strict=True):
        if not -x.ndim <= axis < x.ndim or not bounds[2]:
            what = f"axis {axis} of {x.ndim} is sliced with a step of {bounds[2]}"
            raise node.wrong(what, "axes must be there, and no step can be 0")
        box[axis] = slice(*map(int, bounds))
    return x[tuple(box)]


class Slice(ir.BaseOperator, frozen=True):
    """Neighbouring elements from ``offsets`` on along every dimension: the result has the extents ``shape``."""

    op_types = ("Slice",)
    is_quick_on_arrays = True
    role = ir.Role.VIEW
    needs = tuple(is_known(index, name) for name, index in _INPUTS.items())

    shape: tuple[int, ...]
    offsets: tuple[int, ...]

    on_arrays = staticmethod(lambda node: partial(_cut, node))

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src = node.required(0, "data")
        starts, ends, axes, steps = (node.integers(index, name) or () for name, index in _INPUTS.items())
        axes = axes or tuple(range(len(starts)))
        steps = steps or (1,) * len(starts)
        ndims = len(src.shape)
        if any(not -ndims <= axis < ndims for axis in axes):
            raise node.wrong(f"axes are {list(axes)}", f"rank {ndims} allows {-ndims} to {ndims - 1}")
        offsets, distances = [0] * ndims, [1] * ndims
        for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
            kept = range(*slice(*bounds).indices(src.shape[axis]))
            # What has no elements begins anywhere, and one element takes no step.
            offsets[axis] = kept[0] if kept else 0
            distances[axis] = bounds[-1] if len(kept) > 1 else 1
        if all(distance == 1 for distance in distances):
            return cls(node.result.shape, tuple(offsets)).bind({"src": src})
        return node.of_other_dtype(src, MOVED) or SteppedSlice(tuple(offsets), tuple(distances)).bind({"src": src})

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        attrs = [node.attrs.get(name) for name in _INPUTS]
        return lambda x, *given, out: np.copyto(out, _cut(node, x, *(given or attrs)))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        node, bl, desc = call.node, call.bl, call.sources[0].desc
        starts, ends, _, steps = (node.integers(index, name) for name, index in _INPUTS.items())
        axes, has_steps = _sliced_axes(node), node.has_input(_INPUTS["steps"])
        steps = steps if has_steps else (1,) * desc.ndims
        if not (starts and ends and axes and steps):
            return "its bounds are computed; give numbers"
        index = [slice(None)] * desc.ndims
        for axis, *bounds in zip(axes, starts, ends, steps, strict=False):
            index[axis] = slice(*bounds)
        return (lambda grad: bl.slice_backward(grad, desc, tuple(index)),)

    selects = staticmethod(always((0,)))

    @classmethod
    def same_as(cls, node: ir.NodeInfo) -> int | None:
        steps = node.constant(_INPUTS["steps"])
        goes_forward = not node.has_input(_INPUTS["steps"]) if steps is None else bool(np.all(steps > 0))
        return same_if_same_shape(node) if goes_forward else None

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        axes = _sliced_axes(node)
        return rows == {0} and axes is not None and all(axis % len(node.shape(0)) for axis in axes)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        axes = _sliced_axes(node)
        if axes is None:
            return None
        turned = tuple(perm[axis % len(perm)] for axis in axes)
        return with_axes(node, _INPUTS["axes"], turned, perm, attribute="starts")

    def through(self, desc: MemoryDesc) -> MemoryDesc | None:
        try:
            return desc.submemory(self.shape, self.offsets)
        except LayoutError:
            return None


class SteppedSlice(Follower, frozen=True):
    """Copies of elements ``steps`` apart from ``offsets`` on, 0 for the same again; cut dimensions have no blocks."""

    offsets: tuple[int, ...]
    steps: tuple[int, ...]

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        parts = self._parts(src, dst)
        if parts is None or attr.post_ops:
            return None
        specs = (copy_spec(*part, problem.n_threads) for part in parts)
        steps = tuple(ir.RecipeStep(spec, (("dst", "dst"), ("src", "src"))) for spec in specs)
        return ir.Recipe(steps, (), (("src", src), ("dst", dst)))

    def _parts(self, src: MemoryDesc, dst: MemoryDesc) -> list[_Part] | None:
        is_cut = {dim for dim, step in enumerate(self.steps) if dst.dims[dim] != src.dims[dim] or step != 1}
        pairs = paired(src, dst, is_cut)
        if pairs is None:
            return None
        lines = [
            _Line(digit.stride, self.offsets[digit.dim], self.steps[digit.dim], digit.extent, part.extent)
            for digit, part in pairs
        ]
        return [_part(lines, chosen, src.dtype) for chosen in product(*(line.stretches for line in lines))]


class _Line(Struct, frozen=True):
    """Of ``whole`` elements along a digit of a dense source, the ``n_kept`` that are taken, ``offset`` the first."""

    stride: int
    offset: int
    step: int
    whole: int
    n_kept: int

    @property
    def stretches(self) -> tuple[tuple[int, int], ...]:
        """Beginnings and extents in the result: the library has no strides that leave the source at the end."""
        if self.n_kept * abs(self.step) <= self.whole:
            return ((0, self.n_kept),)
        return (0, self.n_kept - 1), (self.n_kept - 1, 1)


def _part(lines: Sequence[_Line], stretches: Sequence[tuple[int, int]], dtype: str) -> _Part:
    begins, box = zip(*stretches, strict=True)
    strides = tuple(line.stride * abs(line.step) for line in lines)
    lowest = (begin + n - 1 if line.step < 0 else begin for line, (begin, n) in zip(lines, stretches, strict=True))
    offset = sum((line.offset + at * line.step) * line.stride for line, at in zip(lines, lowest, strict=True))
    target = MemoryDesc((line.n_kept for line in lines), dtype).submemory(box, begins)
    backwards = tuple(axis for axis, line in enumerate(lines) if line.step < 0)
    return MemoryDesc(box, dtype, strides=strides, offset=offset), target, backwards


class Split(ir.Facts, frozen=True):
    """Parts along one dimension."""

    op_types = ("Split",)
    is_quick_on_arrays = True
    rounds = staticmethod(always(False))

    keeps_rows = staticmethod(partial(beside_axis, default=0))
    selects = staticmethod(always((0,)))
    transposed = staticmethod(along_axis)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        bl, axis = call.bl, call.node.axis_attr("axis", len(call.node.shape(0)), 0)
        descs = [each.desc for each in call.results]

        def joined(_: Any, *grads: Any) -> Any:
            parts = zip(grads, descs, strict=True)
            return (bl.concat([bl.zeros(d.dims, d.dtype, d.format_tag) if g is None else g for g, d in parts], axis),)

        return joined

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis, sizes = node.axis_attr("axis", len(node.shape(0)), 0), node.attrs.get("split")

        def split(x: np.ndarray, given: Any = None, *, out: Any) -> None:
            parts = out if isinstance(out, tuple) else (out,)
            equal = [-(-x.shape[axis] // len(parts))] * (len(parts) - 1)
            ends = list(accumulate(equal if given is None and sizes is None else given if sizes is None else sizes))
            for part, source in zip(parts, np.split(x, ends[: len(parts) - 1], axis), strict=True):
                if part is not None:
                    np.copyto(part, source)

        return split


class Gather(ir.Facts, frozen=True):
    """Elements at any places along one dimension."""

    op_types = ("Gather",)
    is_quick_on_arrays = True
    rounds = staticmethod(always(False))
    selects = staticmethod(always((0,)))

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        is_first = int(node.attrs.get("axis", 0)) % len(node.shape(0)) == 0
        return rows == ({1} if is_first else {0}) and len(node.shape(1)) + len(node.shape(0)) > 1

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        places = node.constant(1)
        if places is None or places.ndim > 1:
            return None
        return along_axis(node, perm, keeps_axis=places.ndim == 1)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        bl, (x, places), axis = call.bl, call.sources, call.node.axis_attr("axis", len(call.node.shape(0)), 0)
        dims, dtype, marks = x.shape, x.dtype, call.node.shape(1)
        shape, index = (*dims[:axis], *marks, *dims[axis + 1 :]), places.reshape((*marks, 1))
        first, rows = tuple(range(axis, axis + len(marks))), (dims[axis], *dims[:axis], *dims[axis + 1 :])
        order = (*first, *(dim for dim in range(len(shape)) if dim not in first))

        def added(grad: Any) -> Any:
            """Slices added up at their places, as the first dimension, which goes to its place then."""
            updates = grad.reshape(shape).transpose(order)
            found = bl.op("ScatterND", bl.zeros(rows, dtype), index, updates, reduction="add")
            return found.transpose((*range(1, axis + 1), 0, *range(axis + 1, len(dims))))

        return (added,)

    in_numpy = staticmethod(lambda node: partial(take, axis=node.axis_attr("axis", len(node.shape(0)), 0)))
