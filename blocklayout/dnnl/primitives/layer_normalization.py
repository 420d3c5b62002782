"""Layer normalisation, over the last dimension."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_dims, check_dtype, require
from blocklayout.dnnl.primitives._normalization import VECTORS, adjusted_by_flags, check_normalization, flag_names
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name
from blocklayout.dnnl.spec import Spec

_FLAGS = ("use_global_stats", "use_scale", "use_shift")


def layer_normalization(
    src: Desc,
    dst: Desc | None = None,
    epsilon: float = 1e-5,
    flags: str | Iterable[str] = (),
    stat: Desc | None = None,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``(src - mean) / sqrt(variance + epsilon) * scale + shift`` over the last dimension.

    ``scale`` and ``shift`` are f32 of extents (last,). ``mean`` and ``variance`` have the source's
    extents without the last; they are read with ``use_global_stats``, else computed, and written in
    ``forward_training``.

    Args:
        src: Two to five dimensions; must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        epsilon: Added to the variance.
        flags: Names among ``use_global_stats``, ``use_scale``, ``use_shift``.
        stat: Descriptor of mean and variance, f32; ``None`` orders them as the source.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> layer_normalization(MemoryDesc((2, 16, 64)), flags=["use_scale"], n_threads=1).desc("dst").dims
        (2, 16, 64)
    """
    params = {"epsilon": epsilon, "flags": flag_names("layer_normalization", flags)}
    descs = {"src": src, "mean": stat, "variance": stat}
    spec = draft("layer_normalization", descs, params, attr=attr, n_threads=n_threads, prop_kind=prop_kind)
    return finish(spec, dst, src.dims)


def _validate(spec: Spec) -> None:
    for name in ("mean", "variance"):
        if spec.has(name):
            check_dims(spec, name, spec.desc("src").dims[:-1], "the source without its last extent")
            check_dtype(spec, name, ("f32",), "layer_normalization")
    flags = check_normalization(spec)
    require(set(flags) <= set(_FLAGS), spec, "flags", f"is {flags}; layer_normalization takes {', '.join(_FLAGS)}")


def _bandwidth_share(spec: Spec) -> float:
    """A row is one thread's."""
    n_rows = prod(spec.memory_desc("dst").dims[:-1])
    return bandwidth_share_by_name(spec, {"simple": 0.03}, min(n_rows / spec.n_threads, 1.0))


KIND = Kind(
    directions={
        "forward": Direction(
            c_order="engine prop_kind src dst mean epsilon flags attr",
            arguments=("src", *VECTORS, "dst"),
            results=("dst", "mean", "variance"),
            optional=VECTORS,
            keeps_extents=True,
        )
    },
    validate=_validate,
    ranks=(2, 5),
    bandwidth_share=_bandwidth_share,
    adjusted=adjusted_by_flags,
)
