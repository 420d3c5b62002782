"""Binary: an operation on two tensors."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise, Sum
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import broadcast, check_dims
from blocklayout.dnnl.spec import Spec


def binary(
    src_0: Desc,
    src_1: Desc,
    dst: Desc | None = None,
    algorithm: str = "",
    *,
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """An operation on two tensors of one rank, element by element.

    Either source may be broadcast along any dimensions, in any layout. Fast are a ``src_1`` of
    src_0's extents and layout, and, in plain and channels-last layouts or blocked ones without
    padding, a ``src_1`` of extents (1, C, 1, ...) or all ones. The others, a broadcast ``src_0``
    among them, run on the reference implementation; give those a ``dst``, for the layout that the
    library proposes is then none that anybody else uses.

    Args:
        src_0: Must have a layout.
        src_1: Each extent equal to the other source's, or one of the two 1.
        dst: The broadcast extents; ``None`` leaves the layout to the primitive, which takes src_0's.
        algorithm: ``add``, ``sub``, ``mul``, ``div``, ``max``, ``min``; ``ge``, ``gt``, ``le``,
            ``lt``, ``eq`` and ``ne`` give 1 or 0.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> binary(MemoryDesc((2, 17, 4, 4)), MemoryDesc((1, 17, 1, 1)), None, "mul", n_threads=1).desc("dst").dims
        (2, 17, 4, 4)
    """
    spec = draft("binary", {"src_0": src_0, "src_1": src_1}, attr=attr, n_threads=n_threads, algorithm=algorithm)
    return finish(spec, dst, broadcast("binary", "src_1", src_0.dims, src_1.dims))


def _validate(spec: Spec) -> None:
    dims = broadcast("binary", "src_1", spec.desc("src_0").dims, spec.desc("src_1").dims)
    check_dims(spec, "dst", dims, "broadcasting both sources")


KIND = Kind(
    directions={"": Direction("engine algorithm src_0 src_1 dst attr", ("src_0", "src_1", "dst"), laid_out=("src_0",))},
    validate=_validate,
    post_ops=(Eltwise, Sum, Binary),
)
