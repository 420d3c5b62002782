"""Matrix products of any rank."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np
from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.ir import (
    LAYOUT_NAMES,
    BaseOperator,
    Lowered,
    NodeInfo,
    NumpyFunction,
    Problem,
    Recipe,
    Refusal,
    Role,
    Transposed,
    Value,
    Wish,
    keeps_broadcast_rows,
)
from blocklayout.ir.result_format import row_major
from blocklayout.layout import MemoryDesc
from blocklayout.layout.permutation import Perm
from blocklayout.ops._descs import argument, has_argument, plain, plain_if_any
from blocklayout.ops._mixed_radix import seen_as
from blocklayout.ops._needs import are_floats


class MatMul(BaseOperator, frozen=True):
    """A product of matrices, in batches that broadcast.

    The product is multiplied by the constant ``scale_src`` where there is one, and ``bias`` is added to that.

    Attributes:
        exchanged: Arguments computed at run time whose matrices are read with rows and columns exchanged.
    """

    op_types = ("MatMul",)
    is_quick_on_arrays = True
    role = Role.CHOOSER
    needs = (are_floats,)

    exchanged: frozenset[str] = frozenset()

    @classmethod
    def from_onnx(cls, node: NodeInfo) -> Lowered | Refusal:
        src, weights = (node.required(index, name) for index, name in enumerate("AB"))
        dst = node.result
        refusal = node.of_other_rank(dst, 2, 12) or _of_other_ranks(node, (src, weights), len(dst.shape))
        if refusal:
            return refusal
        _check(node, src, weights, dst)
        arrays = {
            name: value.data.reshape((1,) * (len(dst.shape) - value.data.ndim) + value.data.shape)
            for name, value in (("src", src), ("weights", weights))
            if value.data is not None
        }
        return cls().bind({"src": src, "weights": weights}, arrays)

    @classmethod
    def in_numpy(cls, node: NodeInfo) -> NumpyFunction | None:
        del node
        return np.matmul

    @classmethod
    def keeps_rows(cls, node: NodeInfo, rows: frozenset[int]) -> bool:
        ranks = [len(node.shape(index)) for index in range(2)]
        if ranks[0] == 2 >= ranks[1]:
            return rows == {0}
        return len(node.result.shape) > 2 and keeps_broadcast_rows(node, rows)

    @classmethod
    def transposed(cls, node: NodeInfo, perm: Perm) -> Transposed | None:
        is_product_of_rows = len(node.shape(1)) == 2 and perm[-1] == len(perm) - 1 and len(perm) >= 2
        return Transposed(perm, node.attrs) if is_product_of_rows else None

    @classmethod
    def contracted(cls, node: NodeInfo) -> tuple[int, int] | None:
        return (1, 0) if len(node.shape(0)) == len(node.shape(1)) == 2 else None

    result_format = staticmethod(row_major)

    def meant(self, wish: Wish) -> Wish:
        """Formats named after an image's channels mean nothing to a matrix: plain."""
        images = [name for name in LAYOUT_NAMES if name != "any"]
        src = "plain" if wish.src in images else wish.src
        dst = "plain" if wish.dst in images else wish.dst
        return replace(wish, src=src, dst=dst)

    def lower(self, problem: Problem, wish: Wish, attr: dnnl.Attr) -> Recipe | None:
        weights = argument(problem, "weights")
        wish = self.meant(wish)
        is_scaled = has_argument(problem, "scale_src")
        if is_scaled:
            attr = replace(attr, scales=(("src", 0),))
        names = {"scale_src": "scale_src"} if is_scaled else None
        joined = None if self.exchanged else _of_all_rows(problem, wish, attr)
        if joined is not None:
            return Recipe.single(joined[0], names, joined[1].items())
        whole = {name: plain(argument(problem, name)) for name in sorted(self.exchanged)}
        seen = {name: _turned(desc) for name, desc in whole.items()}
        bias = plain_if_any(problem, "bias")
        if bias is not None and bias.ndims < len(problem.dst.dims):
            whole["bias"] = bias
            bias = bias.reshaped((1,) * (len(problem.dst.dims) - bias.ndims) + bias.dims)
        # Packing pays off only for what never changes.
        packed = dnnl.AnyDesc(weights.dims, weights.dtype) if "weights" in problem.constants else None
        spec = dnnl.matmul(
            seen.get("src") or wish.src_desc(argument(problem, "src")),
            seen.get("weights") or packed or dict(wish.others).get("weights") or plain(weights),
            wish.dst_desc(problem.dst),
            bias,
            attr=attr,
            n_threads=problem.n_threads,
        )
        return Recipe.single(spec, names, whole.items())


def _of_all_rows(problem: Problem, wish: Wish, attr: dnnl.Attr) -> tuple[dnnl.Spec, dict[str, MemoryDesc]] | None:
    """One product of all rows, where each matrix of a batch is multiplied by the same one; and the batches' layouts.

    A batch is many thin products, whose weights are packed in each run, and few post-ops run optimised on it. ``None``
    where rows do not follow each other in memory, or what is added to them is of another form.
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
    spec = dnnl.matmul(
        seen["src"],
        # Packing pays off only for what never changes.
        dnnl.AnyDesc(seen["weights"].dims, weights.dtype) if "weights" in problem.constants else seen["weights"],
        seen["dst"],
        seen.get("bias"),
        attr=replace(attr, post_ops=post_ops),
        n_threads=problem.n_threads,
    )
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
    """Post-ops of a result of such extents, done to it as one matrix.

    ``None`` where one reads something that is neither the same for all rows nor there for each result.
    """
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
    """The last two dimensions exchanged, over the same bytes."""
    return desc.permuted((*range(desc.ndims - 2), desc.ndims - 1, desc.ndims - 2))


def _of_other_ranks(node: NodeInfo, operands: Iterable[Value], ndims: int) -> Refusal | None:
    for value in operands:
        if len(value.shape) < 2 or (value.data is None and len(value.shape) != ndims):
            what = f"{value.name} has rank {len(value.shape)} and the output {ndims}"
            return node.refused(what, "its primitive takes operands of the output's rank: unsqueeze it")
    return None


def _check(node: NodeInfo, src: Value, weights: Value, dst: Value) -> None:
    try:
        batch = np.broadcast_shapes(src.shape[:-2], weights.shape[:-2])
    except ValueError:
        batch = None
    fits = batch is not None and src.shape[-1] == weights.shape[-2]
    if not fits or dst.shape != (*(batch or ()), src.shape[-2], weights.shape[-1]):
        rule = f"they must multiply to the output's {list(dst.shape)}"
        raise node.wrong(f"A has extents {list(src.shape)} and B {list(weights.shape)}", rule)
