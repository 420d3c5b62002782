"""Layer normalisation, over the last dimension."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Unpack

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.primitives import Direction, ForwardSettings, Kind, draft, finish
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
    **settings: Unpack[ForwardSettings],
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
        **settings: ``prop_kind``, ``attr`` and ``n_threads``, as of all forward primitives.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> layer_normalization(MemoryDesc((2, 16, 64)), flags=["use_scale"], n_threads=1).desc("dst").dims
        (2, 16, 64)
    """
    params = {"epsilon": epsilon, "flags": flag_names("layer_normalization", flags)}
    spec = draft("layer_normalization", {"src": src, "mean": stat, "variance": stat}, params, settings)
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
