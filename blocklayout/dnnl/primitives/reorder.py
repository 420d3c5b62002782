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


KIND = Kind(
    directions={"": Direction("src engine dst engine attr", laid_out=("dst", "src"), keeps_extents=True)},
    post_ops=(Sum,),
)
