"""Gemm: an inner product where its weights have the outputs in front, else a matrix product."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import BaseOperator, Lowered, NodeInfo, Problem, Recipe, RecipeStep, Role, Value, Wish
from blocklayout.ir.result_format import row_major
from blocklayout.layout import MemoryDesc
from blocklayout.ops._descs import argument, has_argument, plain, plain_if_any
from blocklayout.ops._needs import are_floats
from blocklayout.ops.matmul import MatMul


class InnerProduct(BaseOperator, frozen=True):
    """Every row of the source times the weights, whose outputs are in front, plus a bias for each output."""

    op_types: ClassVar[tuple[str, ...]] = ("Gemm",)
    is_quick_on_arrays: ClassVar[bool] = True
    role: ClassVar[Role] = Role.CHOOSER
    needs = (are_floats,)

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered:
        gemm = _Gemm.read(node)
        return gemm.as_inner_product() if gemm.is_inner_product else gemm.as_matmul()

    @classmethod
    def contracted(cls, node: NodeInfo) -> tuple[int, int] | None:
        return None if node.attrs.get("transA", 0) else (1, 1 if node.attrs.get("transB", 0) else 0)

    @classmethod
    def aligned_scale(cls, node: NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        return scale.reshape(-1, 1) if node.attrs.get("transB", 0) else scale

    result_format = staticmethod(row_major)

    @classmethod
    def keeps_rows(cls, node: NodeInfo, rows: frozenset[int]) -> bool:
        added = node.shape(2)
        is_aligned = len(added) == 2 if 2 in rows else len(added) < 2 or added[0] == 1
        return rows - {2} == {0} and is_aligned and not node.attrs.get("transA", 0)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        if wish.src == wish.dst == "channels_last" and "weights" in problem.constants and problem.dst.dims[0] > 1:
            return self._over_pixels(problem, attr)
        weights, bias = argument(problem, "weights"), plain_if_any(problem, "bias")
        whole = (("bias", bias),) if bias is not None and bias.ndims != 1 else ()
        spec = dnnl.inner_product(
            wish.src_desc(argument(problem, "src")),
            # Packing pays off only for what never changes.
            dnnl.AnyDesc(weights.dims, weights.dtype) if "weights" in problem.constants else plain(weights),
            wish.dst_desc(problem.dst),
            bias.reshaped(problem.dst.dims[1:]) if whole and bias is not None else bias,
            prop_kind=wish.prop_kind,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return Recipe.single(spec, whole=whole)

    def _over_pixels(self, problem: Problem, attr: dnnl.Attr) -> Recipe | None:
        """A convolution by a single element: rows are the pixels of an image that is channels last, in the same bytes.

        It packs its weights, where the product of few rows by all of them mostly does that in each run.
        """
        if any(isinstance(post_op, dnnl.Binary) for post_op in attr.post_ops):
            return None  # its operand would have to be an image, too
        src, weights, bias = argument(problem, "src"), argument(problem, "weights"), plain_if_any(problem, "bias")
        images = [MemoryDesc((1, info.dims[1], 1, info.dims[0]), info.dtype, "nhwc") for info in (src, problem.dst)]
        spec = dnnl.convolution(
            images[0],
            dnnl.AnyDesc((*weights.dims, 1, 1), weights.dtype),
            images[1],
            bias and bias.reshaped(problem.dst.dims[1:]),
            attr=attr,
            n_threads=problem.n_threads,
        )
        whole = {"src": plain(src), "dst": plain(problem.dst)} | ({"bias": bias} if bias else {})
        return Recipe.single(spec, whole=whole.items())


class SummedProduct(BaseOperator, frozen=True):
    """A product, and a matrix ``addend`` added to it, times the constant ``scale_addend`` where there is one.

    A primitive's own bias is fast only where it is one row.

    Attributes:
        product: What computes the product.
    """

    role: ClassVar[Role] = Role.CHOOSER

    product: InnerProduct | MatMul

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        # Post-ops would have to go to the second of the two primitives.
        product = None if attr.post_ops else self.product.lower(problem, replace(wish, dst="plain"), attr)
        if product is None:
            return None
        names = {"src_0": "product", "src_1": "addend", "dst": "dst"}
        if has_argument(problem, "scale_addend"):
            names["scale_src_1"] = "scale_addend"
            attr = replace(attr, scales=(("src_1", 0),))
        dst, addend = plain(problem.dst), plain(argument(problem, "addend"))
        matrix = addend.reshaped((1,) * (dst.ndims - addend.ndims) + addend.dims)
        spec = dnnl.binary(dst, matrix, dst, "binary_add", attr=attr, n_threads=problem.n_threads)
        operands = {arg: "product" if operand == "dst" else operand for arg, operand in product.steps[0].operands}
        first = RecipeStep(product.steps[0].spec, tuple(operands.items()))
        steps = first, RecipeStep(spec, tuple(names.items()))
        return Recipe(steps, (("product", dst),), (*product.whole, ("addend", addend)))


class _Gemm(Struct, frozen=True, eq=False):
    """``alpha * A * B + beta * C`` as the node says it."""

    node: NodeInfo
    a: Value
    b: Value
    c: Value | None
    alpha: float
    beta: float
    is_a_transposed: bool
    is_b_transposed: bool

    @classmethod
    def read(cls, node: NodeInfo) -> _Gemm:
        a, b = (node.required(index, name) for index, name in enumerate("AB"))
        alpha, beta = node.float_attr("alpha", 1.0), node.float_attr("beta", 1.0)
        c = node.input(2) if beta != 0 else None
        gemm = cls(node, a, b, c, alpha, beta, node.flag_attr("transA"), node.flag_attr("transB"))
        gemm.check()
        return gemm

    def check(self) -> None:
        """Compare the extents of all four matrices."""
        node, dst = self.node, self.node.result.shape
        if len(self.a.shape) != 2 or len(self.b.shape) != 2:
            raise node.wrong(f"A has extents {list(self.a.shape)} and B {list(self.b.shape)}", "both must be matrices")
        m, k = self.a.shape[::-1] if self.is_a_transposed else self.a.shape
        k_of_b, n = self.b.shape[::-1] if self.is_b_transposed else self.b.shape
        if k != k_of_b or dst != (m, n):
            what = f"A is {m}x{k} and B {k_of_b}x{n} after transposition"
            raise node.wrong(what, f"they must multiply to the output's {list(dst)}")
        if self.c is not None and not _broadcasts(self.c.shape, dst):
            raise node.wrong(f"C has extents {list(self.c.shape)}", f"they must broadcast to {list(dst)}")

    @property
    def is_inner_product(self) -> bool:
        """Whether one row of A meets one row of the weights, with no byte of a computed matrix moved."""
        if self.is_a_transposed and not self.a.is_constant:
            return False
        if not self.b.is_constant:
            return self.is_b_transposed and (self.alpha == 1 or self.a.is_constant)
        if self.a.is_constant:
            return False
        return self.c is None or self.c.is_constant or self._is_bias(self.c)

    def _is_bias(self, c: Value) -> bool:
        """Whether C is one element for each column, and added as it is."""
        n_columns = self.node.result.shape[1]
        return c.shape in ((n_columns,), (1, n_columns)) and self.beta == 1

    def as_inner_product(self) -> Lowered:
        """B's outputs in front: a view of a constant, or as it was computed."""
        arrays, _ = self._matrices(needs_b_transposed=True)
        return self._with_c(InnerProduct(), arrays, bias_ndims=1)

    def as_matmul(self) -> Lowered:
        """The general case: operands computed at run time are read as they lie."""
        arrays, transposed = self._matrices(needs_b_transposed=False)
        return self._with_c(MatMul(transposed), arrays, bias_ndims=2)

    def _matrices(self, *, needs_b_transposed: bool) -> tuple[dict[str, np.ndarray], frozenset[str]]:
        """Those of A and B that are constant, with alpha in one of them, else beside them; those to be turned."""
        arrays: dict[str, np.ndarray] = {}
        turned: set[str] = set()
        alpha = self.alpha
        for name, value, is_transposed in (
            ("weights", self.b, self.is_b_transposed != needs_b_transposed),
            ("src", self.a, self.is_a_transposed),
        ):
            if value.data is not None:
                arrays[name] = _scaled(value.data.T if is_transposed else value.data, alpha)
                alpha = 1.0
            elif is_transposed:
                turned.add(name)
        scale = {} if alpha == 1 else {"scale_src": np.array([alpha], np.float32)}
        return arrays | scale, frozenset(turned)

    def _with_c(self, product: InnerProduct | MatMul, arrays: dict[str, np.ndarray], bias_ndims: int) -> Lowered:
        """The product and what is added to it: as its bias where C is one row, else by a second primitive."""
        matrices = {"src": self.a, "weights": self.b}
        c, dst = self.c, self.node.result.shape
        if c is None:
            return product.bind(matrices, arrays)
        if c.data is not None:
            array = _scaled(c.data, self.beta).reshape((1,) * (2 - c.data.ndim) + c.data.shape)
            if array.shape[0] != 1:
                return SummedProduct(product).bind(matrices | {"addend": c}, arrays | {"addend": array})
            bias = np.broadcast_to(array[0], dst[1:]) if bias_ndims == 1 else array
            return product.bind(matrices | {"bias": c}, arrays | {"bias": bias})
        if self._is_bias(c):
            return product.bind(matrices | {"bias": c}, arrays)
        scale = {} if self.beta == 1 else {"scale_addend": np.array([self.beta], np.float32)}
        return SummedProduct(product).bind(matrices | {"addend": c}, arrays | scale)


def _scaled(array: np.ndarray, scale: float) -> np.ndarray:
    """A view, unless there is something to multiply."""
    return array if scale == 1 else (array * scale).astype(array.dtype)


def _broadcasts(shape: tuple[int, ...], dst: tuple[int, ...]) -> bool:
    if len(shape) > len(dst):
        return False
    return all(a in (1, b) for a, b in zip(shape[::-1], dst[::-1], strict=False))
