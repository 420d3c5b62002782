"""Group normalisation: some channels of each image together; the library of this release has no such primitive."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_dtype, check_float, check_integer, require
from blocklayout.dnnl.spec import Spec

_VECTORS = ("scale", "shift")


def group_normalization(
    src: Desc,
    dst: Desc | None = None,
    scale: Desc | None = None,
    shift: Desc | None = None,
    n_groups: int = 1,
    epsilon: float = 1e-5,
    *,
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``(src - mean) / sqrt(variance + epsilon) * scale + shift``, the mean and variance of each image's groups.

    Args:
        src: Extents (N, C, spatial...); must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        scale: f32 or of the source's type, extents (N or 1, C or n_groups); ``None`` is 1.
        shift: Likewise; ``None`` is 0.
        n_groups: Groups of equally many channels.
        epsilon: Added to the variance.
        attr: Post-ops.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> group_normalization(MemoryDesc((2, 16, 4, 4)), n_groups=4, n_threads=1).desc("dst").dims
        (2, 16, 4, 4)
    """
    descs = {"src": src, "scale": scale, "shift": shift}
    params = {"n_groups": n_groups, "epsilon": epsilon}
    return finish(draft("group_normalization", descs, params, attr=attr, n_threads=n_threads), dst, src.dims)


def _validate(spec: Spec) -> None:
    images, channels, *_ = spec.desc("src").dims
    check_dtype(spec, "dst", (spec.desc("src").dtype,), "the source")
    require(check_float(spec, "epsilon") >= 0, spec, "epsilon", f"is {spec.param('epsilon')}; give at least 0")
    n_groups = check_integer(spec, "n_groups", 1)
    require(channels % n_groups == 0, spec, "n_groups", f"is {n_groups}; it must divide {channels} channels")
    for name in filter(spec.has, _VECTORS):
        check_dtype(spec, name, ("f32", spec.desc("src").dtype), spec.kind)
        dims = tuple(spec.desc(name).dims)
        fits = len(dims) == 2 and dims[0] in (1, images) and dims[1] in (n_groups, channels)
        rule = f"has extents {dims}; give ({images} or 1, {channels} or {n_groups})"
        require(fits, spec, name, rule)


KIND = Kind(
    directions={"": Direction("", ("src", *_VECTORS, "dst"), optional=_VECTORS, keeps_extents=True)},
    validate=_validate,
    ranks=(2, 12),
    post_ops=(Binary, Eltwise),
)
