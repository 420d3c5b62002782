"""Bytes that follow from one other byte each, by a table of all there are."""

from __future__ import annotations

import numpy as np

from blocklayout import dnnl, ir
from blocklayout.dtypes import BYTE_DTYPES
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import always, of_source
from blocklayout.ops._layouts import Follower, argument


class ByteTable(Follower, frozen=True):
    """The byte of a constant table for each byte of the source; in ONNX functions between two quantisations.

    The inputs are bytes, and 256 of them: for 0 to 127, then for 128 to 255, or -128 to -1.
    """

    op_types = ("ByteTable",)
    is_elementwise = True

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, table = node.required(0, "src"), node.required(1, "table")
        if src.dtype not in BYTE_DTYPES or table.data is None:
            return node.refused(f"{src.name} is {src.dtype}", "a constant table of bytes is for bytes")
        return cls().bind({"src": src, "table": table})

    keeps_rows = staticmethod(of_source)

    in_numpy = staticmethod(always(lambda src, table, out: np.take(table, src.view(np.uint8), out=out)))

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops or src.n_padding:
            return None
        table = argument(problem, "table")
        spec = dnnl.lookup(src, MemoryDesc(table.dims, table.dtype), dst, n_threads=problem.n_threads)
        return ir.Recipe.single(spec)
