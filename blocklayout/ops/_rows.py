"""Matrices of a batch seen as one: all their rows below each other, over the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from msgspec.structs import replace

from blocklayout import dnnl
from blocklayout.layout import MemoryDesc
from blocklayout.ops._digits import seen_as


def given(desc: dnnl.Desc) -> MemoryDesc:
    """A layout as it is wished for; plain where any is right."""
    return desc if isinstance(desc, MemoryDesc) else MemoryDesc(desc.dims, desc.dtype)


def rows_of(desc: MemoryDesc) -> MemoryDesc | None:
    """A batch of matrices as one; ``None`` where rows do not follow each other at one distance.

    Example:
        >>> rows_of(MemoryDesc((2, 3, 4, 5), "f32"))
        MemoryDesc((24, 5), 'f32', 'ab')
        >>> rows_of(MemoryDesc((2, 3, 4, 5), "f32", "nhwc")) is None
        True
    """
    return seen_as(desc, (prod(desc.dims[:-1]), desc.dims[-1]))


def post_ops_of_rows(post_ops: Iterable[dnnl.PostOp], dims: Sequence[int]) -> tuple[dnnl.PostOp, ...] | None:
    """Post-ops of a result of such extents, done to it as one matrix.

    ``None`` where one reads something that is neither the same for all rows nor there for each result.
    """
    found = [_of_rows(post_op, tuple(dims)) for post_op in post_ops]
    seen = tuple(each for each in found if each is not None)
    return seen if len(seen) == len(found) else None


def _of_rows(post_op: dnnl.PostOp, dims: tuple[int, ...]) -> dnnl.PostOp | None:
    if isinstance(post_op, dnnl.Sum | dnnl.Eltwise):
        return post_op
    src1 = post_op.src1 if isinstance(post_op, dnnl.Binary) else None
    if not isinstance(post_op, dnnl.Binary) or src1 is None:
        return None
    if src1.dims != dims and prod(src1.dims[:-1]) > 1:
        return None
    read = rows_of(given(src1))
    return None if read is None else replace(post_op, src1=read)
