"""Channel shuffle: the channels of groups, interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blocklayout import dnnl, ir
from blocklayout.errors import LayoutError
from blocklayout.layout import MemoryDesc
from blocklayout.layout.tag import LETTERS
from blocklayout.ops._answers import MOVED, always, is_source
from blocklayout.ops._layouts import argument, like


class ChannelShuffle(ir.BaseOperator, frozen=True):
    """Channels as rows of ``groups``, read by column: in ONNX Reshape, Transpose and Reshape.

    Groups are several inputs, or together one. Where the result is cut into ``parts`` of equally many channels, these
    are a dimension in front of them.
    """

    op_types = ("ChannelShuffle",)
    needs = (is_source(2, 10, MOVED),)
    rounds = staticmethod(always(False))

    groups: int
    parts: int = 1
    n_srcs: int = 1

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        srcs = [node.required(index, "X") for index in range(len(node.inputs))]
        groups = node.int_attr("groups", 1)
        if groups < 1 or len(srcs) * srcs[0].shape[1] % groups:
            rule = f"it must divide the {srcs[0].shape[1]} channels of {srcs[0].name}"
            raise node.wrong(f"attribute groups is {groups}", rule)
        names = ["src"] if len(srcs) == 1 else [f"src_{index}" for index in range(groups)]
        return cls(groups, node.int_attr("parts", 1), len(srcs)).bind(dict(zip(names, srcs, strict=True)))

    keeps_rows = staticmethod(lambda node, rows: rows == {*range(len(node.inputs))})

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        groups = call.sources[0].shape[1] // call.node.int_attr("groups", 1)
        return (lambda grad: grad.channel_shuffle(groups),)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        descs = self._descs(problem, wish)
        if descs is None or attr.post_ops:
            return None
        *srcs, dst = descs
        if self.n_srcs == 1:
            return self._shuffled(srcs[0], dst, problem.n_threads)
        n, channels, *spatial = srcs[0].dims
        whole = srcs[0].resized((n, self.groups * channels, *spatial))
        joined = ir.Recipe.single(dnnl.concat(srcs, whole, axis=1, n_threads=problem.n_threads), {"dst": "joined"})
        shuffled = self._shuffled(whole, dst, problem.n_threads, "joined")
        layouts = (pair for pair in shuffled.whole if pair[0] != "joined")
        return ir.Recipe((*joined.steps, *shuffled.steps), (("joined", whole),), tuple(layouts))

    def alternatives(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> Sequence[ir.Recipe]:
        """Of groups apart: side by side along a dimension behind their channels."""
        descs = self._descs(problem, wish)
        if descs is None or self.n_srcs == 1 or attr.post_ops:
            return ()
        *srcs, dst = descs
        n, channels, *spatial = srcs[0].dims
        columns = n, *self._cut(channels)
        try:
            side_by_side = [src.reshaped((*columns, 1, *spatial)) for src in srcs]
            by_column = dst.reshaped((*columns, self.groups, *spatial))
        except LayoutError:  # channels in blocks
            return ()
        spec = dnnl.concat(side_by_side, by_column, axis=len(columns), n_threads=problem.n_threads)
        whole = ((f"src_{index}", src) for index, src in enumerate(srcs))
        return (ir.Recipe.single(spec, whole=(*whole, ("dst", dst))),)

    def _cut(self, n_columns: int) -> tuple[int, ...]:
        return (n_columns,) if self.parts == 1 else (self.parts, n_columns // self.parts)

    def _descs(self, problem: ir.Problem, wish: ir.Wish) -> list[MemoryDesc] | None:
        """Layouts of the sources, and of the result, of which each part lies as they do."""
        names = [name for name, _ in problem.arguments if name.startswith("src")]
        src = wish.src_desc(argument(problem, names[0]))
        if not isinstance(src, MemoryDesc):
            return None
        wished: object = wish.dst_desc(problem.dst)
        if self.parts == 1:
            dst: MemoryDesc | None = like(src, problem.dst)
        else:  # names are of layouts of images
            dst, wished = self._in_parts(src, problem.dst), wish.dst
        if dst is None or (isinstance(wished, MemoryDesc) and not wished.physically_equal(dst)):
            return None
        return [*(like(src, argument(problem, name)) for name in names), dst]

    def _in_parts(self, src: MemoryDesc, dst: ir.TensorInfo) -> MemoryDesc | None:
        """The parts outermost, so that each is dense."""
        order = (1, *(dim + (dim > 0) for dim in src.dim_order))
        return None if src.inner_blks else MemoryDesc(dst.dims, dst.dtype, "".join(LETTERS[dim] for dim in order))

    def _shuffled(self, src: MemoryDesc, dst: MemoryDesc, n_threads: int, name: str = "src") -> ir.Recipe:
        """One source by a reorder, or by the primitive of that name."""
        n, channels, *spatial = src.dims
        group_size = channels // self.groups
        columns = self._cut(group_size)
        ndims, behind = src.ndims + len(columns), 2 + len(columns)
        perm = (0, *range(2, behind), 1, *range(behind, ndims))
        try:
            by_row = src.reshaped((n, self.groups, *columns, *spatial)).permuted(perm)
            by_column = dst.reshaped((n, *columns, self.groups, *spatial))
        except LayoutError:  # channels in blocks, which is where the primitive is no reference kernel
            spec = dnnl.shuffle(src, dst, axis=1, group_size=group_size, n_threads=n_threads)
            return ir.Recipe.single(spec, {"src": name})
        spec = dnnl.reorder(by_row, by_column, n_threads=n_threads)
        return ir.Recipe.single(spec, {"src": name}, whole=(("dst", dst), (name, src)))
