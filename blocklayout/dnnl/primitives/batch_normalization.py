"""Batch normalisation, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Eltwise
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish
from blocklayout.dnnl.primitives._checks import check_dims, check_no_attributes, require
from blocklayout.dnnl.primitives._normalization import VECTORS, adjusted_by_flags, check_normalization, flag_names
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name
from blocklayout.dnnl.spec import Spec


def batch_normalization(
    src: Desc,
    dst: Desc | None = None,
    epsilon: float = 1e-5,
    flags: str | Iterable[str] = (),
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """``(src - mean) / sqrt(variance + epsilon) * scale + shift``, for each channel.

    Its vectors ``mean``, ``variance``, ``scale`` and ``shift`` are f32 of extents (C,), and listed
    once it is resolved: mean and variance are read with ``use_global_stats``, else computed, and
    written in ``forward_training``.

    Args:
        src: Extents (N, C) or (N, C, spatial...); must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        epsilon: Added to the variance.
        flags: Names among ``use_global_stats``, ``use_scale``, ``use_shift``, ``fuse_norm_relu``.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> batch_normalization(MemoryDesc((2, 17, 4, 4)), flags="use_scale|use_shift", n_threads=1).param("flags")
        ('use_scale', 'use_shift')
    """
    params = {"epsilon": epsilon, "flags": flag_names("batch_normalization", flags)}
    spec = draft("batch_normalization", {"src": src}, params, attr=attr, n_threads=n_threads, prop_kind=prop_kind)
    return finish(spec, dst, src.dims)


def batch_normalization_backward(
    src: Desc,
    diff_dst: Desc,
    diff_src: Desc | None = None,
    epsilon: float = 1e-5,
    flags: str | Iterable[str] = (),
    *,
    prop_kind: str = "backward",
    n_threads: int | None = None,
) -> Spec:
    """The gradients of a batch normalisation's source, scale and shift, from that of its destination.

    Its vectors are f32 of extents (C,), and listed once it is resolved: it reads ``mean``, ``variance`` and, with
    ``use_scale``, ``scale``; in ``backward`` it writes ``diff_scale`` and ``diff_shift`` as the flags say.

    Args:
        src: Extents (N, C) or (N, C, spatial...); must have a layout.
        diff_dst: The same extents; must have a layout.
        diff_src: The same extents; ``None`` leaves the layout to the primitive.
        epsilon: Added to the variance.
        flags: Names among ``use_global_stats`` (mean and variance are constants), ``use_scale``, ``use_shift``,
            ``fuse_norm_relu``.
        prop_kind: ``backward``, or ``backward_data`` for the source's gradient alone, where there is neither scale nor
            shift: with them oneDNN has only primitives that write their gradients as well.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> x = MemoryDesc((2, 17, 4, 4))
        >>> batch_normalization_backward(x, x, flags="use_scale|use_shift", n_threads=1).desc("diff_src").dims
        (2, 17, 4, 4)
    """
    params = {"epsilon": epsilon, "flags": flag_names("batch_normalization", flags)}
    descs = {"src": src, "diff_dst": diff_dst}
    spec = draft("batch_normalization", descs, params, n_threads=n_threads, prop_kind=prop_kind)
    return finish(spec, diff_src, src.dims, name="diff_src")


def _validate_backward(spec: Spec) -> None:
    check_no_attributes(spec)
    for name in ("diff_dst", "diff_src"):
        check_dims(spec, name, spec.desc("src").dims, "src")
    learned = {"use_scale", "use_shift"} & {*check_normalization(spec)}
    is_sound = not learned or spec.prop_kind == "backward"
    require(is_sound, spec, "prop_kind", "is backward_data; with use_scale or use_shift give backward")


def _bandwidth_share(spec: Spec) -> float:
    dst = spec.side("dst")
    is_channels_last = not dst.inner_blks and not dst.is_contiguous()
    return bandwidth_share_by_name(spec, {"ncsp": 0.08, "nspc": 0.015}, 0.9 if is_channels_last else 1.0)


KIND = Kind(
    directions={
        "forward": Direction(
            c_order="engine prop_kind src dst epsilon flags attr",
            arguments=("src", *VECTORS, "dst", "workspace"),
            results=("dst", "mean", "variance", "workspace"),
            optional=(*VECTORS, "workspace"),
            keeps_extents=True,
        ),
        "backward": Direction(
            c_order="engine prop_kind diff_src diff_dst src epsilon flags hint attr",
            arguments=(
                *("src", "mean", "variance", "scale", "workspace"),
                *("diff_dst", "diff_src", "diff_scale", "diff_shift"),
            ),
            results=("diff_src", "diff_scale", "diff_shift"),
            optional=("mean", "variance", "scale", "workspace", "diff_scale", "diff_shift"),
            laid_out=("src", "diff_dst"),
            prop_kinds=("backward", "backward_data"),
            validate=_validate_backward,
        ),
    },
    validate=check_normalization,
    ranks=(2, 5),
    post_ops=(Eltwise,),
    bandwidth_share=_bandwidth_share,
    adjusted=adjusted_by_flags,
)
