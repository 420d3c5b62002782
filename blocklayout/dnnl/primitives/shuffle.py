"""Shuffle: the channels of groups, interleaved."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_integer, normal_axis, require
from blocklayout.dnnl.spec import Spec


def shuffle(
    src: Desc,
    dst: Desc | None = None,
    axis: int = 1,
    group_size: int = 2,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """Takes the axis as rows of ``group_size`` elements, and transposes them.

    That is ``src.reshape(-1, group_size).T.ravel()`` along the axis, as ShuffleNet does with
    groups of ``group_size`` channels.

    Args:
        src: Must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        axis: From the end if negative.
        group_size: Divides the axis' extent.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> shuffle(MemoryDesc((1, 6, 4, 4)), group_size=3, n_threads=1).param("group_size")
        3
    """
    params = {"axis": normal_axis("shuffle", axis, len(getattr(src, "dims", ()))), "group_size": group_size}
    spec = draft("shuffle", {"src": src}, params, attr=attr, n_threads=n_threads, prop_kind=prop_kind)
    return finish(spec, dst, src.dims)


def _validate(spec: Spec) -> None:
    dims = spec.desc("src").dims
    extent = dims[check_integer(spec, "axis", 0, len(dims))]
    size = check_integer(spec, "group_size", 1)
    require(extent % size == 0, spec, "group_size", f"is {size}; it must divide the axis' extent {extent}")


KIND = Kind(
    directions={"forward": Direction("engine prop_kind src dst axis group_size attr", keeps_extents=True)},
    validate=_validate,
)
