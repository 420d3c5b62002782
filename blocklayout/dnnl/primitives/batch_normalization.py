"""Batch normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives._normalization import check_normalization, flag_names
from blocklayout.dnnl.primitives._rules import (
    FORWARD,
    check_concrete,
    check_descs,
    check_dims,
    check_ndims,
    draft,
    finish,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec

_FORWARD_ARGUMENTS = ("src", "mean", "variance", "scale", "shift", "dst", "workspace")
ARGUMENTS = (*_FORWARD_ARGUMENTS, "diff_dst", "diff_src", "diff_scale", "diff_shift")


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

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> batch_normalization(MemoryDesc((2, 17, 4, 4)), flags="use_scale|use_shift", n_threads=1).param("flags")
        ('use_scale', 'use_shift')
    """
    spec = draft(
        "batch_normalization",
        {"src": src},
        attr=attr,
        n_threads=n_threads,
        prop_kind=prop_kind,
        params={"epsilon": epsilon, "flags": flag_names("batch_normalization", flags)},
    )
    return finish(spec, dst, src.dims)


def validate(spec: Spec) -> None:
    """Check a batch normalisation.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    if spec.prop_kind not in FORWARD:
        from blocklayout.dnnl.backward.batch_normalization import validate as validate_backward

        validate_backward(spec)
        return
    check_descs(spec, ("src", "dst"), _FORWARD_ARGUMENTS)
    check_ndims(spec, "src", 2, 5)
    check_concrete(spec, "src")
    check_dims(spec, "dst", spec.desc("src").dims, "the source")
    check_normalization(spec)
