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
from blocklayout.ops._answers import always, are_moved
from blocklayout.ops._layouts import argument, like
from blocklayout.ops.views import same_if_alone

_MAX_PARTS = 64
"""Of the primitive that brings each to the result's scale."""


def _axis(node: ir.NodeInfo) -> int:
    return int(node.attrs["axis"]) % len(node.shape(0))


class Concat(ir.BaseOperator, frozen=True):
    """Tensors side by side along ``axis``, not negative: ``n_srcs`` arguments, ``src_0`` and so on."""

    op_types = ("Concat",)
    is_quick_on_arrays = True
    needs = (are_moved,)
    rounds = staticmethod(always(False))
    byte_operands = tuple(f"src_{index}" for index in range(_MAX_PARTS))
    mixes_bytes = True

    axis: int
    n_srcs: int

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        srcs = {f"src_{index}": node.required(index, "inputs") for index in range(len(node.inputs))}
        return cls(_axis(node), len(srcs)).bind(srcs)

    keeps_rows = staticmethod(lambda node, rows: rows == {*range(len(node.inputs))} and _axis(node) != 0)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        if len(perm) != len(node.result.shape):
            return None
        return ir.Transposed(perm, {"axis": perm[_axis(node)]}, sources=tuple(range(len(node.inputs))))

    @classmethod
    def in_numpy(cls, node: ir.NodeInfo) -> ir.NumpyFunction | None:
        axis = _axis(node)
        return lambda *sources, out: np.concatenate(sources, axis, out=out)

    same_as = staticmethod(same_if_alone)
    selects = not_negative_if = staticmethod(lambda node: tuple(range(len(node.inputs))))
    requantizes = staticmethod(lambda node: dnnl.has_native_executor() and len(node.inputs) <= _MAX_PARTS)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        axis, before = _axis(call.node), (slice(None),)
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
