"""Channel shuffle: the channels of groups, interleaved."""

from __future__ import annotations

from typing import Any

from blocklayout import dnnl, ir
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.ops._answers import MOVED, always, is_source, of_source
from blocklayout.ops._layouts import Follower


class ChannelShuffle(Follower, frozen=True):
    """Channels as rows of ``groups``, read by column: in ONNX Reshape, Transpose and Reshape."""

    op_types = ("ChannelShuffle",)
    needs = (is_source(2, 12, MOVED),)
    rounds = staticmethod(always(False))

    groups: int

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        src = node.required(0, "X")
        groups = node.int_attr("groups", 1)
        if groups < 1 or src.shape[1] % groups:
            rule = f"it must divide the {src.shape[1]} channels of {src.name}"
            raise node.wrong(f"attribute groups is {groups}", rule)
        return cls(groups).bind({"src": src})

    keeps_rows = staticmethod(of_source)

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        groups = call.sources[0].shape[1] // call.node.int_attr("groups", 1)
        return (lambda grad: grad.channel_shuffle(groups),)

    def lower_between(self, src: MemoryDesc, dst: MemoryDesc, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        if attr.post_ops:
            return None
        try:
            return self._as_reorder(src, dst, problem.n_threads)
        except LayoutError:  # channels in blocks, which is where the primitive is no reference kernel
            group_size = src.dims[1] // self.groups
            return ir.Recipe.single(dnnl.shuffle(src, dst, axis=1, group_size=group_size, n_threads=problem.n_threads))

    def _as_reorder(self, src: MemoryDesc, dst: MemoryDesc, n_threads: int) -> ir.Recipe:
        """Rows and columns of channels as dimensions that change places; a LayoutError where they cannot be."""
        n, channels, *spatial = src.dims
        columns = channels // self.groups
        perm = (0, 2, 1, *range(3, len(src.dims) + 1))
        rows = src.reshaped((n, self.groups, columns, *spatial)).permuted(perm)
        spec = dnnl.reorder(rows, dst.reshaped((n, columns, self.groups, *spatial)), n_threads=n_threads)
        return ir.Recipe.single(spec, whole=(("dst", dst), ("src", src)))
