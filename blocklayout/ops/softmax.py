"""Softmax and its logarithm."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.dtypes import to_numpy
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm, inverse, permuted
from blocklayout.ops._answers import along_axis, beside_axis, is_source
from blocklayout.ops._layouts import Follower, are_eltwise, as_row_desc, is_padded, n_lanes, over_padding

_ALGORITHMS = {"Softmax": "softmax_accurate", "LogSoftmax": "softmax_log"}
_FIRST_OPSET_OF_ONE_AXIS = 13


class Softmax(Follower, frozen=True):
    """Normalised exponentials, or their logarithm, along adjacent dimensions, one in newer models, in any layout."""

    op_types = tuple(_ALGORITHMS)
    is_quick_on_arrays = True
    needs = (is_source(1, 12),)

    algorithm: str
    axes: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src = node.required(0, "input")
        return cls(_ALGORITHMS[node.op_type], _axes(node, src.shape)).bind({"src": src})

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        return beside_axis(node, rows, -1 if node.opset >= _FIRST_OPSET_OF_ONE_AXIS else 1)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        if node.opset >= _FIRST_OPSET_OF_ONE_AXIS:
            return along_axis(node, perm, -1)
        first = int(node.attrs.get("axis", 1)) % len(perm)
        axis = _where_trailing(permuted(node.shape(0), inverse(perm)), set(perm[first:]))
        return None if axis is None else ir.Transposed(perm, {**node.attrs, "axis": axis})

    not_negative_if = staticmethod(lambda node: () if node.op_type == "Softmax" else None)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axes, is_log = _axes(node, node.shape(0)), node.op_type == "LogSoftmax"

        def normalise(x: np.ndarray, out: np.ndarray) -> None:
            np.subtract(x, x.max(axes, keepdims=True), out=out)
            powers = np.exp(out)
            total = powers.sum(axes, keepdims=True)
            if is_log:
                np.subtract(out, np.log(total), out=out)
            else:
                np.divide(powers, total, out=out)

        return normalise

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        y, axes = call.results[0], _axes(call.node, call.node.shape(0))
        if call.node.op_type == "LogSoftmax":
            return (lambda grad: grad - y.exp() * grad.reduce_sum(axes),)
        return (lambda grad: y * (grad - (grad * y).reduce_sum(axes)),)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if not are_eltwise(attr.post_ops):
            return None
        # The library normalises over a blocked dimension, and leaves its padding out, where the block is a register.
        is_block = src.inner_idxs == self.axes and src.inner_blks == (n_lanes(),) and src.is_dense
        if is_block and not is_padded(src, {*range(src.ndims)} - {*self.axes}):
            return ir.Recipe.single(self._spec(src, self.axes[0], attr, problem.n_threads))
        view = as_row_desc(src, self.axes)
        if view is not None:
            return over_padding(self._spec(view, 1, attr, problem.n_threads), {"src": src, "dst": dst})
        return self._turned(src, dst, attr, problem.n_threads)

    def _turned(self, src: MemoryDesc, dst: MemoryDesc, attr: dnnl.Attr, n_threads: int) -> ir.Recipe:
        order = [*(dim for dim in range(src.ndims) if dim not in self.axes), *self.axes]
        turned = MemoryDesc([src.dims[dim] for dim in order], src.dtype)
        length = prod(src.dims[axis] for axis in self.axes)
        rows = MemoryDesc((src.n_elements // length, length), src.dtype)
        back = turned.permuted([order.index(dim) for dim in range(src.ndims)])
        steps = (
            _step(dnnl.reorder(src, back, n_threads=n_threads), "src", "rows"),
            _step(self._spec(rows, 1, attr, n_threads), "rows", "rows"),
            _step(dnnl.reorder(back, dst, n_threads=n_threads), "rows", "dst"),
        )
        return ir.Recipe(steps, (("rows", rows),), (("src", src), ("dst", dst)))

    def _spec(self, desc: MemoryDesc, axis: int, attr: dnnl.Attr, n_threads: int) -> dnnl.Spec:
        return dnnl.softmax(desc, desc, axis=axis, algorithm=self.algorithm, attr=attr, n_threads=n_threads)


def _step(spec: dnnl.Spec, source: str, result: str) -> ir.RecipeStep:
    return ir.RecipeStep(spec, (("dst", result), ("src", source)))


def _axes(node: ir.NodeInfo, shape: tuple[int, ...]) -> tuple[int, ...]:
    if node.opset >= _FIRST_OPSET_OF_ONE_AXIS:
        return (node.axis_attr("axis", len(shape), -1),)
    # Before opset 13 everything from the axis on was flattened into one dimension (a 1-D source has axis 0 only).
    first = node.axis_attr("axis", len(shape), min(1, len(shape) - 1))
    wide = tuple(axis for axis in range(first, len(shape)) if shape[axis] != 1)
    return wide or (first,)


def _where_trailing(shape: tuple[int, ...], dims: set[int]) -> int | None:
    """The first of ``dims`` if they are the last ones, apart from extents of 1."""
    wide = {dim for dim, extent in enumerate(shape) if extent != 1}
    first = min(wide & dims, default=len(shape) - 1)
    return first if wide & set(range(first, len(shape))) == wide & dims else None


class Hardmax(ir.Facts, frozen=True):
    """One where the largest element along some dimensions stands, zero elsewhere."""

    op_types = ("Hardmax",)

    keeps_rows = staticmethod(Softmax.keeps_rows)
    transposed = staticmethod(Softmax.transposed)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        dims = node.shape(0)
        axis = node.axis_attr("axis", len(dims), -1 if node.opset >= 13 else 1)
        # Before, the dimensions from the axis on were one.
        shape = dims if node.opset >= 13 else (*dims[:axis], prod(dims[axis:]))

        def mark(x: np.ndarray, out: np.ndarray) -> None:
            out[...] = 0
            largest = np.argmax(x.reshape(shape), axis, keepdims=True)
            np.put_along_axis(out.reshape(shape), largest, 1, axis)

        return mark


class LpNormalization(ir.Facts, frozen=True):
    """Elements divided by their norm along one dimension."""

    op_types = ("LpNormalization",)

    keeps_rows = staticmethod(beside_axis)
    transposed = staticmethod(partial(along_axis, default=-1))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x,), (y,), bl, node = call.sources, call.results, call.bl, call.node
        axes, is_l1 = (node.axis_attr("axis", x.ndim, -1),), node.int_attr("p", 2) == 1

        def gradient(grad: Any) -> Any:
            norm, slope = (x.reduce_l1(axes), bl.op("Sign", x)) if is_l1 else (x.reduce_l2(axes), y)
            return (grad - (grad * y).reduce_sum(axes) * slope) / norm

        return (gradient,)

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis, p = node.axis_attr("axis", len(node.shape(0)), -1), node.int_attr("p", 2)

        def divide(x: np.ndarray, out: np.ndarray) -> None:
            norm = np.absolute(x).sum(axis, keepdims=True)
            if p == 2:
                norm = np.sqrt(np.square(x).sum(axis, keepdims=True))
            norm[norm == 0] = 1
            np.divide(x, norm, out=out)

        return divide


class Loss(ir.Facts, frozen=True):
    """Cross-entropy of classes along dimension 1, of scores or of logarithms of probabilities."""

    op_types = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, labels, *weights), bl, node = call.sources, call.bl, call.node
        reduction, ignored = node.string_attr("reduction", ("mean", "none", "sum")), node.attrs.get("ignore_index")
        if len(call.results) > 1:
            return "the logarithms beside the loss have no gradient here; use log_softmax"
        beside = (labels.shape[0], 1, *labels.shape[1:])

        def gradient(grad: Any) -> Any:
            """Each row's share of the loss, times its probabilities, less that of its label."""
            marks = bl.op("OneHot", labels, (x.shape[1],), np.array([0, 1], to_numpy(x.dtype)), axis=1)
            for each in weights:
                marks = marks * each.reshape((-1, *(1 for _ in x.shape[2:])))
            if ignored is not None:
                marks = marks * (labels != ignored).astype(x.dtype).reshape(beside)
            own = grad.reshape(beside if reduction == "none" else (1,) * x.ndim)
            own = own / marks.reduce_sum() if reduction == "mean" else own
            is_of_scores = node.op_type == "SoftmaxCrossEntropyLoss"
            return ((x.softmax(1) * marks.reduce_sum((1,)) - marks) if is_of_scores else -marks) * own

        return (gradient,)
