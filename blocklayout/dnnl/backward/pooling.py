"""The gradient of pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.backward._rules import backward_spec, check_no_attributes
from blocklayout.dnnl.primitives._rules import check_algorithm, check_choice, check_concrete, check_descs, check_dims
from blocklayout.dnnl.primitives._windows import Ints, both_pads, per_dim
from blocklayout.dnnl.primitives.pooling import pooled_dims

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec


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
    """The gradient of a pooling's source, from that of its destination.

    Max pooling reads the ``workspace`` that the same pooling wrote in ``forward_training``.

    Args:
        diff_src: Extents (N, C, spatial...); must have a layout, as ``diff_dst``.
        diff_dst: Extents of the pooling's result.
        algorithm: ``max``, ``avg_include_padding`` or ``avg_exclude_padding``.
        kernel: One integer, or one for each spatial dimension.
        strides: One integer, or one for each spatial dimension.
        pads: One integer, or ``(begin..., end...)``.
        dilations: Elements skipped between taps; 0 is dense (ONNX's 1).
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> x, y = MemoryDesc((1, 16, 8, 8)), MemoryDesc((1, 16, 4, 4))
        >>> pooling_backward(x, y, "max", 2, 2, n_threads=1).prop_kind
        'backward_data'
    """
    n_spatial = max(len(getattr(diff_src, "dims", ())) - 2, 0)
    params = {
        "kernel": per_dim("pooling", "kernel", kernel, n_spatial),
        "strides": per_dim("pooling", "strides", strides, n_spatial),
        "dilations": per_dim("pooling", "dilations", dilations, n_spatial),
        "pads": both_pads("pooling", pads, n_spatial),
    }
    descs = {"diff_src": diff_src, "diff_dst": diff_dst}
    return backward_spec(
        "pooling", descs, prop_kind="backward_data", n_threads=n_threads, algorithm=algorithm, params=params
    )


def validate(spec: Spec) -> None:
    """Check the gradient of a pooling.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    check_choice(spec, "prop_kind", spec.prop_kind, ("backward_data",))
    check_descs(spec, ("diff_src", "diff_dst"), ("workspace",))
    check_algorithm(spec)
    check_concrete(spec, "diff_src", "diff_dst")
    check_no_attributes(spec)
    check_dims(spec, "diff_dst", pooled_dims(spec, "diff_src"), "diff_src, kernel, strides and pads")
