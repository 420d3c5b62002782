"""Matrix products of any rank, and Gemm: an inner product where its weights have the outputs in front."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from blocklayout import dnnl, ir
from blocklayout.ir.result_format import row_major
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm
from blocklayout.ops._answers import always, are_floats, broadcast_dims, of_rank, optimised_impl
from blocklayout.ops._layouts import argument, has_argument, plain, plain_if_any, seen_as


class MatMul(ir.BaseOperator, frozen=True):
    """A product of batches of matrices times ``scale_src``, plus ``bias``; ``exchanged`` are read transposed."""

    op_types = ("MatMul",)
    is_quick_on_arrays = True
    role = ir.Role.CHOOSER
    needs = (are_floats,)
    byte_operands = ("src", "weights")

    exchanged: tuple[str, ...] = ()

    channel_axis = staticmethod(lambda node: len(node.shape(1)) - 1)

    def scale_mask(self, info: ir.TensorInfo) -> int:
        return 1 << len(info.dims) - 1

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered | ir.Refusal:
        src, weights = (node.required(index, name) for index, name in enumerate("AB"))
        refusal, ndims = node.of_other_rank(node.result, 2, 12), len(node.result.shape)
        for value in (src, weights):
            if refusal is None and (len(value.shape) < 2 or (value.data is None and len(value.shape) != ndims)):
                what = f"{value.name} has rank {len(value.shape)} and the output {ndims}"
                refusal = node.refused(what, "its primitive takes operands of the output's rank: unsqueeze it")
        operands = {"src": src, "weights": weights}
        if refusal is not None:
            return refusal
        arrays = of_rank(operands, ndims)
        lowered, dst = cls().bind(operands, arrays), ir.TensorInfo(node.result.dims, node.result.dtype)
        if _is_of_rows(src, weights) and "gemm" in optimised_impl(lowered, dst):
            # It packs a constant in each run, as on AVX2; that of an inner product is packed once.
            return InnerProduct().bind(operands, {"weights": arrays["weights"].swapaxes(-1, -2)})
        return lowered

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (x, y), bl = call.sources, call.bl
        before, behind = x.shape if x.ndim > 1 else (1, *x.shape), y.shape if y.ndim > 1 else (*y.shape, 1)
        shape = (*np.broadcast_shapes(before[:-2], behind[:-2]), before[-2], behind[-1])

        def turned(t: Any) -> Any:
            return t.transpose((*range(t.ndim - 2), t.ndim - 1, t.ndim - 2))

        return (
            lambda grad: bl.matmul(grad.reshape(shape), turned(y.reshape(behind))),
            lambda grad: bl.matmul(turned(x.reshape(before)), grad.reshape(shape)),
        )

    in_numpy = staticmethod(always(np.matmul))

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        ranks = [len(node.shape(index)) for index in range(2)]
        if ranks[0] == 2 >= ranks[1]:
            return rows == {0}
        return len(node.result.shape) > 2 and ir.keeps_broadcast_rows(node, rows)

    @classmethod
    def transposed(cls, node: ir.NodeInfo, perm: Perm) -> ir.Transposed | None:
        is_product_of_rows = len(node.shape(1)) == 2 and perm[-1] == len(perm) - 1 and len(perm) >= 2
        return ir.Transposed(perm, node.attrs) if is_product_of_rows else None

    contracted = staticmethod(lambda node: (1, 0) if len(node.shape(0)) == len(node.shape(1)) == 2 else None)

    result_format = staticmethod(row_major)

    def meant(self, wish: ir.Wish) -> ir.Wish:
        return _of_matrices(wish)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        weights = argument(problem, "weights")
        wish = self.meant(wish)
        is_scaled = has_argument(problem, "scale_src")
        if is_scaled and attr.scales:
            return None
        if is_scaled:
            attr = replace(attr, scales=(("src", 0),))
        names = {"scale_src": "scale_src"} if is_scaled else None
        joined = None if self.exchanged else _of_all_rows(dnnl.matmul, problem, wish, attr)
        if joined is not None:
            return ir.Recipe.single(joined[0], names, joined[1].items())
        whole = {name: plain(argument(problem, name)) for name in self.exchanged}
        turned = {name: _turned(desc) for name, desc in whole.items()}
        bias = plain_if_any(problem, "bias")
        if bias is not None and bias.ndims < len(problem.dst.dims):
            whole["bias"] = bias
            bias = bias.reshaped((1,) * (len(problem.dst.dims) - bias.ndims) + bias.dims)
        packed, wished = _packed(problem, weights.dims), dict(wish.others).get("weights")
        src = turned.get("src") or wish.src_desc(argument(problem, "src"))
        matrix = turned.get("weights") or packed or wished or plain(weights)
        spec = dnnl.matmul(src, matrix, wish.dst_desc(problem.dst), bias, attr=attr, n_threads=problem.n_threads)
        return ir.Recipe.single(spec, names, whole.items())


def _of_matrices(wish: ir.Wish) -> ir.Wish:
    """Formats named after an image's channels mean nothing to a matrix: plain."""
    images = [name for name in ir.LAYOUT_NAMES if name != "any"]
    src = "plain" if wish.src in images else wish.src
    dst = "plain" if wish.dst in images else wish.dst
    return replace(wish, src=src, dst=dst)


def _packed(problem: ir.Problem, dims: tuple[int, ...]) -> dnnl.AnyDesc | None:
    """Weights in any layout: packing pays off for constants alone."""
    known = problem.constants.get("weights")
    return None if known is None else dnnl.AnyDesc(dims, known.dtype)


def _is_of_rows(src: ir.Value, weights: ir.Value) -> bool:
    """Whether rows of floats that are computed, and stand for no bytes, are multiplied by one constant matrix."""
    is_one = weights.data is not None and src.data is None and prod(weights.shape[:-2]) == 1
    are_floats = all(each.dtype == "f32" and each.quantization is None for each in (src, weights))
    return is_one and are_floats and 0 not in (*src.shape, *weights.shape)


def _of_all_rows(
    product: Callable[..., dnnl.Spec], problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr
) -> tuple[dnnl.Spec, dict[str, MemoryDesc]] | None:
    """One product of all rows, where each matrix of a batch is multiplied by the same one; and the batches' layouts.

    A batch is many thin products, whose weights are packed in each run, and few post-ops run optimised on it. ``None``
    where rows do not follow each other in memory, or addends are of another form.
    """
    weights, dst = argument(problem, "weights"), problem.dst
    post_ops = _post_ops_of_rows(attr.post_ops, dst.dims)
    if len(dst.dims) == 2 or prod(weights.dims[:-2]) > 1 or post_ops is None:
        return None
    whole = {"src": _given(wish.src_desc(argument(problem, "src"))), "dst": _given(wish.dst_desc(dst))}
    whole |= {name: plain(argument(problem, name)) for name in ("weights", "bias") if has_argument(problem, name)}
    seen = {name: rows for name, desc in whole.items() if (rows := _rows_of(desc)) is not None}
    if len(seen) < len(whole) or ("bias" in seen and seen["bias"].dims[0] > 1):
        return None
    scales = tuple((arg, 0b10 if mask else 0) for arg, mask in attr.scales)
    given: Any = {"attr": replace(attr, post_ops=post_ops, scales=scales), "n_threads": problem.n_threads}
    matrix = _packed(problem, seen["weights"].dims) or seen["weights"]
    spec = product(seen["src"], matrix, seen["dst"], seen.get("bias"), **given)
    # Of constants only the bytes matter.
    return spec, {name: desc for name, desc in whole.items() if name not in problem.constants}


def _given(desc: dnnl.Desc) -> MemoryDesc:
    """A layout as it is wished for; plain where any is right."""
    return desc if isinstance(desc, MemoryDesc) else MemoryDesc(desc.dims, desc.dtype)


def _rows_of(desc: MemoryDesc) -> MemoryDesc | None:
    """A batch of matrices as one, over the same bytes; ``None`` where rows do not follow each other at one distance.

    Example:
        >>> _rows_of(MemoryDesc((2, 3, 4, 5), "f32"))
        MemoryDesc((24, 5), 'f32', 'ab')
        >>> _rows_of(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")) is None
        True
    """
    return seen_as(desc, (prod(desc.dims[:-1]), desc.dims[-1]))


def _post_ops_of_rows(post_ops: Iterable[dnnl.PostOp], dims: tuple[int, ...]) -> tuple[dnnl.PostOp, ...] | None:
    """Post-ops as of one matrix; ``None`` where an operand is neither one row nor as large as the result."""
    seen: list[dnnl.PostOp] = []
    for post_op in post_ops:
        if isinstance(post_op, dnnl.Sum | dnnl.Eltwise):
            seen.append(post_op)
            continue
        if not isinstance(post_op, dnnl.Binary) or post_op.src1 is None:
            return None
        is_of_each_row = post_op.src1.dims != dims and prod(post_op.src1.dims[:-1]) > 1
        rows = None if is_of_each_row else _rows_of(_given(post_op.src1))
        if rows is None:
            return None
        seen.append(replace(post_op, src1=rows))
    return tuple(seen)


def _turned(desc: MemoryDesc) -> MemoryDesc:
    return desc.permuted((*range(desc.ndims - 2), desc.ndims - 1, desc.ndims - 2))


class InnerProduct(ir.BaseOperator, frozen=True):
    """Every row of the source times the weights, whose outputs are in front, plus a bias for each output."""

    op_types: ClassVar[tuple[str, ...]] = ("Gemm",)
    is_quick_on_arrays: ClassVar[bool] = True
    role: ClassVar[ir.Role] = ir.Role.CHOOSER
    needs = (are_floats,)
    byte_operands = ("src", "weights")

    channel_axis = staticmethod(lambda node: 0 if node.attrs.get("transB", 0) else 1)
    scale_mask = staticmethod(always(0b1))

    @classmethod
    def backward(cls, call: ir.Called) -> Any:
        (a, b, *_), gemm = call.sources, _Gemm.read(call.node)
        alpha, beta, is_a, is_b = gemm.alpha, gemm.beta, gemm.is_a_transposed, gemm.is_b_transposed

        def product(factors: tuple[Any, Any], turns: tuple[bool, bool], *, swaps: bool) -> Any:
            """Of two matrices, each turned or not; or its transpose."""
            if swaps:
                factors, turns = factors[::-1], (not turns[1], not turns[0])
            return factors[0].gemm(factors[1], alpha=alpha, trans_a=turns[0], trans_b=turns[1])

        return (
            lambda grad: product((grad, b), (False, not is_b), swaps=is_a),
            lambda grad: product((a, grad), (not is_a, False), swaps=is_b),
            lambda grad: grad * beta,
        )

    @classmethod
    def from_onnx(cls, node: ir.NodeInfo) -> ir.Lowered:
        gemm = _Gemm.read(node)
        # Of an inner product's weights the outputs are in front; a product's operands are read as they were computed.
        arrays, turned = gemm.matrices(needs_b_transposed=gemm.is_inner_product)
        return gemm.with_c(InnerProduct() if gemm.is_inner_product else MatMul(turned), arrays)

    @classmethod
    def contracted(cls, node: ir.NodeInfo) -> tuple[int, int] | None:
        return None if node.attrs.get("transA", 0) else (1, 1 if node.attrs.get("transB", 0) else 0)

    @classmethod
    def aligned_scale(cls, node: ir.NodeInfo, scale: np.ndarray) -> np.ndarray | None:
        return scale.reshape(-1, 1) if node.attrs.get("transB", 0) else scale

    result_format = staticmethod(row_major)

    @classmethod
    def keeps_rows(cls, node: ir.NodeInfo, rows: frozenset[int]) -> bool:
        added = node.shape(2)
        is_aligned = len(added) == 2 if 2 in rows else len(added) < 2 or added[0] == 1
        return rows - {2} == {0} and is_aligned and not node.attrs.get("transA", 0)

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
        is_one_row = prod(problem.dst.dims[:-1]) == 1
        if wish.src == wish.dst == "channels_last" and "weights" in problem.constants and not is_one_row:
            return self._over_pixels(problem, attr)
        if len(problem.dst.dims) > 2:
            joined = _of_all_rows(dnnl.inner_product, problem, _of_matrices(wish), attr)
            if joined is None:
                return MatMul(("weights",)).lower(problem, wish, attr)
            return ir.Recipe.single(joined[0], whole=joined[1].items())
        weights, bias = argument(problem, "weights"), plain_if_any(problem, "bias")
        whole = (("bias", bias),) if bias is not None and bias.ndims != 1 else ()
        vector = bias.reshaped(problem.dst.dims[1:]) if whole and bias is not None else bias
        src, dst = wish.src_desc(argument(problem, "src")), wish.dst_desc(problem.dst)
        given: Any = {"prop_kind": wish.prop_kind, "attr": attr, "n_threads": problem.n_threads}
        spec = dnnl.inner_product(src, _packed(problem, weights.dims) or plain(weights), dst, vector, **given)
        return ir.Recipe.single(spec, whole=whole)

    def _over_pixels(self, problem: ir.Problem, attr: dnnl.Attr) -> ir.Recipe | None:
        """A convolution by one element over rows as channels-last pixels, which packs its weights beforehand."""
        src, weights, bias = argument(problem, "src"), argument(problem, "weights"), plain_if_any(problem, "bias")
        whole = {"src": plain(src), "dst": plain(problem.dst)} | ({"bias": bias} if bias else {})
        post_ops = [*attr.post_ops]
        for index, each in enumerate(attr.post_ops):
            if isinstance(each, dnnl.Prelu) and len(problem.dst.dims) > 2:
                return None  # dimension 1, which has its slopes, is none of channels
            if not isinstance(each, dnnl.Binary):
                continue
            added = each.src1
            if added is None or (added.dims != problem.dst.dims and prod(added.dims[:-1]) > 1):
                return None
            post_ops[index] = replace(each, src1=_pixels(added))
            whole[f"post_op_{index}_src_1"] = MemoryDesc(added.dims, added.dtype)
        taps = dnnl.AnyDesc((*weights.dims[-2:], 1, 1), weights.dtype)
        vector = bias and bias.reshaped(problem.dst.dims[1:])
        given: Any = {"attr": replace(attr, post_ops=tuple(post_ops)), "n_threads": problem.n_threads}
        spec = dnnl.convolution(_pixels(src), taps, _pixels(problem.dst), vector, **given)
        return ir.Recipe.single(spec, whole=whole.items())


def _pixels(rows: ir.TensorInfo | dnnl.Desc) -> MemoryDesc:
    """Rows one behind the other as the pixels of an image."""
    return MemoryDesc((1, rows.dims[-1], 1, prod(rows.dims[:-1])), rows.dtype, "nhwc")


class SummedProduct(ir.BaseOperator, frozen=True):
    """A product plus a matrix ``addend``, times the constant ``scale_addend`` if any: fast biases are one row."""

    role: ClassVar[ir.Role] = ir.Role.CHOOSER

    product: InnerProduct | MatMul

    def lower(self, problem: ir.Problem, wish: ir.Wish, attr: dnnl.Attr) -> ir.Recipe | None:
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
        first = ir.RecipeStep(product.steps[0].spec, tuple(operands.items()))
        steps = first, ir.RecipeStep(spec, tuple(names.items()))
        return ir.Recipe(steps, (("product", dst),), (*product.whole, ("addend", addend)))


class _Gemm(Struct, frozen=True, eq=False):
    """``alpha * A * B + beta * C`` as the node says it."""

    node: ir.NodeInfo
    a: ir.Value
    b: ir.Value
    c: ir.Value | None
    alpha: float
    beta: float
    is_a_transposed: bool
    is_b_transposed: bool

    @classmethod
    def read(cls, node: ir.NodeInfo) -> _Gemm:
        a, b = (node.required(index, name) for index, name in enumerate("AB"))
        alpha, beta = node.float_attr("alpha", 1.0), node.float_attr("beta", 1.0)
        c = node.input(2) if beta != 0 else None
        gemm = cls(node, a, b, c, alpha, beta, node.flag_attr("transA"), node.flag_attr("transB"))
        dst = node.result.shape
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise node.wrong(f"A has extents {list(a.shape)} and B {list(b.shape)}", "both must be matrices")
        m, k = a.shape[::-1] if gemm.is_a_transposed else a.shape
        k_of_b, n = b.shape[::-1] if gemm.is_b_transposed else b.shape
        if k != k_of_b or dst != (m, n):
            what = f"A is {m}x{k} and B {k_of_b}x{n} after transposition"
            raise node.wrong(what, f"they must multiply to the output's {list(dst)}")
        if c is not None and broadcast_dims(c.shape, dst) is None:
            raise node.wrong(f"C has extents {list(c.shape)}", f"they must broadcast to {list(dst)}")
        return gemm

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

    def _is_bias(self, c: ir.Value) -> bool:
        """Whether C is one element for each column, and added as it is."""
        n_columns = self.node.result.shape[1]
        return c.shape in ((n_columns,), (1, n_columns)) and self.beta == 1

    def matrices(self, *, needs_b_transposed: bool) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
        """Those of A and B that are constant, with alpha in one of them, else beside them; those to be turned."""
        arrays: dict[str, np.ndarray] = {}
        turned: list[str] = []
        alpha = self.alpha
        for name, value, is_transposed in (
            ("weights", self.b, self.is_b_transposed != needs_b_transposed),
            ("src", self.a, self.is_a_transposed),
        ):
            if value.data is not None:
                arrays[name] = _scaled(value.data.T if is_transposed else value.data, alpha)
                alpha = 1.0
            elif is_transposed:
                turned.append(name)
        scale = {} if alpha == 1 else {"scale_src": np.array([alpha], np.float32)}
        return arrays | scale, tuple(sorted(turned))

    def with_c(self, product: InnerProduct | MatMul, arrays: dict[str, np.ndarray]) -> ir.Lowered:
        """The product plus C: as its bias where C is one row, else by a second primitive."""
        matrices = {"src": self.a, "weights": self.b}
        c, dst = self.c, self.node.result.shape
        if c is None:
            return product.bind(matrices, arrays)
        if c.data is not None:
            array = _scaled(c.data, self.beta).reshape((1,) * (2 - c.data.ndim) + c.data.shape)
            if array.shape[0] != 1:
                return SummedProduct(product).bind(matrices | {"addend": c}, arrays | {"addend": array})
            bias = np.broadcast_to(array[0], dst[1:]) if isinstance(product, InnerProduct) else array
            return product.bind(matrices | {"bias": c}, arrays | {"bias": bias})
        if self._is_bias(c):
            return product.bind(matrices | {"bias": c}, arrays)
        scale = {} if self.beta == 1 else {"scale_addend": np.array([self.beta], np.float32)}
        return SummedProduct(product).bind(matrices | {"addend": c}, arrays | scale)


def _scaled(array: np.ndarray, scale: float) -> np.ndarray:
    """A view, unless there is something to multiply."""
    return array if scale == 1 else (array * scale).astype(array.dtype)
