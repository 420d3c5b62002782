"""Pooling: the largest or the mean of each window; and its gradient."""

from __future__ import annotations

from blocklayout.dnnl.any_desc import Desc
from blocklayout.dnnl.attr import NO_ATTR, Attr, Binary, Eltwise
from blocklayout.dnnl.primitives import Direction, Kind, draft, finish, validate
from blocklayout.dnnl.primitives._checks import check_dims, check_ndims, check_no_attributes, require
from blocklayout.dnnl.primitives._speeds import bandwidth_share_by_name
from blocklayout.dnnl.primitives._windows import (
    Ints,
    check_window,
    is_integers,
    strided_extents,
    window_extents,
    window_params,
)
from blocklayout.dnnl.spec import Spec


def pooling(  # noqa: PLR0913 - the primitive's own parameters
    src: Desc,
    dst: Desc | None = None,
    algorithm: str = "pooling_max",
    kernel: Ints = 2,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """The largest element or the mean of each window.

    Max pooling in ``forward_training`` also writes a ``workspace``: where each largest element was.

    Args:
        src: Extents (N, C, spatial...); must have a layout.
        dst: ``None`` has the source's layout.
        algorithm: ``max``, ``avg_include_padding`` or ``avg_exclude_padding``.
        kernel: One integer, or one for each spatial dimension.
        strides: One integer, or one for each spatial dimension.
        pads: One integer, or ``(begin..., end...)``.
        dilations: Elements skipped between taps; 0 is dense (ONNX's 1).
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> pooling(MemoryDesc((1, 64, 112, 112)), None, "max", 3, 2, 1, n_threads=1).desc("dst").dims
        (1, 64, 56, 56)
    """
    params = window_params("pooling", src, kernel=kernel, strides=strides, dilations=dilations, pads=pads)
    spec = draft(
        "pooling", {"src": src}, params, attr=attr, n_threads=n_threads, algorithm=algorithm, prop_kind=prop_kind
    )
    return finish(spec, dst, _dst_dims(spec))


def pooling_backward(
    diff_src: Desc,
    diff_dst: Desc,
    algorithm: str = "pooling_max",
    kernel: Ints = 2,
    strides: Ints = 1,
    pads: Ints = 0,
    dilations: Ints = 0,
    *,
    n_threads: int | None = None,
) -> Spec:
    """The gradient of a pooling's source, from that of its destination; both must have a layout.

    Extents, windows and algorithms are those of :func:`blocklayout.dnnl.pooling`. Max pooling reads the ``workspace``
    that the same pooling wrote in ``forward_training``.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> x, y = MemoryDesc((1, 16, 8, 8)), MemoryDesc((1, 16, 4, 4))
        >>> pooling_backward(x, y, "max", 2, 2, n_threads=1).prop_kind
        'backward_data'
    """
    params = window_params("pooling", diff_src, kernel=kernel, strides=strides, dilations=dilations, pads=pads)
    descs = {"diff_src": diff_src, "diff_dst": diff_dst}
    spec = draft("pooling", descs, params, prop_kind="backward_data", n_threads=n_threads, algorithm=algorithm)
    return validate(spec)


def _validate_backward(spec: Spec) -> None:
    check_no_attributes(spec)
    check_dims(spec, "diff_dst", pooled_dims(spec, "diff_src"), "diff_src, kernel, strides and pads")


def pooled_dims(spec: Spec, src: str = "src") -> tuple[int, ...]:
    """Extents of the result, refused where there is nothing in it."""
    dims = _dst_dims(spec, src)
    require(min(dims[2:]) >= 1, spec, "kernel", f"spans more than the padded source, which leaves extents {dims}")
    return dims


def _dst_dims(spec: Spec, name: str = "src") -> tuple[int, ...]:
    n_spatial = check_ndims(spec, name, 3, 5) - 2
    kernel, pads = spec.param("kernel"), spec.param("pads")
    require(
        is_integers(kernel, n_spatial) and min(kernel) > 0,
        spec,
        "kernel",
        f"is {kernel!r}; give {n_spatial} integers of at least 1",
    )
    check_window(spec, n_spatial)
    window = window_extents(kernel, spec.param("dilations"))
    inside = all(pad < extent for pad, extent in zip(pads, window * 2, strict=True))
    require(inside, spec, "pads", f"is {pads}; each must be below the {window} that the kernel spans")
    src = spec.desc(name).dims
    return (*src[:2], *strided_extents(src[2:], window, spec.param("strides"), pads))


KIND = Kind(
    directions={
        "forward": Direction(
            c_order="engine prop_kind algorithm src dst strides kernel dilations pads attr",
            arguments=("src", "dst", "workspace"),
            results=("dst", "workspace"),
            optional=("workspace",),
        ),
        "backward": Direction(
            c_order="engine algorithm diff_src diff_dst strides kernel dilations pads hint attr",
            arguments=("workspace", "diff_dst", "diff_src"),
            results=("diff_src",),
            optional=("workspace",),
            laid_out=("diff_src", "diff_dst"),
            prop_kinds=("backward_data",),
            validate=_validate_backward,
        ),
    },
    validate=lambda spec: check_dims(spec, "dst", pooled_dims(spec), "source, kernel, strides and pads"),
    post_ops=(Eltwise, Binary),
    bandwidth_share=lambda spec: bandwidth_share_by_name(spec, {"simple_nhwc": 0.15, "simple": 0.02}),
)
