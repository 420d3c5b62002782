"""Pooling: the largest or the mean of each window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives._rules import (
    FORWARD,
    check_algorithm,
    check_concrete,
    check_descs,
    check_dims,
    check_ndims,
    draft,
    finish,
    require,
)
from blocklayout.dnnl.primitives._windows import (
    Ints,
    both_pads,
    check_window,
    is_integers,
    per_dim,
    strided_extents,
    window_extents,
)

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec

ARGUMENTS = ("src", "dst", "workspace", "diff_dst", "diff_src")


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

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> pooling(MemoryDesc((1, 64, 112, 112)), None, "max", 3, 2, 1, n_threads=1).desc("dst").dims
        (1, 64, 56, 56)
    """
    n_spatial = max(len(getattr(src, "dims", ())) - 2, 0)
    params = {
        "kernel": per_dim("pooling", "kernel", kernel, n_spatial),
        "strides": per_dim("pooling", "strides", strides, n_spatial),
        "dilations": per_dim("pooling", "dilations", dilations, n_spatial),
        "pads": both_pads("pooling", pads, n_spatial),
    }
    spec = draft(
        "pooling",
        {"src": src},
        attr=attr,
        n_threads=n_threads,
        algorithm=algorithm,
        prop_kind=prop_kind,
        params=params,
    )
    return finish(spec, dst, _dst_dims(spec))


def validate(spec: Spec) -> None:
    """Check a pooling.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    if spec.prop_kind not in FORWARD:
        from blocklayout.dnnl.backward.pooling import validate as validate_backward

        validate_backward(spec)
        return
    check_descs(spec, ("src", "dst"), ("workspace",))
    check_algorithm(spec)
    check_concrete(spec, "src")
    check_dims(spec, "dst", pooled_dims(spec), "source, kernel, strides and pads")


def pooled_dims(spec: Spec, src: str = "src") -> tuple[int, ...]:
    """Extents of what a pooling gives, refused where there is nothing.

    Args:
        spec: Perhaps without destination.
        src: Name of the source or its gradient.
    """
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
