"""Concat: tensors one after the other along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_dims, check_integer, normal_axis, source_names
from blocklayout.dnnl.spec import Spec


def concat(
    srcs: Sequence[Desc], dst: Desc | None = None, axis: int = 1, *, attr: Attr = NO_ATTR, n_threads: int | None = None
) -> Spec:
    """Tensors one after the other along ``axis``; its arguments are ``src_0``, ``src_1``, ...

    Args:
        srcs: Each with a layout; extents equal but along the axis.
        dst: ``None`` leaves the layout to the primitive.
        axis: From the end if negative.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> concat([MemoryDesc((1, 3, 4, 4)), MemoryDesc((1, 5, 4, 4))], n_threads=1).desc("dst").dims
        (1, 8, 4, 4)
    """
    descs = source_names("concat", srcs)
    first = descs["src_0"]
    params = {"axis": normal_axis("concat", axis, len(getattr(first, "dims", ())))}
    spec = draft("concat", descs, params, attr=attr, n_threads=n_threads)
    return finish(spec, dst, _dst_dims(spec))


def _validate(spec: Spec) -> None:
    check_integer(spec, "axis", 0, len(spec.desc("src_0").dims))
    check_dims(spec, "dst", _dst_dims(spec), "all sources along the axis")


def _dst_dims(spec: Spec) -> tuple[int, ...]:
    axis = spec.param("axis")
    dims = list(spec.desc("src_0").dims)
    total = 0
    for name in spec.counted_sources:
        given = spec.desc(name).dims
        extent = given[axis] if axis < len(given) else 0
        check_dims(spec, name, (*dims[:axis], extent, *dims[axis + 1 :]), f"src_0, but along axis {axis},")
        total += extent
    dims[axis] = total
    return tuple(dims)


KIND = Kind(
    directions={"": Direction("engine dst n_srcs axis srcs attr", ("dst",))}, validate=_validate, has_many_sources=True
)
