"""Softmax and its logarithm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blocklayout.dnnl.attr import NO_ATTR, Attr
from blocklayout.dnnl.primitives._rules import (
    check_algorithm,
    check_concrete,
    check_descs,
    check_dims,
    check_forward,
    check_integer,
    draft,
    finish,
    normal_axis,
)

if TYPE_CHECKING:
    from blocklayout.dnnl.any_desc import Desc
    from blocklayout.dnnl.spec import Spec

ARGUMENTS = ("src", "dst")


def softmax(
    src: Desc,
    dst: Desc | None = None,
    axis: int = -1,
    algorithm: str = "softmax_accurate",
    *,
    prop_kind: str = "forward_inference",
    attr: Attr = NO_ATTR,
    n_threads: int | None = None,
) -> Spec:
    """Softmax along one axis.

    Args:
        src: Must have a layout.
        dst: The same extents; ``None`` has the source's layout.
        axis: From the end if negative.
        algorithm: ``accurate``, or ``log`` for the logarithm of it.
        prop_kind: ``forward_inference`` or ``forward_training``.
        attr: Post-ops, scales, zero points and math mode.
        n_threads: Threads it will run on; ``None`` is as many as this process may use.

    Raises:
        InvalidArgumentsError: The message names the argument, the rule and what would be right.

    Example:
        >>> from blocklayout.layout import MemoryDesc
        >>> softmax(MemoryDesc((8, 1000)), n_threads=1).param("axis")
        1
    """
    spec = draft(
        "softmax",
        {"src": src},
        attr=attr,
        n_threads=n_threads,
        algorithm=algorithm,
        prop_kind=prop_kind,
        params={"axis": normal_axis("softmax", axis, len(getattr(src, "dims", ())))},
    )
    return finish(spec, dst, src.dims)


def validate(spec: Spec) -> None:
    """Check a softmax.

    Raises:
        InvalidArgumentsError: Against a rule.
    """
    check_descs(spec, ARGUMENTS)
    check_algorithm(spec)
    check_forward(spec)
    check_concrete(spec, "src")
    check_integer(spec, "axis", 0, len(spec.desc("src").dims))
    check_dims(spec, "dst", spec.desc("src").dims, "the source")
