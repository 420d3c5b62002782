"""Reorder: the same values in another layout or data type."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Sum
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.spec import Spec


def reorder(src: Desc, dst: Desc, *, attr: Attr = NO_ATTR, n_threads: int | None = None) -> Spec:
    """A copy into another layout, data type, or both.

    Args:
        src: Any strides, as every argument of a reorder.
        dst: The same extents.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout import dnnl
        >>> from blocklayout.layout import MemoryDesc
        >>> plain, blocked = MemoryDesc((2, 17, 5, 4)), MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")
        >>> reorder(plain, blocked, n_threads=1).nbytes_moved
        6560
    """
    spec = draft("reorder", {"src": src}, attr=attr, n_threads=n_threads)
    return finish(spec, dst, src.dims)


def _fault(spec: Spec) -> str | None:
    """OneDNN v3.2 computes tails wrongly that are transposed with a zero point, such as 7x7 pixels of 64 channels."""
    if not spec.attr.zero_points or not spec.impl.startswith("jit"):
        return None
    src, dst = spec.memory_desc("src"), spec.memory_desc("dst")
    is_turned = not dst.physically_equal(src.with_dtype(dst.dtype))
    return "with zero points it goes wrong in transposed tails" if is_turned else None


KIND = Kind(
    directions={"": Direction("src engine dst engine attr", laid_out=("dst", "src"), keeps_extents=True)},
    post_ops=(Sum,),
    fault=_fault,
)
