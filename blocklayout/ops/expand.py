"""Expand: the same elements again and again along some dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm, inverse
from blocklayout.ops._answers import MOVED, always, in_order, repeated
from blocklayout.ops._gradients import same
from blocklayout.ops._layouts import argument, digits, is_padded, like, seen_as
from blocklayout.ops.views import Reshape, same_if_same_shape
from blocklayout.resource_limits import check_affordable


def _transposed(node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
    """With a number for each dimension, or for the last ones, in input 1."""
    numbers = node.constant(1)
    if numbers is None or numbers.size > len(perm):
        return None
    full = np.concatenate([np.ones(len(perm) - numbers.size, np.int64), numbers])
    return ir.Transposed(perm, node.attrs, {1: in_order(full, inverse(perm))})


class Expand(ir.BaseOperator, frozen=True):
    """A copy out of a source whose strides along some dimensions are 0."""

    op_types = ("Expand",)
    is_quick_on_arrays = True
    extents_read = (1,)
    rounds = staticmethod(always(False))

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        def expand(x: np.ndarray, extents: np.ndarray) -> np.ndarray:
            try:
                shape = np.broadcast_shapes(x.shape, tuple(map(int, extents)))
            except ValueError:
                what = f"its input has extents {list(x.shape)}, its shape is {extents.tolist()}"
                raise node.wrong(what, "they must broadcast") from None
            check_affordable(shape, x.itemsize, f"node {node.name!r}: its output")
            return np.array(np.broadcast_to(x, shape), order="C")

        return expand

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, dst = node.required(0, "input"), node.result
        if refusal := node.of_other_dtype(src, MOVED) or node.of_other_rank(dst, 0, 12):
            return refusal
        is_whole = (1,) * (len(dst.shape) - len(src.shape)) + src.shape == dst.shape
        return (Reshape(dst.dims) if is_whole else cls()).bind({"src": src})

    backward = staticmethod(always((same,)))
    in_numpy = staticmethod(always(lambda x, _, out: np.copyto(out, x)))
    keeps_rows = staticmethod(repeated)
    selects = staticmethod(always((0,)))
    transposed = staticmethod(_transposed)
    same_as = staticmethod(same_if_same_shape)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        info = argument(problem, "src")
        full = (1,) * (len(problem.dst.dims) - len(info.dims)) + info.dims
        try:
            dst = wish.dst_desc(problem.dst)
            if attr.post_ops or not isinstance(dst, MemoryDesc):
                return None
            src = like(dst, ir.TensorInfo(full, info.dtype))
        except LayoutError:
            return None
        repeated = {dim for dim, (s, d) in enumerate(zip(src.dims, dst.dims, strict=True)) if s != d}
        views, seen = _views(src, dst, repeated), seen_as(src, info.dims)
        if views is None or seen is None:
            return None
        spec = dnnl.reorder(*views, n_threads=problem.n_threads)
        after = (ir.zero_padding_step(dst),) if is_padded(dst, repeated) else ()
        return ir.Recipe((*ir.Recipe.single(spec).steps, *after), (), (("src", seen), ("dst", dst)))


def _views(src: MemoryDesc, dst: MemoryDesc, repeated: set[int]) -> tuple[MemoryDesc, MemoryDesc] | None:
    given, written = digits(src), digits(dst)
    if given is None or written is None:
        return None
    kept = iter([digit.stride for digit in given if digit.dim not in repeated])
    strides = [0 if digit.dim in repeated else next(kept) for digit in written]
    dims = tuple(digit.extent for digit in written)
    return MemoryDesc(dims, src.dtype, strides=strides), MemoryDesc(dims, dst.dtype)


class Tile(ir.Facts, frozen=True):
    """The whole tensor again and again along some dimensions."""

    op_types = ("Tile",)
    is_quick_on_arrays = True
    rounds = staticmethod(always(False))

    @classmethod
    def on_arrays(cls, node: ir.NodeInfo) -> ir.ArraysFunction | None:
        def tile(x: np.ndarray, repeats: np.ndarray) -> np.ndarray:
            if repeats.size != x.ndim or (repeats < 0).any():
                what = f"its input has extents {list(x.shape)}, its repeats are {repeats.tolist()}"
                raise node.wrong(what, "there must be one of at least 0 for each dimension")
            shape = [extent * n for extent, n in zip(x.shape, repeats, strict=True)]
            check_affordable(shape, x.itemsize, f"node {node.name!r}: its output")
            return np.tile(x, repeats)

        return tile

    keeps_rows = staticmethod(repeated)
    selects = staticmethod(always((0,)))
    transposed = staticmethod(_transposed)
    same_as = staticmethod(same_if_same_shape)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        dims, counts = call.sources[0].shape, call.node.integers(1, "repeats")
        if counts is None:
            return "its repeats are computed; give numbers"
        parts, copies = [n for pair in zip(counts, dims, strict=True) for n in pair], range(0, 2 * len(dims), 2)
        return (lambda grad: grad.reshape(parts).reduce_sum(copies, keepdims=False),)

    in_numpy = staticmethod(lambda node: _repeat if 0 not in node.result.shape else None)


def _repeat(x: np.ndarray, counts: np.ndarray, out: np.ndarray) -> None:
    copies = [extent for pair in zip(counts.tolist(), x.shape, strict=True) for extent in pair]
    once = [extent for own in x.shape for extent in (1, own)]
    np.copyto(out.reshape(copies), x.reshape(once))
