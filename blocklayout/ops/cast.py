"""Cast to a floating-point type."""

from __future__ import annotations

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.dtypes import PRIMITIVE_FLOATS
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import always
from blocklayout.ops._gradients import same
from blocklayout.ops._layouts import Follower
from blocklayout.ops.views import Identity, same_if_same_shape

_CONVERTED = ("u8", "s8", "s32", "bool")
"""Data types that reorders take; a bool is a byte that is 0 or 1."""


class Cast(Follower, frozen=True):
    """Numbers as floats: a reorder, or nothing between floats. To integers numpy converts: primitives round."""

    op_types = ("Cast", "CastLike")
    is_quick_on_arrays = True
    is_elementwise = True
    elements_read = (0,)

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, dst = node.required(0, "input"), node.result
        refusal = node.of_other_dtype(dst) or node.of_other_dtype(src, (*_CONVERTED, *PRIMITIVE_FLOATS))
        operator = Identity() if src.dtype in PRIMITIVE_FLOATS else cls()
        return refusal or operator.bind({"src": src})

    backward = staticmethod(always((same,)))
    in_numpy = staticmethod(always(lambda x, *_, out: np.copyto(out, x, casting="unsafe")))
    same_as = staticmethod(same_if_same_shape)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops or (src.dtype == "bool" and src.inner_blks):  # nothing brings bools into blocks
            return None
        bytes_of = src.with_dtype("u8") if src.dtype == "bool" else src
        step = dnnl.reorder(bytes_of, dst, n_threads=problem.n_threads)
        return ir.Recipe.single(step, whole=(("src", src), ("dst", dst)))


class BitCast(ir.Facts, frozen=True):
    """The same bits as numbers of another type of that size."""

    op_types = ("BitCast",)
    is_elementwise = True

    in_numpy = staticmethod(always(lambda x, out: np.copyto(out.view(x.dtype), x)))
