"""Reduction: one value out of each line, plane or volume."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise, Sum
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_broadcast, check_float, invalid, normal_axis, require
from blocklayout.dnnl.spec import Spec


def reduction(
    src: Desc,
    dst: Desc | None = None,
    algorithm: str = "",
    p: float = 0.0,
    eps: float = 0.0,
    *,
    axes: Sequence[int] | None = None,
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """Reduces the dimensions along which the destination's extent is 1.

    Args:
        src: Must have a layout.
        dst: Each extent the source's, or 1. ``None`` needs ``axes``, and leaves the layout to the primitive.
        algorithm: ``max``, ``min``, ``sum``, ``mul``, ``mean``; ``norm_lp_max`` and ``norm_lp_sum``:
            ``max(sum(abs(x) ** p), eps)`` or ``sum(...) + eps``, to the power 1 / p;
            ``norm_lp_power_p_max`` and ``norm_lp_power_p_sum``: without the root.
        p: Order of the norm, at least 1 for norms.
        eps: Keeps norms from zero.
        axes: The dimensions to reduce where ``dst`` is ``None``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> reduction(MemoryDesc((2, 17, 4, 4)), None, "mean", axes=(2, 3), n_threads=1).desc("dst").dims
        (2, 17, 1, 1)
    """
    params = {"p": p, "eps": eps}
    spec = draft("reduction", {"src": src}, params, attr=attr, n_threads=n_threads, algorithm=algorithm)
    if dst is not None:
        return finish(spec, dst, dst.dims)
    if axes is None:
        raise invalid("reduction", "dst", "is None and so is axes; give one of them")
    ndims = len(src.dims)
    reduced = {normal_axis("reduction", axis, ndims) for axis in axes}
    return finish(spec, None, (1 if axis in reduced else extent for axis, extent in enumerate(src.dims)))


def _validate(spec: Spec) -> None:
    src, dst = spec.desc("src").dims, spec.desc("dst").dims
    check_broadcast(spec, "dst", dst, src, "source")
    require(
        src != dst, spec, "dst", f"has the source's extents {src}; at least one must be 1 where the source's is not"
    )
    p, _ = check_float(spec, "p"), check_float(spec, "eps")
    require(p >= 1 or "norm" not in spec.algorithm, spec, "p", f"is {p}; a norm takes at least 1")


KIND = Kind(
    directions={"": Direction("engine algorithm src dst p eps attr")},
    validate=_validate,
    post_ops=(Eltwise, Sum, Binary),
)
