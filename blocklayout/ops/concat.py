"""Concatenation."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.errors import LayoutError
from blocklayout.ir.result_format import concatenated
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm
from blocklayout.ops._answers import are_moved
from blocklayout.ops._layouts import argument, like
from blocklayout.ops.views import same_if_alone

_MAX_PARTS = 64
"""Of the primitive that brings each to the result's scale."""


class Concat(ir.BaseOperator, frozen=True):
    """Tensors side by side along ``axis``, not negative: ``n_srcs`` arguments, ``src_0`` and so on."""

    op_types = ("Concat",)
    is_quick_on_arrays = True
    needs = (are_moved,)
    byte_operands = tuple(f"src_{index}" for index in range(_MAX_PARTS))
    sums_products = False
    mixes_bytes = True

    axis: int
    n_srcs: int

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        if not node.inputs:
            raise node.wrong("it has no inputs", "it needs at least one")
        srcs = [node.required(index, "inputs") for index in range(len(node.inputs))]
        axis = node.axis_attr("axis", len(srcs[0].shape), 1 if node.opset < 4 else None)
        _check_shapes(node, srcs, axis)
        return cls(axis, len(srcs)).bind({f"src_{index}": src for index, src in enumerate(srcs)})

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        are_all = rows == {*range(len(node.inputs))}
        return are_all and int(node.attrs.get("axis", 1)) % len(node.shape(0)) != 0

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        ndims, n_sources = len(node.result.shape), len(node.inputs)
        if len(perm) != ndims:
            return None
        axis = perm[int(node.attrs.get("axis", 1)) % ndims]
        return ir.Transposed(perm, {**node.attrs, "axis": axis}, sources=tuple(range(n_sources)))

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = node.axis_attr("axis", len(node.shape(0)), 1 if node.opset < 4 else None)
        return lambda *sources, out: np.concatenate(sources, axis, out=out)

    same_as = staticmethod(same_if_alone)

    @classmethod
    def selects(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        return tuple(range(len(node.inputs)))

    @classmethod
    def requantizes(cls, node: ir.NodeInfo) -> bool:
        return dnnl.has_native_executor() and len(node.inputs) <= _MAX_PARTS

    @classmethod
    def not_negative_if(cls, node: ir.NodeInfo) -> tuple[int, ...] | None:
        return tuple(range(len(node.inputs)))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        axis, before = call.node.axis_attr("axis", len(call.node.result.shape), 1), (slice(None),)
        ends = [0, *accumulate(each.shape[axis] for each in call.sources)]

        def part(grad: Any, *bounds: int) -> Any:
            found = grad[(*before * axis, slice(*bounds))]
            return found if found.is_dense else found.clone()

        return tuple(lambda grad, bounds=bounds: part(grad, *bounds) for bounds in pairwise(ends))

    result_format = staticmethod(concatenated)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        first = wish.src_desc(argument(problem, "src_0"))
        are_all_bytes = len(attr.scales) == self.n_srcs + 1
        if not isinstance(first, MemoryDesc) or attr.post_ops or (attr.scales and not are_all_bytes):
            return None
        srcs = [like(first, argument(problem, f"src_{index}")) for index in range(self.n_srcs)]
        wished = wish.dst_desc(problem.dst)
        dst = wished if isinstance(wished, MemoryDesc) else like(first, problem.dst)
        return ir.Recipe.single(dnnl.concat(srcs, dst, axis=self.axis, attr=attr, n_threads=problem.n_threads))

    def slices(self, problem: ir.Problem, dst: MemoryDesc) -> dict[str, tuple[MemoryDesc, int]] | None:
        found = {}
        begin = [0] * dst.ndims
        for index in range(self.n_srcs):
            info = argument(problem, f"src_{index}")
            dense = like(dst, info)
            if not _is_slice(dst, dense, begin):
                return None
            found[f"src_{index}"] = (dense, dst.offset(*begin) * dst.itemsize)
            begin[self.axis] += info.dims[self.axis]
        return found


def _is_slice(dst: MemoryDesc, dense: MemoryDesc, begin: list[int]) -> bool:
    """Whether the box of ``dst`` that begins there holds the very bytes of a dense tensor."""
    if 0 in dense.dims:
        return False
    try:
        box = dst.submemory(dense.dims, begin)
    except LayoutError:
        return False  # it begins or ends inside of a block
    at_start = MemoryDesc(box.dims, box.dtype, box.layout)
    return dense.readable_as(at_start) and at_start.nbytes == dense.nbytes


def _check_shapes(node: ir.NodeInfo, srcs: list[ir.Value], axis: int) -> None:
    expected = list(srcs[0].shape)
    for src in srcs[1:]:
        if len(src.shape) != len(expected):
            raise node.wrong(f"{src.name} has rank {len(src.shape)}", f"the others have rank {len(expected)}")
        others = [(a, b) for d, (a, b) in enumerate(zip(src.shape, srcs[0].shape, strict=True)) if d != axis]
        if any(a != b for a, b in others):
            rule = f"outside of dimension {axis} they must be those of {srcs[0].name}: {list(srcs[0].shape)}"
            raise node.wrong(f"{src.name} has extents {list(src.shape)}", rule)
        expected[axis] += src.shape[axis]
    node.check_result(expected, f"inputs give {expected}")
