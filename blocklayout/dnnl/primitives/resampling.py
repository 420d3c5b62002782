"""Resampling: images of other extents."""

from __future__ import annotations

from collections.abc import Sequence

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise, Sum
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import MAX_INTEGER, check_dims, check_ndims, invalid, require
from blocklayout.dnnl.spec import Spec


def resampling(
    src: Desc,
    dst: Desc | None = None,
    algorithm: str = "resampling_nearest",
    factors: float | Sequence[float] | None = None,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """Images of other extents; pixels are areas, their values at the centres (ONNX's ``half_pixel``).

    Args:
        src: Extents (N, C, spatial...); must have a layout.
        dst: Extents (N, C, spatial...); ``None`` needs ``factors``, and has the source's layout.
        algorithm: ``nearest`` or ``linear``.
        factors: New extents over old, for each spatial dimension or for all; ``None`` follows from ``dst``.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> resampling(MemoryDesc((1, 3, 8, 8)), factors=2, n_threads=1).desc("dst").dims
        (1, 3, 16, 16)
    """
    if dst is None and factors is None:
        raise invalid("resampling", "dst", "is None and so is factors; give one of them")
    n_spatial = max(len(getattr(src, "dims", ())) - 2, 0)
    params = {"factors": _each(factors, n_spatial)}
    spec = draft(
        "resampling", {"src": src}, params, attr=attr, n_threads=n_threads, algorithm=algorithm, prop_kind=prop_kind
    )
    _check_factors(spec, n_spatial)
    scaled = (int(extent * factor) for extent, factor in zip(src.dims[2:], spec.param("factors"), strict=False))
    return finish(spec, dst, (*src.dims[:2], *scaled))


def _validate(spec: Spec) -> None:
    src, dst = spec.desc("src").dims, spec.desc("dst").dims
    check_ndims(spec, "dst", len(src), len(src))
    _check_factors(spec, len(src) - 2)
    check_dims(spec, "dst", (*src[:2], *dst[2:]), "the source, but for spatial dimensions,")
    require(min(dst[2:]) >= 1, spec, "dst", f"has extents {dst}; each must be at least 1")
    for extent, factor, right in zip(src[2:], spec.param("factors"), dst[2:], strict=False):
        rule = f"is {spec.param('factors')}; {extent} * {factor} does not round down to {right}"
        require(int(extent * factor) == right, spec, "factors", rule)


def _each(factors: float | Sequence[float] | None, n_spatial: int) -> tuple[float, ...]:
    if factors is None:
        return ()
    return (float(factors),) * n_spatial if isinstance(factors, int | float) else tuple(map(float, factors))


def _check_factors(spec: Spec, n_spatial: int) -> None:
    factors = spec.param("factors")
    numbers = isinstance(factors, tuple) and all(type(f) in (int, float) and 0 < f <= MAX_INTEGER for f in factors)
    fits = numbers and len(factors) in (0, n_spatial)
    require(fits, spec, "factors", f"is {factors!r}; give {n_spatial} numbers above 0, or none")


KIND = Kind(
    directions={"forward": Direction("engine prop_kind algorithm factors src dst attr")},
    validate=_validate,
    ranks=(3, 5),
    post_ops=(Eltwise, Sum, Binary),
)
