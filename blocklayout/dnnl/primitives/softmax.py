"""Softmax and its logarithm."""

from __future__ import annotations

from math import prod

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_integer, normal_axis
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name
from blocklayout.dnnl.spec import Spec

_NARROW_SHARE = 0.5
"""Of the bandwidth in numbers of half the size: exponentials take the time, and these take as long as in f32.

Median over rows of 40 to 6,625 elements with 1 and 2 threads, on AVX-512 with bf16: 0.98 of the time.
"""


def softmax(
    src: Desc,
    dst: Desc | None = None,
    axis: int = -1,
    algorithm: str = "softmax_accurate",
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """Softmax along one axis.

    Args:
        src: Must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        axis: From the end if negative.
        algorithm: ``accurate``, or ``log`` for the logarithm of it.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> softmax(MemoryDesc((8, 1000)), n_threads=1).param("axis")
        1
    """
    params = {"axis": normal_axis("softmax", axis, len(getattr(src, "dims", ())))}
    spec = draft(
        "softmax", {"src": src}, params, attr=attr, n_threads=n_threads, algorithm=algorithm, prop_kind=prop_kind
    )
    return finish(spec, dst, src.dims)


def _fault(spec: Spec) -> str | None:
    """Some write beyond their destination.

    The reference steps from row to row by the stride of the dimension before the axis, which is right where that is
    the length of a row.

    Source: ``src/cpu/ref_softmax.hpp``, oneDNN v3.2, and comparison with numpy over all orders of four dimensions.
    """
    src, dst, axis = spec.memory_desc("src"), spec.memory_desc("dst"), spec.param("axis")
    if spec.impl != "ref:any" or src.inner_blks or axis == 0 or prod(src.dims[:axis]) == 1:
        return None
    is_by_rows = prod(src.dims[axis + 1 :]) == 1 and src.strides == dst.strides and src.strides[axis] == 1
    is_sound = not is_by_rows or src.strides[axis - 1] == src.dims[axis]
    return None if is_sound else f"{spec.impl} may give wrong results here"


KIND = Kind(
    directions={"forward": Direction("engine prop_kind algorithm src dst axis attr", keeps_extents=True)},
    validate=lambda spec: check_integer(spec, "axis", 0, len(spec.desc("src").dims)),
    post_ops=(Eltwise, Binary),
    fault=_fault,
    bandwidth_share=lambda spec: bandwidth_share_by_name(
        spec, others=_NARROW_SHARE if spec.desc("dst").dtype in ("bf16", "f16") else 1.0
    ),
)
