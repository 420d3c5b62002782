"""Max unpooling: elements go back to where max pooling found them."""

from __future__ import annotations

from typing import ClassVar

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Problem, Recipe, Refusal, Role, Wish
from blocklayout.ops._descs import argument, followed
from blocklayout.ops._needs import is_known, is_source
from blocklayout.ops._window import read_kernel_shape


class MaxUnpooling(BaseOperator, frozen=True):
    """Zeros, and each element where its index says.

    Attributes:
        numbered: The extents by which indices count. The result may be larger, with zeros behind.
    """

    op_types: ClassVar[tuple[str, ...]] = ("MaxUnpool",)
    role: ClassVar[Role] = Role.FOLLOWER
    needs = (is_source(3, 5), is_known(2, "output_shape"))

    numbered: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src, indices = node.required(0, "X"), node.required(1, "I")
        spatial = src.shape[2:]
        kernel = read_kernel_shape(node, len(spatial))
        strides = node.ints_attr("strides", len(spatial), 1, at_least=1)
        pads = node.ints_attr("pads", 2 * len(spatial), 0, at_least=0)
        numbered = src.shape[:2] + tuple(
            (extent - 1) * stride + reach - begin - end
            for extent, stride, reach, begin, end in zip(
                spatial, strides, kernel, pads[: len(spatial)], pads[len(spatial) :], strict=True
            )
        )
        if indices.shape != src.shape:
            raise node.wrong(f"I has extents {list(indices.shape)}", f"X has {list(src.shape)}")
        dims = node.result.shape
        fits = len(dims) == len(numbered) and all(0 < n <= d for n, d in zip(numbered, dims, strict=True))
        if not fits or dims[:2] != numbered[:2]:
            raise node.wrong(f"the result has extents {list(dims)}", f"the window makes them {list(numbered)} or more")
        return cls(numbered).bind({"src": src, "indices": indices})

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        descs = followed(problem, wish, argument(problem, "src"))
        if descs is None or attr.post_ops:
            return None
        src, dst = descs
        spec = dnnl.max_unpooling(src, src.with_dtype("s64"), dst, self.numbered, n_threads=problem.n_threads)
        return Recipe.single(spec)
